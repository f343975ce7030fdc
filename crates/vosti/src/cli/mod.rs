//! The command line: one file per subcommand, and the code that they share.

mod arguments;
mod audit;
mod bar;
mod bench;
mod chat;
mod check;
mod generate;
mod interrupt;
mod laws;
mod manual;
mod models;
mod open;
mod output;
mod prepare;
mod probe;
mod replay;
mod sampling;
mod screen;
mod serve;
mod silent;
mod stream;
mod tokenize;
mod traces;
mod values;
mod verify;

use crate::fetch::FetchError;
use arguments::{Command, Vosti};
use clap::Parser;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::path::PathBuf;
use vosti_check::CheckError;

/// How a subcommand ended that met no error.
pub enum Outcome {
    /// Exit code 0.
    Done,
    /// A check found a difference or a failure: exit code 1.
    Failed,
    /// A kernel is neither proved nor refuted: exit code 3.
    Unknown,
    /// Ctrl-C: exit code 130.
    Interrupted,
}

/// Parses a command line, whose first word is the program's name, runs it, prints errors and returns the exit code. `program` is
/// the executable that `vosti check` starts once more, as another process.
pub fn main(words: impl IntoIterator<Item = OsString>, program: Option<PathBuf>) -> u8 {
    let arguments = match Vosti::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    interrupt::install();
    match run(arguments.command, program) {
        Ok(Outcome::Done) => 0,
        Ok(Outcome::Failed) => 1,
        Ok(Outcome::Unknown) => 3,
        Ok(Outcome::Interrupted) => 130,
        Err(error) if is_interrupt(&error) => {
            // The message of an interrupted fetch says how to continue.
            let fetch = error.chain().find_map(|cause| cause.downcast_ref::<FetchError>());
            let fetch = fetch.filter(|cause| matches!(cause, FetchError::Interrupted));
            tell!("vosti: {}", fetch.map_or_else(|| "interrupted".into(), ToString::to_string));
            130
        }
        Err(error) => {
            tell!("vosti: {}", one_line(&error));
            2
        }
    }
}

fn run(command: Command, program: Option<PathBuf>) -> anyhow::Result<Outcome> {
    match command {
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Chat(arguments) => chat::run(&arguments),
        Command::Run { words } => run(as_run(&words)?, program),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Models(arguments) => models::run(&arguments),
        Command::Pull(arguments) => models::pull(&arguments),
        Command::Tokenize(arguments) => tokenize::run(&arguments),
        Command::Check(arguments) => check::run(&arguments, program),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Laws(arguments) => laws::run(&arguments),
        Command::Prepare(arguments) => prepare::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::pages(&arguments),
    }
}

/// ollama's `run MODEL [WORDS]`: a chat, or an answer if there are words.
fn as_run(words: &[String]) -> anyhow::Result<Command> {
    let (model, words) = words.split_first().expect("clap wants a model");
    let (said, flags) = words.split_at(words.iter().position(|word| word.starts_with('-')).unwrap_or(words.len()));
    let said = said.join(" ");
    let mut same = vec!["vosti", if said.is_empty() { "chat" } else { "generate" }, "--model", model];
    same.extend(flags.iter().map(String::as_str));
    same.extend(Some(said.as_str()).filter(|said| !said.is_empty()));
    let parsed = Vosti::try_parse_from(same);
    parsed.map(|vosti| vosti.command).map_err(|error| anyhow::anyhow!("{}; see --help", refusal(&error.to_string())))
}

/// An error and its causes on one line. A cause that a message contains already is left out.
fn one_line(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !told.contains(&cause) {
            told += &format!(": {cause}");
        }
    }
    told.replace('\n', " ")
}

fn is_interrupt(error: &anyhow::Error) -> bool {
    let fetch = matches!(error.downcast_ref(), Some(FetchError::Interrupted));
    fetch || matches!(error.downcast_ref(), Some(CheckError::Interrupted)) || interrupt::interrupted()
}

/// Help and version as clap prints them; anything else as one line.
fn refuse(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let unwritten = error.print().err().filter(|why| why.kind() != std::io::ErrorKind::BrokenPipe);
            unwritten.iter().for_each(|why| tell!("vosti: cannot write the help: {why}"));
            if error.use_stderr() || unwritten.is_some() { 2 } else { 0 }
        }
        _ => {
            let text = error.to_string();
            tell!("vosti: {}; see --help", refusal(&text));
            2
        }
    }
}

/// clap's error and its tip (the flag or command that it suggests), on one line.
fn refusal(text: &str) -> String {
    let one = |paragraph: &str| paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n").map(one);
    let what = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|paragraph| Some(format!("; {}", paragraph.strip_prefix("tip: ")?)));
    what.trim_start_matches("error: ").to_string() + &tip.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_misspelt_flag_or_command_is_told_with_what_was_meant() {
        let said = |words: &[&str]| refusal(&Vosti::try_parse_from(words).err().expect("refused").to_string());
        assert!(
            said(&["vosti", "serve", "--prot", "1"]).contains("'--port'"),
            "{}",
            said(&["vosti", "serve", "--prot", "1"])
        );
        assert!(said(&["vosti", "generat"]).contains("'generate'"), "{}", said(&["vosti", "generat"]));
    }

    #[test]
    fn words_of_other_programs_are_understood() {
        let run = |words: &[&str]| as_run(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(matches!(run(&["qwen3-0.6b"]), Ok(Command::Chat(chat)) if chat.engine.model == "qwen3-0.6b"));
        let asked = run(&["qwen3-0.6b", "What", "is", "this?", "--temperature", "0"]);
        let is_asked = |arguments: &arguments::Generate| {
            arguments.prompt == "What is this?" && arguments.sampling.numbers.temperature == Some(0.0)
        };
        assert!(matches!(asked, Ok(Command::Generate(arguments)) if is_asked(&arguments)));
        for list in ["ls", "list"] {
            assert!(matches!(Vosti::try_parse_from(["vosti", list]), Ok(Vosti { command: Command::Models(_) })));
        }
    }

    #[test]
    fn a_cause_that_a_message_holds_already_is_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("memory or threads: {0}")]
        struct Outer(#[from] std::io::Error);
        let error: anyhow::Error = Outer(std::io::Error::other("no memory")).into();
        assert_eq!(one_line(&error.context("cannot load")), "cannot load: memory or threads: no memory");
        let plain = Err::<(), _>(std::io::Error::other("no\nspace")).context("cannot write x");
        assert_eq!(one_line(&plain.unwrap_err()), "cannot write x: no space");
    }
}
