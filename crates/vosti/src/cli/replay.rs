//! `vosti replay`: answers a receipt's request again, alone or under load, and compares every logits row's digest.

use super::arguments::Replay;
use super::bar::{Bar, Unit};
use super::output::verdict;
use super::{Outcome, interrupt, open, sampling};
use crate::deployment::{Deployment, DeploymentSubject};
use anyhow::{Context, Result, bail, ensure};
use std::io::Read;
use std::path::Path;
use vosti_check::{CheckError, Subject, replay};
use vosti_engine::{Request, Token};
use vosti_model::Tokenizer;
use vosti_server::grammar::Grammars;
use vosti_server::receipt::{Chain, Divergence, Receipt};

pub fn run(arguments: &Replay) -> Result<Outcome> {
    let receipt = read(&arguments.receipt)?;
    let model = arguments.model.as_ref().unwrap_or(&receipt.model);
    let options = open::options(&arguments.hardware)?;
    let deployment =
        open::load(model, &options).context("cannot open the receipt's model (--model names another copy of it)")?;
    ensure!(
        deployment.fingerprint() == receipt.fingerprint,
        "the receipt is of deployment {}, this is {}: only one with the same program, kernels, model files and numerics \
         promises the same bits; use the version, the model and the --context that the receipt was made with",
        receipt.fingerprint,
        deployment.fingerprint()
    );
    tell!("model        {}", deployment.describe());
    tell!("device       {}", deployment.device_name());
    let (tokens, chain, company) = answer(&deployment, &receipt, arguments.under_load)?;
    let how = match company {
        0 => "alone".to_string(),
        n => format!("beside up to {n} other requests"),
    };
    match receipt.diverges(&tokens, &chain) {
        None => {
            let all = format!("{} tokens and all their logits", tokens.len());
            verdict(&format!("identical: {all}, {how}; {}\n", chain.finish()), true)
        }
        Some(divergence) => {
            let explained = explain(&deployment.text()?.tokenizer, &divergence);
            verdict(&format!("diverged, {how}: {explained}\n"), false)
        }
    }
}

/// Reads a receipt, or an answer with a receipt in it, as a client saved it.
fn read(path: &Path) -> Result<Receipt> {
    let shown = path.display();
    let mut text = String::new();
    if path == Path::new("-") {
        let read = interrupt::ends_at_once(|| std::io::stdin().read_to_string(&mut text));
        read.context("cannot read a receipt from standard input as UTF-8 text")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("{shown}"))?;
    }
    let mut json: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{shown} is not a receipt: it is not JSON"))?;
    // A completion has it in its choice, a response and a message at its top.
    let places = ["/choices/0/vosti_receipt", "/vosti_receipt"];
    let inside = places.into_iter().find(|place| json.pointer(place).is_some());
    let receipt = inside.and_then(|place| json.pointer_mut(place).map(serde_json::Value::take)).unwrap_or(json);
    let receipt: Receipt = serde_json::from_value(receipt).with_context(|| format!("{shown} is not a receipt"))?;
    receipt.check().with_context(|| format!("{shown} is not a valid receipt"))?;
    Ok(receipt)
}

/// Generates the receipt's choice again: its tokens, its chain, and how many other requests ran beside it.
fn answer(deployment: &Deployment, receipt: &Receipt, under_load: bool) -> Result<(Vec<Token>, Chain, usize)> {
    let request = request(deployment, receipt)?;
    let subject = DeploymentSubject::new(deployment, None);
    let context = subject.facts().context;
    if request.prompt.len() >= context {
        bail!("the receipt's prompt has {} tokens and the model's context is {context}", request.prompt.len());
    }
    let (mut tokens, mut chain) = (Vec::new(), Chain::new(&request.prompt));
    let mut note = |token: Token, logits: &[f32]| {
        tokens.push(token);
        chain.push(token, logits);
    };
    let beside = replay::again(&subject, request, receipt.choice, under_load, &Bar::new(Unit::Count), &mut note);
    let beside = beside.map_err(|error| match error {
        CheckError::Engine(error) => error.into(),
        error => anyhow::Error::from(error),
    })?;
    Ok((tokens, chain, beside))
}

/// The request of a receipt.
fn request(deployment: &Deployment, receipt: &Receipt) -> Result<Request> {
    let text = deployment.text()?;
    let parameters = &receipt.parameters;
    let constraint = match &parameters.grammar {
        Some(grammar) => Some(Grammars::new(&text.tokenizer, deployment.program().vocab)?.compile(grammar)?),
        None => None,
    };
    let sampling = parameters.sampling(receipt.seed, sampling::text(text), constraint)?;
    let mut request = Request::new(receipt.prompt.clone(), sampling);
    // Choices are numbered from 0, and the ones before this one run too.
    request.choices = receipt
        .choice
        .checked_add(1)
        .filter(|n| *n <= 1024)
        .context("the receipt's choice is out of range: it must be from 0 to 1023")?;
    Ok(request)
}

/// One line about the first difference.
fn explain(tokenizer: &Tokenizer, divergence: &Divergence) -> String {
    let shown = |token: Token| format!("{token} {:?}", tokenizer.decode(&[token]));
    match divergence {
        Divergence::Token { index, receipt, replay } => {
            format!("at token {index} the receipt has {}, this run {}", shown(*receipt), shown(*replay))
        }
        Divergence::Logits { index, token } => {
            format!("at token {index}, {}, the logits have other bits (the token is the same)", shown(*token))
        }
        Divergence::Length { receipt, replay } => {
            format!("at token {}: the receipt has {receipt} tokens, this run {replay}", receipt.min(replay))
        }
        Divergence::Digest => "all links agree and the digest of the whole does not: the receipt was changed".into(),
    }
}
