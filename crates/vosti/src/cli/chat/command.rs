//! The commands in a conversation's lines.

use super::super::arguments::Sampling;
use super::super::values;
use anyhow::{Result, anyhow, bail};
use std::path::PathBuf;
use std::str::FromStr;
use vosti_engine::{Given, Numbers};

const HELP: &str = "\
/system TEXT      set the system message; without a text, remove it
/set NAME VALUE   max_tokens, seed, {numbers}
/regenerate       replace the last answer by a new one, with the next seed
/undo             take back the last message and its answer
/drop             forget the oldest message and its answer, for a context that is full
/clear            forget all messages but the system's
/save FILE        write the conversation, the fingerprint and the current seed as JSON
/load FILE        go on with a conversation that /save wrote; it replaces this one
/quit             end the conversation
//TEXT            a message that begins with a slash
Alt-Enter or a backslash at a line's end begins another line. Ctrl-C clears what is typed.
";

/// What `/help` shows.
pub fn help() -> String {
    HELP.replace("{numbers}", &Numbers::NAMES.join(", "))
}

/// A line of a conversation: a message or a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Say(String),
    Help,
    System(String),
    Set(String, String),
    Save(PathBuf),
    Load(PathBuf),
    Undo,
    Drop,
    Clear,
    Regenerate,
    Quit,
}

impl Command {
    pub fn parse(line: &str) -> Result<Command> {
        let Some(rest) = line.strip_prefix('/') else { return Ok(Command::Say(line.into())) };
        if rest.starts_with('/') {
            return Ok(Command::Say(rest.into()));
        }
        let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let value = value.trim();
        Ok(match name {
            "help" | "?" => Command::Help,
            "system" => Command::System(value.into()),
            "set" => match value.split_once(char::is_whitespace) {
                Some((name, value)) => Command::Set(name.into(), value.trim().into()),
                None => bail!("/set takes a name and a value, such as /set temperature 0.7"),
            },
            "save" | "load" if value.is_empty() => bail!("/{name} takes the name of a file"),
            "save" => Command::Save(value.into()),
            "load" => Command::Load(value.into()),
            "undo" => Command::Undo,
            "drop" => Command::Drop,
            "clear" => Command::Clear,
            "regenerate" => Command::Regenerate,
            "quit" | "exit" | "bye" => Command::Quit,
            other => bail!("there is no /{other}; /help lists commands, and // begins a message with a slash"),
        })
    }
}

/// Sets one parameter, by its name in the API.
pub fn set(sampling: &mut Sampling, name: &str, value: &str) -> Result<()> {
    fn read<T: FromStr>(name: &str, value: &str) -> Result<T> {
        value.parse().map_err(|_| anyhow!("{value:?} is not a value for {name}"))
    }
    let (name, mut numbers) = (name.replace('-', "_"), Given::from(&sampling.numbers));
    if let Some(set) = numbers.set(&name, value) {
        set.map_err(|()| anyhow!("{value:?} is not a value for {name}"))?;
        sampling.numbers = numbers.into();
        return Ok(());
    }
    match name.as_str() {
        "max_tokens" => sampling.max_tokens = Some(read(&name, value)?),
        "seed" => sampling.seed = Some(values::seed(value).map_err(|why| anyhow!(why))?),
        other => bail!("there is no parameter {other}; /help lists them"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_a_command_or_one_line_of_what_is_wrong() {
        let said = |line: &str| Command::parse(line).map_err(|error| error.to_string());
        assert_eq!(said("hello"), Ok(Command::Say("hello".into())));
        assert_eq!(said("//etc is a folder"), Ok(Command::Say("/etc is a folder".into())));
        assert_eq!(said("/set top-p  0.5"), Ok(Command::Set("top-p".into(), "0.5".into())));
        assert_eq!(said("/system You are\nbrief."), Ok(Command::System("You are\nbrief.".into())));
        assert_eq!(said("/save a b.json"), Ok(Command::Save("a b.json".into())));
        for wrong in ["/set", "/set seed", "/save", "/load", "/nothing"] {
            assert_eq!(said(wrong).unwrap_err().lines().count(), 1, "{wrong}");
        }
    }
}
