//! `vosti chat`: a conversation on the terminal. Every turn's prompt is the whole conversation; its beginning comes from the
//! prefix cache, with the same bits as if it were computed. Lines that begin with `/` are commands ([`command`]). [`prompt`]
//! reads lines, and [`screen`] shows an answer on a terminal. A pipe gets the answer unchanged.

mod command;
mod prompt;

use super::arguments::{Chat, Sampling};
use super::open;
use super::output::{Promised, print};
use super::screen::screen;
use super::silent::Silent;
use super::stream::{stream, submit};
use super::values::Seed;
use super::{Outcome, interrupt, sampling};
use crate::deployment::{DeployOptions, Deployment};
use crate::device::AnyDevice;
use anyhow::{Context, Result, bail};
use command::Command;
use prompt::{Line, Prompt};
use serde_json::{Value, json};
use std::path::Path;
use vosti_engine::{Engine, Request};
use vosti_model::{ChatOptions, Date};
use vosti_server::api::fields;

pub fn run(arguments: &Chat) -> Result<Outcome> {
    let flags = &arguments.engine;
    let pool = open::asked(flags, open::any(1));
    let options = DeployOptions { pool, ..open::options(&flags.hardware)? };
    let deployment = open::load_with_text(&flags.model, &options)?;
    let own = deployment.text()?;
    own.chat()?; // a base model says so before anything is computed
    let seed = sampling::seed(&arguments.sampling);
    sampling::checked(&arguments.sampling, seed, &deployment)?;
    let engine = open::engine_for_any(&deployment, flags, 1)?;
    if !arguments.quiet {
        open::banner(&deployment, &engine);
        tell!(
            "sampling     {}\nseed         {seed}\n\nWrite a message and press Enter; /help lists commands. Ctrl-C ends an answer, Ctrl-C at the prompt or \
             Ctrl-D the conversation.\n",
            sampling::effective(&arguments.sampling, &deployment)?
        );
    }
    let mut conversation = Conversation {
        deployment: &deployment,
        engine,
        sampling: Sampling { seed: Some(Seed::Given(seed)), ..arguments.sampling.clone() },
        rendering: ChatOptions { date: arguments.date.unwrap_or(Date::DEFAULT), ..ChatOptions::default() },
        messages: Vec::new(),
        quiet: arguments.quiet,
    };
    conversation.system(arguments.system.as_deref().unwrap_or_default());
    let mut prompt = Prompt::new();
    loop {
        let line = match prompt.line()? {
            Line::Text(line) => line,
            Line::Interrupted => return Ok(Outcome::Interrupted),
            Line::End => return Ok(Outcome::Done),
        };
        let told = match Command::parse(line.trim()) {
            Ok(Command::Say(text)) if text.is_empty() => Ok(()),
            Ok(Command::Say(text)) => conversation.say(&text),
            Ok(Command::Quit) => return Ok(Outcome::Done),
            Ok(command) => conversation.obey(command),
            Err(why) => Err(why),
        };
        match told {
            Ok(()) => {}
            // An error in one line does not end the conversation; an error in the middle of an answer does.
            Err(error) if conversation.engine.is_idle() => tell!("{error:#}\n"),
            Err(error) => return Err(error),
        }
    }
}

/// The messages so far, and the engine and settings for the next answer.
struct Conversation<'a> {
    deployment: &'a Deployment,
    engine: Engine<AnyDevice>,
    /// Its seed is always set.
    sampling: Sampling,
    rendering: ChatOptions,
    messages: Vec<Value>,
    quiet: bool,
}

