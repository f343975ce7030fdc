//! `vosti replay`: answers a receipt's request again, alone or under load, and compares every logits row's digest.

use super::arguments::Replay;
use super::output::verdict;
use super::{Outcome, interrupt, open, sampling};
use anyhow::{Context, Result, bail, ensure};
use std::io::Read;
use std::path::Path;
use vosti::check::{Facts, prompts};
use vosti::deployment::{Deployment, Room};
use vosti::device::AnyDevice;
use vosti_core::PAGE;
use vosti_engine::{Engine, Event, Policy, Request, RequestId, Token};
use vosti_model::Tokenizer;
use vosti_server::grammar::Grammars;
use vosti_server::receipt::{Chain, Divergence, Receipt};

pub fn run(arguments: &Replay) -> Result<Outcome> {
    let receipt = read(&arguments.receipt)?;
    let model = arguments.model.as_ref().unwrap_or(&receipt.model);
    let options = open::options(&arguments.hardware, false);
    let deployment = open::load(model, &options).context("the receipt's model; --model names another file of it")?;
    ensure!(
        deployment.fingerprint() == receipt.fingerprint,
        "the receipt is of deployment {}, this is {}: only one with the same program, kernels, model files and numerics \
         promises the same bits; use the version, the model and the --context that the receipt was made with",
        receipt.fingerprint,
        deployment.fingerprint()
    );
    eprintln!("model        {}", deployment.describe());
    eprintln!("device       {}", deployment.device_name());
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

/// The receipt itself, or an answer that holds one: what a client saved, as it is.
fn read(path: &Path) -> Result<Receipt> {
    let shown = path.display();
    let mut text = String::new();
    if path == Path::new("-") {
        let read = interrupt::ends_at_once(|| std::io::stdin().read_to_string(&mut text));
        read.context("standard input is not UTF-8 text: pass a receipt")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("{shown}"))?;
    }
    let mut json: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{shown} is no receipt: it is not JSON"))?;
    let inside = json.pointer_mut("/choices/0/vosti_receipt").map(serde_json::Value::take);
    let receipt = inside.unwrap_or(json);
    let receipt: Receipt = serde_json::from_value(receipt).with_context(|| format!("{shown} is no receipt"))?;
    receipt.check().with_context(|| format!("{shown} is no sound receipt"))?;
    Ok(receipt)
}

/// Tokens and chain of the receipt's choice, made again, and how many others ran with it.
fn answer(deployment: &Deployment, receipt: &Receipt, under_load: bool) -> Result<(Vec<Token>, Chain, usize)> {
    let request = request(deployment, receipt)?;
    let facts = deployment.facts();
    if request.prompt.len() >= facts.context {
        bail!("the receipt's prompt has {} tokens, the model's context is {}", request.prompt.len(), facts.context);
    }
    let others = if under_load { company(&facts, &request) } else { Vec::new() };
    let mut engine = engine(deployment, &request, &others)?;
    let mut watched = Watched { choice: receipt.choice, tokens: Vec::new(), chain: Chain::new(&request.prompt) };

    // Half of the others are at work already when the request comes, and half come while it runs.
    let (before, mut after) = (others.len() / 2, others);
    let mut beside = 0;
    for other in after.drain(..before) {
        engine.submit(other)?;
    }
    engine.step(&mut |_| {})?;
    let id = engine.submit(request)?;
    while !watched.done(&engine, id) {
        if interrupt::interrupted() {
            bail!("interrupted");
        }
        if let Some(other) = after.pop() {
            engine.submit(other)?;
        }
        let step = engine.step(&mut |event| watched.note(id, event))?;
        beside = beside.max(step.sequences.saturating_sub(1));
    }
    Ok((watched.tokens, watched.chain, if under_load { beside } else { 0 }))
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
    // Choices are numbered; those before this one come with it.
    request.choices = receipt.choice.checked_add(1).filter(|n| *n <= 1024).context("choice is out of range")?;
    Ok(request)
}

/// Other requests: of many lengths, greedy and sampled, some beginning as the receipt's prompt does.
fn company(facts: &Facts, request: &Request) -> Vec<Request> {
    let lengths = [9usize, 200, 33, 64, 130, 17, 90, 300, 50, 71, 128, 12];
    let fitting: Vec<usize> = lengths.into_iter().filter(|len| len + 40 < facts.context).collect();
    let mut others = prompts::workload(facts, 1, &fitting, 32);
    for (i, other) in others.iter_mut().enumerate().filter(|(i, _)| i % 3 == 0) {
        let shared = request.prompt.len() * (i % 4 + 1) / 4;
        other.prompt = [&request.prompt[..shared], other.prompt.as_slice()].concat();
        other.prompt.truncate(facts.context - 40);
    }
    others
}

/// An engine with room for all of it; prompts of a crowd come in small chunks.
fn engine(deployment: &Deployment, request: &Request, others: &[Request]) -> Result<Engine<AnyDevice>> {
    let context = deployment.program().context as usize;
    let longest = |r: &Request| r.prompt.len().saturating_add(r.sampling.tokens_max).min(context) + PAGE;
    let tokens: usize = others.iter().map(longest).sum::<usize>() + longest(request) * request.choices as usize;
    let policy = match others {
        [] => Policy::default(),
        _ => Policy { rows_step_max: 96, rows_sequence_max: 40, ..Policy::default() },
    };
    let room = Room { pages: Some(tokens.div_ceil(PAGE)), rows_max: policy.rows_step_max, ..Room::default() };
    Ok(Engine::new(deployment.device(&room)?, deployment.program().clone(), policy)?)
}

/// The receipt's choice as it is made again.
struct Watched {
    choice: u32,
    tokens: Vec<Token>,
    chain: Chain,
}

impl Watched {
    fn note(&mut self, id: RequestId, event: Event<'_>) {
        if let Event::Token { request, choice, token, logits: Some(logits), .. } = event
            && (request, choice) == (id, self.choice)
        {
            self.tokens.push(token);
            self.chain.push(token, logits);
        }
    }

    /// Nothing of the request is left in the engine.
    fn done(&self, engine: &Engine<AnyDevice>, id: RequestId) -> bool {
        engine.core_requests().iter().all(|(request, choice, _)| (*request, *choice) != (id, self.choice))
    }
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
        Divergence::Digest => "every link agrees, the whole digest does not: the receipt was changed".into(),
    }
}
