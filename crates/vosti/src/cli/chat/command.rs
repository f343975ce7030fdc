//! The commands in a conversation's lines.

use super::super::arguments::Sampling;
use anyhow::{Result, anyhow, bail};
use std::path::PathBuf;
use std::str::FromStr;

pub const HELP: &str = "\
/system TEXT      set the system message; without a text, remove it
/set NAME VALUE   temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty, frequency_penalty, max_tokens, seed
/regenerate       replace the last answer by a new one, with the next seed
/save FILE        write the conversation, the fingerprint and the current seed as JSON
/quit             end the conversation
//TEXT            a message that begins with a slash
";

/// A line of a conversation: a message or a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Say(String),
    Help,
    System(String),
    Set(String, String),
    Save(PathBuf),
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
            "save" if value.is_empty() => bail!("/save takes the name of a file"),
            "save" => Command::Save(value.into()),
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
    match name.replace('-', "_").as_str() {
        "temperature" => sampling.temperature = Some(read(name, value)?),
        "top_p" => sampling.top_p = Some(read(name, value)?),
        "top_k" => sampling.top_k = Some(read(name, value)?),
        "min_p" => sampling.min_p = Some(read(name, value)?),
        "repetition_penalty" => sampling.repetition_penalty = Some(read(name, value)?),
        "presence_penalty" => sampling.presence_penalty = read(name, value)?,
        "frequency_penalty" => sampling.frequency_penalty = read(name, value)?,
        "max_tokens" => sampling.max_tokens = read(name, value)?,
        "seed" => sampling.seed = Some(read(name, value)?),
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
        for wrong in ["/set", "/set seed", "/save", "/nothing"] {
            assert_eq!(said(wrong).unwrap_err().lines().count(), 1, "{wrong}");
        }
    }
}
