//! `vosti chat`: a conversation on the terminal. Every turn's prompt is the whole conversation; its beginning comes
//! from the prefix cache, with the same bits as if it were computed.

use super::arguments::Chat;
use super::open;
use super::output::print;
use super::stream::{stream, submit};
use super::{Outcome, interrupt, sampling};
use anyhow::Result;
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal};
use vosti_engine::Request;
use vosti_model::{ChatOptions, Date};

pub fn run(arguments: &Chat) -> Result<Outcome> {
    let flags = &arguments.engine;
    let deployment = open::load(&flags.model, &open::options(&flags.hardware, false))?;
    let own = deployment.text()?;
    let template = own.chat()?; // a base model says so before anything is computed
    let context = deployment.program().context as usize;
    let seed = sampling::seed(&arguments.sampling);
    let sampling = sampling::checked(&arguments.sampling, seed, &deployment)?;
    let mut engine = open::engine_for_any(&deployment, flags, 1)?;
    open::banner(&deployment, &engine);
    eprintln!(
        "sampling     {}\nseed         {seed}\n\nWrite a message and press Enter. Ctrl-C ends an answer, Ctrl-C at the prompt or Ctrl-D the conversation.\n",
        sampling::effective(&arguments.sampling, own)
    );

    let rendering = ChatOptions { date: arguments.date.unwrap_or(Date::DEFAULT), ..ChatOptions::default() };
    let mut messages: Vec<Value> = Vec::new();
    messages.extend(arguments.system.iter().map(|text| json!({ "role": "system", "content": text })));
    while let Some(line) = read_line()? {
        if line.trim().is_empty() {
            continue;
        }
        messages.push(json!({ "role": "user", "content": line.trim() }));
        let text = template.render(&Value::Array(messages.clone()), &rendering)?;
        let prompt = own.tokenizer.encode(&text, false)?;
        if prompt.len() >= context {
            eprintln!("the conversation has {} tokens and the context is {context}: start a new one", prompt.len());
            break;
        }
        let submitted = submit(&mut engine, Request::new(prompt, sampling.clone()), &arguments.sampling.stop)?;
        let streamed = stream(&mut engine, own, submitted)?;
        print("\n")?;
        streamed.report();
        eprintln!();
        interrupt::reset();
        messages.push(json!({ "role": "assistant", "content": streamed.texts[0] }));
    }
    Ok(Outcome::Done)
}

/// The next line, None at the end of input. Ctrl-C ends the process.
fn read_line() -> Result<Option<String>> {
    if std::io::stdin().is_terminal() {
        print("> ")?;
    }
    let mut line = String::new();
    let read = interrupt::ends_at_once(|| std::io::stdin().lock().read_line(&mut line));
    Ok((read? > 0).then_some(line))
}