impl Conversation<'_> {
    fn seed(&self) -> u64 {
        match self.sampling.seed {
            Some(Seed::Given(seed)) => seed,
            None | Some(Seed::Fresh) => 0,
        }
    }

    fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Help => tell!("{}", command::help()),
            Command::System(text) => self.system(&text),
            Command::Set(name, value) => {
                let mut changed = self.sampling.clone();
                command::set(&mut changed, &name, &value)?;
                let seed = sampling::seed(&changed);
                sampling::checked(&changed, seed, self.deployment)?;
                self.sampling = Sampling { seed: Some(Seed::Given(seed)), ..changed };
                let now = sampling::effective(&self.sampling, self.deployment)?;
                tell!("sampling     {now}\nseed         {}\n", self.seed());
            }
            Command::Save(path) => self.save(&path)?,
            Command::Load(path) => self.load(&path)?,
            Command::Undo => {
                let said = self.messages.iter().rposition(|message| message["role"] == "user");
                self.messages.truncate(said.context("there is no message yet")?);
                self.tell_messages();
            }
            Command::Drop => {
                let first = self.messages.iter().position(|message| message["role"] == "user");
                let first = first.context("there is no message yet")?;
                let next = self.messages[first + 1..].iter().position(|message| message["role"] == "user");
                self.messages.drain(first..next.map_or(self.messages.len(), |next| first + 1 + next));
                self.tell_messages();
            }
            Command::Clear => {
                self.messages.retain(|message| message["role"] == "system");
                self.tell_messages();
            }
            Command::Regenerate => {
                if self.messages.last().is_none_or(|message| message["role"] != "assistant") {
                    bail!("there is no answer yet, so none can be replaced");
                }
                // The same seed would give the same answer.
                self.sampling.seed = Some(Seed::Given(self.seed().wrapping_add(1)));
                tell!("seed         {}", self.seed());
                let before = self.messages.pop();
                let answered = self.answer();
                self.messages.extend(before.filter(|_| answered.is_err()));
                answered?;
            }
            Command::Say(_) | Command::Quit => {}
        }
        Ok(())
    }

    fn tell_messages(&self) {
        tell!("messages     {}\n", self.messages.len());
    }

    /// Replaces the messages by those of a file that [`Conversation::save`] wrote. An error changes nothing.
    fn load(&mut self, path: &Path) -> Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let saved: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        let is_message = |message: &Value| message["role"].is_string() && message["content"].is_string();
        let messages = saved["messages"].as_array().filter(|messages| messages.iter().all(is_message));
        self.messages = messages.with_context(|| format!("{} is no conversation", path.display()))?.clone();
        self.tell_messages();
        Ok(())
    }

    /// Sets the system message; an empty text removes it.
    fn system(&mut self, text: &str) {
        if self.messages.first().is_some_and(|message| message["role"] == "system") {
            self.messages.remove(0);
        }
        if !text.is_empty() {
            self.messages.insert(0, json!({ "role": "system", "content": text }));
        }
    }

    fn say(&mut self, text: &str) -> Result<()> {
        self.messages.push(json!({ "role": "user", "content": text }));
        let answered = self.answer();
        if answered.is_err() {
            self.messages.pop();
        }
        answered
    }

    /// Generates the answer to the messages so far, shows it and adds it to them.
    fn answer(&mut self) -> Result<()> {
        let own = self.deployment.text()?;
        let template = own.chat()?;
        let prompt = template.render(&Value::Array(self.messages.clone()), &self.rendering)?;
        let thoughts = sampling::thoughts(own, template, &prompt);
        let prompt = own.tokenizer.encode_prompt(&prompt, false)?;
        let context = self.deployment.program().context as usize;
        if prompt.len() >= context {
            bail!(
                "the conversation has {} tokens and the context is {context}: /drop forgets the oldest message, /undo the last \
                 one, /clear all",
                prompt.len()
            );
        }
        let checked = sampling::checked_with(&self.sampling, self.seed(), self.deployment, thoughts)?;
        let submitted = submit(&mut self.engine, Request::new(prompt, checked))?;
        let mut screen = screen();
        let mut show = |text: &str| match &mut screen {
            Some(screen) => print(&screen.push(text)),
            None => print(text),
        };
        // What is typed meanwhile is the next line's, and is shown there.
        let silent = Silent::new();
        let streamed = stream(&mut self.engine, own, submitted, &mut show);
        drop(silent);
        // After an error too: the terminal's style is reset.
        print(&(screen.map(|mut screen| screen.finish()).unwrap_or_default() + "\n"))?;
        let streamed = streamed?;
        if !self.quiet {
            streamed.report();
            tell!();
        }
        interrupt::reset();
        self.messages.push(json!({ "role": "assistant", "content": streamed.texts[0] }));
        Ok(())
    }

    /// Writes the messages, the fingerprint, and the sampling and seed of the next answer. Earlier answers may have had another seed.
    fn save(&self, path: &Path) -> Result<()> {
        let saved = json!({
            "fingerprint": self.deployment.fingerprint(), "seed": fields::Seed::from(self.seed()),
            "sampling": sampling::effective(&self.sampling, self.deployment)?.to_string(), "messages": self.messages,
        });
        Promised::new(path)?.keep(&format!("{saved:#}\n"))?;
        tell!("saved to {}\n", path.display());
        Ok(())
    }
}
