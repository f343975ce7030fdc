//! `vosti generate`: the answer to one message, or the continuation of one text.

use super::arguments::Generate;
use super::open::{self, text_and_stdin};
use super::output::print;
use super::screen::screen;
use super::stream::{Streamed, stream, submit};
use super::{Outcome, sampling};
use crate::deployment::DeployOptions;
use crate::pool::Demand;
use anyhow::Result;
use serde_json::{Value, json};
use vosti_core::PAGE;
use vosti_engine::text::Thoughts;
use vosti_engine::{FinishReason, Request};
use vosti_model::{ChatOptions, ChatTemplate, Date, Text};
use vosti_server::api::fields;

pub fn run(arguments: &Generate) -> Result<Outcome> {
    let text = text_and_stdin(&arguments.prompt)?;
    let flags = &arguments.engine;
    // At least: the prompt is not tokenized yet.
    let most = arguments.sampling.max_tokens.unwrap_or(usize::MAX);
    let least = Demand { tokens: most, sequences: arguments.choices as usize };
    let pool = open::asked(flags, least);
    let options = DeployOptions { pool, ..open::options(&flags.hardware)? };
    let deployment = open::load_with_text(&flags.model, &options)?;
    let own = deployment.text()?;
    let chat = own.chat().ok().filter(|_| !arguments.raw);
    let (prompt, thoughts) = match chat {
        Some(template) => message(own, template, &text, arguments.date)?,
        None => (own.tokenizer.encode(&text, true)?, None),
    };
    if prompt.is_empty() || (chat.is_some() && text.trim().is_empty()) {
        anyhow::bail!("the prompt is empty: give some text");
    }
    let seed = sampling::seed(&arguments.sampling);
    let mut request = Request::new(prompt, sampling::checked_with(&arguments.sampling, seed, &deployment, thoughts)?);
    request.choices = arguments.choices;

    let tokens = request.prompt.len().saturating_add(most);
    let demand = Demand { tokens, sequences: arguments.choices as usize };
    // After the prompt a step has a row of each choice, or a few more with drafts.
    let rows = request.prompt.len().max(PAGE);
    let mut engine = open::engine(&deployment, flags, demand, rows)?;
    let submitted = submit(&mut engine, request)?;
    // The engine has accepted the request.
    if !arguments.quiet {
        open::banner(&deployment, &engine);
        tell!("sampling     {}\nseed         {seed}\n", sampling::effective(&arguments.sampling, &deployment)?);
    }
    let submitted = if arguments.json { submitted.unseen() } else { submitted };
    let alone = arguments.choices == 1 && !arguments.json;
    if chat.is_none() && alone && !arguments.quiet {
        print(&text)?;
    }
    // A text that is continued is shown as it is.
    let mut screen = chat.filter(|_| alone).and_then(|_| screen());
    let mut show = |text: &str| match &mut screen {
        Some(screen) => print(&screen.push(text)),
        None => print(text),
    };
    let streamed = stream(&mut engine, own, submitted, &mut show);
    print(&screen.map(|mut screen| screen.finish()).unwrap_or_default())?;
    let streamed = streamed?;
    if arguments.json {
        let fingerprint = deployment.fingerprint();
        print(&format!("{:#}\n", described(&streamed, fingerprint, seed)))?;
    } else if arguments.choices > 1 {
        for (i, answer) in streamed.texts.iter().enumerate() {
            print(&format!("--- choice {i}\n{answer}\n"))?;
        }
    }
    if !arguments.json {
        print("\n")?;
    }
    if !arguments.quiet {
        tell!();
        streamed.report();
    }
    Ok(if streamed.interrupted { Outcome::Interrupted } else { Outcome::Done })
}

/// The answers, with the fingerprint and the seed that reproduce them.
fn described(streamed: &Streamed, fingerprint: &str, seed: u64) -> Value {
    let choice = |choice: usize| {
        let reason = streamed.reasons[choice].map(FinishReason::as_api);
        json!({ "text": streamed.texts[choice], "tokens": streamed.tokens[choice], "finish_reason": reason })
    };
    let choices: Vec<Value> = (0..streamed.texts.len()).map(choice).collect();
    json!({ "fingerprint": fingerprint, "seed": fields::Seed::from(seed), "prompt_tokens": streamed.prompt_tokens, "choices": choices })
}

/// The tokens of a user's message, and where the answer's thoughts are.
fn message(
    own: &Text,
    template: &ChatTemplate,
    text: &str,
    date: Option<Date>,
) -> Result<(Vec<u32>, Option<Thoughts>)> {
    let messages = json!([{ "role": "user", "content": text }]);
    let options = ChatOptions { date: date.unwrap_or(Date::DEFAULT), ..ChatOptions::default() };
    let prompt = template.render(&messages, &options)?;
    Ok((own.tokenizer.encode_prompt(&prompt, false)?, sampling::thoughts(own, template, &prompt)))
}
