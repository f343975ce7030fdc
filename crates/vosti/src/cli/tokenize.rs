//! `vosti tokenize`: one line per token, id and text.

use super::Outcome;
use super::arguments::Tokenize;
use super::open::{self, text_or_stdin};
use super::output::print;
use serde_json::{Value, json};
use std::fmt::Write as _;
use vosti_model::Text;

pub fn run(arguments: &Tokenize) -> anyhow::Result<Outcome> {
    let model = vosti_model::Model::open(&open::find(&arguments.model)?)?.text()?;
    let text = text_or_stdin(&arguments.text)?;
    let tokens = model.tokenizer.encode(&text, !arguments.no_bos)?;
    let mut out = String::new();
    if arguments.json {
        let list: Value = tokens.iter().map(|token| described(&model, *token)).collect();
        writeln!(out, "{list:#}")?;
    } else if arguments.ids {
        let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
        writeln!(out, "{}", ids.join(" "))?;
    } else {
        for token in &tokens {
            let mut bytes = Vec::new();
            model.tokenizer.append_bytes(*token, &mut bytes);
            let shown = match String::from_utf8(bytes) {
                Ok(text) if !text.is_empty() => format!("{text:?}"),
                Ok(_) => model.tokenizer.token_name(*token).unwrap_or_default(),
                Err(error) => format!("bytes {:02x?}", error.into_bytes()),
            };
            writeln!(out, "{token:>7}  {shown}")?;
        }
    }
    print(&out)?;
    Ok(Outcome::Done)
}

/// A token's id, its name in the vocabulary and its bytes, which may be a part of a character.
fn described(model: &Text, token: u32) -> Value {
    let mut bytes = Vec::new();
    model.tokenizer.append_bytes(token, &mut bytes);
    json!({ "id": token, "token": model.tokenizer.token_name(token), "bytes": bytes })
}
