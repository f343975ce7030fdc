//! Reads a line of a conversation: with editing, history and pastes of several lines on a terminal, unchanged from a pipe. On a
//! terminal Alt-Enter and a backslash at a line's end begin another line, and Ctrl-C clears what is typed.
//! The history is kept between conversations; if it cannot be kept, the conversation goes on.

use super::super::interrupt;
use crate::fetch::Cache;
use anyhow::{Context, Result};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{
    Cmd, ConditionalEventHandler, Config, Editor, Event, EventContext, EventHandler, KeyCode, KeyEvent, Modifiers,
    Movement, RepeatCount,
};
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

const LINES_KEPT: usize = 1000;

pub enum Line {
    Text(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    End,
}

pub struct Prompt {
    /// On a terminal.
    editor: Option<Editor<(), FileHistory>>,
    history: Option<PathBuf>,
}

impl Prompt {
    pub fn new() -> Self {
        let history = Cache::of_user().ok().map(|cache| cache.history());
        let config = Config::builder().max_history_size(LINES_KEPT).map(|builder| builder.build());
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let mut editor = config.ok().filter(|_| terminal).and_then(|config| Editor::with_config(config).ok());
        if let Some(editor) = &mut editor {
            let newline = Cmd::Insert(1, "\n".into());
            editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), newline);
            editor.bind_sequence(KeyEvent::ctrl('C'), EventHandler::Conditional(Box::new(Clears)));
            let _ = history.as_ref().map(|path| editor.load_history(path));
        }
        Prompt { editor, history }
    }

    /// The next line, or the lines that a user pasted.
    pub fn line(&mut self) -> Result<Line> {
        let Some(editor) = &mut self.editor else { return piped() };
        let mut line = editor.readline("> ");
        while let Ok(begun) = &line
            && let Some(above) = begun.strip_suffix('\\')
        {
            line = editor.readline(". ").map(|below| format!("{above}\n{below}"));
        }
        match line {
            Ok(line) => {
                let _ = editor.add_history_entry(&line);
                if let Some(path) = &self.history {
                    let _ = path.parent().map(std::fs::create_dir_all);
                    let _ = editor.append_history(path);
                }
                Ok(Line::Text(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(error).context("cannot read from the terminal"),
        }
    }
}

/// Ctrl-C: clears what is typed; at an empty prompt it interrupts.
struct Clears;

impl ConditionalEventHandler for Clears {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        (!context.line().is_empty()).then_some(Cmd::Kill(Movement::WholeBuffer))
    }
}

/// A line of standard input. Ctrl-C ends the process.
fn piped() -> Result<Line> {
    let mut line = String::new();
    let read = interrupt::ends_at_once(|| std::io::stdin().lock().read_line(&mut line));
    Ok(if read? > 0 { Line::Text(line) } else { Line::End })
}
