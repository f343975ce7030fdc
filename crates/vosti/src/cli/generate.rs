//! `vosti generate`: continues a text.

use super::arguments::Generate;
use super::open::{self, text_or_stdin};
use super::output::print;
use super::stream::{Streamed, stream, submit};
use super::{Outcome, sampling};
use crate::deployment::DeployOptions;
use crate::pool::Demand;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use vosti_engine::{FinishReason, Request};
use vosti_model::{ChatOptions, Date, Text};

pub fn run(arguments: &Generate) -> Result<Outcome> {
    let text = text_or_stdin(&arguments.prompt)?;
    let flags = &arguments.engine;
    // At least: the prompt is not tokenized yet.
    let least = Demand { tokens: arguments.sampling.max_tokens, sequences: arguments.choices as usize };
    let pool = open::asked(flags, least);
    let options = DeployOptions { pool, ..open::options(&flags.hardware) };
    let deployment = open::load(&flags.model, &options)?;
    let own = deployment.text()?;
    let prompt = tokens(own, &text, arguments)?;
    if prompt.is_empty() {
        anyhow::bail!("the prompt is empty: give some text");
    }
    let seed = sampling::seed(&arguments.sampling);
    let mut request = Request::new(prompt, sampling::checked(&arguments.sampling, seed, &deployment)?);
    request.choices = arguments.choices;

    let tokens = request.prompt.len().saturating_add(arguments.sampling.max_tokens);
    let demand = Demand { tokens, sequences: arguments.choices as usize };
    let mut engine = open::engine(&deployment, flags, demand)?;
    let submitted = submit(&mut engine, request, &arguments.sampling.stop)?;
    // The engine has accepted the request.
    open::banner(&deployment, &engine);
    eprintln!("sampling     {}\nseed         {seed}\n", sampling::effective(&arguments.sampling, own));
    let submitted = if arguments.json { submitted.unseen() } else { submitted };
    if !arguments.chat && arguments.choices == 1 && !arguments.json {
        print(&text)?;
    }
    let streamed = stream(&mut engine, own, submitted, &mut print)?;
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
    eprintln!();
    streamed.report();
    Ok(if streamed.interrupted { Outcome::Interrupted } else { Outcome::Done })
}

/// The answers, with the fingerprint and the seed that reproduce them.
fn described(streamed: &Streamed, fingerprint: &str, seed: u64) -> Value {
    let choice = |choice: usize| {
        let reason = streamed.reasons[choice].map(FinishReason::as_api);
        json!({ "text": streamed.texts[choice], "tokens": streamed.tokens[choice], "finish_reason": reason })
    };
    let choices: Vec<Value> = (0..streamed.texts.len()).map(choice).collect();
    json!({ "fingerprint": fingerprint, "seed": seed, "prompt_tokens": streamed.prompt_tokens, "choices": choices })
}

fn tokens(own: &Text, text: &str, arguments: &Generate) -> Result<Vec<u32>> {
    if !arguments.chat {
        return Ok(own.tokenizer.encode(text, true)?);
    }
    let messages = serde_json::json!([{ "role": "user", "content": text }]);
    let template = own.chat().context("--chat needs a chat model")?;
    let options = ChatOptions { date: arguments.date.unwrap_or(Date::DEFAULT), ..ChatOptions::default() };
    Ok(own.tokenizer.encode_prompt(&template.render(&messages, &options)?, false)?)
}
