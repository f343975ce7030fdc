//! Measures prefill and decode in tokens per second, through the engine, as a request runs.
//!
//! Each case runs in a fresh engine without the prefix cache. The first `depth` tokens are computed before and not timed.
//! Decode counts the tokens of all sequences of the batch.

pub mod agentic;
mod bound;

pub use bound::Work;

use crate::deployment::{DeployError, Deployment, DeviceConfig};
use crate::device::{self, AnyDevice};
use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};
use vosti_check::prompts;
use vosti_core::PAGE;
use vosti_cpu::Ceilings;
use vosti_engine::progress::Progress;
use vosti_engine::{Engine, EngineError, Event, Policy, Request, Sampling, SamplingError, SamplingParams, StepReport};

/// One measurement: a prefill, or a decode of a batch.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
#[expect(missing_docs, reason = "lengths and depths in tokens, the batch in sequences")]
pub enum Case {
    Prefill { tokens: usize, depth: usize },
    Decode { tokens: usize, batch: usize, depth: usize },
}

/// How tokens are chosen while decoding is measured.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Draw {
    /// 0 is greedy.
    pub temperature: f32,
    /// 0 keeps all.
    pub top_k: u32,
}

impl Draw {
    fn sampling(self, tokens_max: usize) -> Result<Sampling, SamplingError> {
        let Draw { temperature, top_k } = self;
        Sampling::new(SamplingParams { temperature, top_k, tokens_max, seed: 1, ..SamplingParams::default() })
    }
}

/// One case's rates.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What ran.
    #[serde(flatten)]
    pub case: Case,
    /// Median over the repetitions.
    pub tokens_per_s: f64,
    /// Every repetition.
    pub all: Vec<f64>,
    /// Floating-point operations that each token takes at least ([`Work`]).
    pub flops_per_token: f64,
    /// Bytes that each token reads at least: its share of the matrices, and the keys and values that it attends to.
    pub bytes_per_token: f64,
    /// The rate at the machine's ceilings; none where they were not measured.
    pub bound_tokens_per_s: Option<f64>,
    /// Time of each kernel in the last repetition. On a GPU: in one more repetition, which does not count, and only if
    /// [`BenchOptions::kernels`] is set.
    pub kernels: Vec<KernelTime>,
}

/// One specialisation's part of a case's time.
#[derive(Clone, Debug, Serialize)]
pub struct KernelTime {
    /// The specialisation; `engine` is everything outside the device's launches.
    pub name: String,
    /// Seconds, summed over its launches.
    pub seconds: f64,
}

/// Every case's rates, with the machine's ceilings.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Bandwidth of memory, measured before and after the cases: the better of the two.
    pub read_bytes_per_s: f64,
    /// True if the bandwidth was measured by reading alone; else by copies, which read and write each byte.
    pub read_alone: bool,
    /// BF16 dots, measured as the bandwidth is. None on a GPU: `bench/gpu/torch_peer.py` measures its matrix ceiling.
    pub dot_flops_per_s: Option<f64>,
    /// Bytes of the weights in memory.
    pub weight_bytes: u64,
    /// Bytes of those weights that a GPU made itself, at random, instead of an upload.
    pub made_bytes: u64,
    /// The processor's or the GPU's name.
    pub device: String,
    /// The model, as it was asked for.
    pub model: String,
    /// The deployment's fingerprint.
    pub fingerprint: String,
    /// How the tokens of decoding were chosen.
    pub draw: Draw,
    /// True if it was ended early: cases have fewer repetitions, and cases that were not measured are missing.
    pub interrupted: bool,
    /// In the order in which they ran.
    pub cases: Vec<Measured>,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum BenchError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Deploy(#[from] DeployError),
    #[error("a case needs {needed} tokens and the model's context is {context}: ask for fewer tokens or less depth")]
    TooDeep { needed: usize, context: usize },
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    #[error("threads or memory: {0}")]
    System(#[from] std::io::Error),
    #[error("interrupted")]
    Interrupted,
}

impl Case {
    fn needs(self) -> usize {
        match self {
            Case::Prefill { tokens, depth } => tokens + depth + 1,
            Case::Decode { tokens, depth, batch } => {
                // The default has the fewest rows a step of all devices, so it takes the most steps.
                tokens + depth + 3 + batch * (1 + depth / Policy::default().rows_step_max)
            }
        }
    }

    fn batch(self) -> usize {
        match self {
            Case::Prefill { .. } => 1,
            Case::Decode { batch, .. } => batch.max(1),
        }
    }
}

/// How cases are measured.
#[derive(Clone, Copy, Debug)]
pub struct BenchOptions {
    /// How the tokens of decoding are chosen.
    pub draw: Draw,
    /// Repetitions of each case.
    pub repeat: usize,
    /// On a GPU, measure each case once more with every launch timed.
    pub kernels: bool,
}

/// Measures the machine's ceilings, and every case `repeat` times, in turn, so that drift of the machine affects all cases alike.
/// If the work is ended early, the report has the measurements so far; it is an error if there are none.
pub fn run(
    deployment: &Deployment,
    cases: &[Case],
    options: BenchOptions,
    progress: &dyn Progress,
) -> Result<BenchReport, BenchError> {
    let BenchOptions { draw, repeat, kernels: timed } = options;
    draw.sampling(1)?;
    let context = deployment.program().context as usize;
    if let Some(needed) = cases.iter().map(|case| case.needs()).find(|needed| *needed > context) {
        return Err(BenchError::TooDeep { needed, context });
    }
    let timed = timed && deployment.gpu().is_some();
    let rounds = repeat + usize::from(timed);
    progress.stage("measuring", (rounds * cases.len()) as u64);
    let before = ceilings(deployment)?;
    let mut rates = vec![Vec::new(); cases.len()];
    let mut kernels = vec![Vec::new(); cases.len()];
    let mut interrupted = false;
    'rounds: for round in 0..rounds {
        for (i, case) in cases.iter().enumerate() {
            let (rate, times) = match measure(deployment, *case, draw, round == repeat, progress) {
                Err(BenchError::Interrupted) => {
                    interrupted = true;
                    break 'rounds;
                }
                measured => measured?,
            };
            if round < repeat {
                rates[i].push(rate);
            }
            kernels[i] = times;
            progress.done((round * cases.len() + i + 1) as u64);
        }
    }
    interrupted |= progress.cancelled();
    if interrupted && rates.iter().all(Vec::is_empty) {
        return Err(BenchError::Interrupted);
    }
    let after = if interrupted { before } else { ceilings(deployment)? };
    let read_alone = before.1;
    let ceilings = Ceilings {
        read_bytes_per_s: before.0.read_bytes_per_s.max(after.0.read_bytes_per_s),
        dot_flops_per_s: before.0.dot_flops_per_s.max(after.0.dot_flops_per_s),
    };
    let measured = cases.iter().zip(rates).zip(kernels).filter(|((_, all), _)| !all.is_empty());
    let measured = measured.map(|((case, all), kernels)| {
        let work = Work::of(deployment.plan(), *case, deployment.element_bytes());
        let (flops_per_token, bytes_per_token) = work.per_token();
        // Matrices limit a prefill: without their ceiling there is no bound.
        let known = ceilings.dot_flops_per_s.is_finite() || matches!(case, Case::Decode { .. });
        let bound_tokens_per_s = known.then(|| work.bound(&ceilings));
        let (case, tokens_per_s) = (*case, median(&all));
        Measured { case, tokens_per_s, all, flops_per_token, bytes_per_token, bound_tokens_per_s, kernels }
    });
    let device = deployment.device(&DeviceConfig::default())?;
    Ok(BenchReport {
        read_bytes_per_s: ceilings.read_bytes_per_s,
        read_alone,
        dot_flops_per_s: Some(ceilings.dot_flops_per_s).filter(|flops| flops.is_finite()),
        weight_bytes: device.bytes().0,
        made_bytes: device.made(),
        device: deployment.device_name(),
        model: deployment.describe(),
        fingerprint: deployment.fingerprint().to_string(),
        draw,
        interrupted,
        cases: measured.collect(),
    })
}

/// The device's ceilings, and whether memory was only read. A GPU's matrices are not measured here, because none of Vosti's
/// kernels is a ceiling for the others.
fn ceilings(deployment: &Deployment) -> Result<(Ceilings, bool), BenchError> {
    match deployment.gpu() {
        None => Ok((vosti_cpu::ceilings(deployment.threads(), deployment.isa())?, true)),
        Some(gpu) => {
            let found = device::bandwidth(gpu).map_err(DeployError::from)?;
            let ceilings = Ceilings { read_bytes_per_s: found.bytes_per_s, dot_flops_per_s: f64::INFINITY };
            Ok((ceilings, found.read))
        }
    }
}

/// Tokens per second, and where the time went.
fn measure(
    deployment: &Deployment,
    case: Case,
    draw: Draw,
    timed: bool,
    progress: &dyn Progress,
) -> Result<(f64, Vec<KernelTime>), BenchError> {
    let pages = case.needs().div_ceil(PAGE) * case.batch();
    let policy = Policy { prefix_cache: false, ..deployment.policy() };
    let (rows_max, together) = (policy.rows_step_max, case.batch());
    let config = DeviceConfig { pages: Some(pages), together, rows_max, ..DeviceConfig::default() };
    let mut device = deployment.device(&config)?;
    if timed {
        device.time_launches();
    }
    let mut engine = Engine::new(device, deployment.program().clone(), policy)?;
    match case {
        Case::Prefill { tokens, depth } => prefill(deployment, &mut engine, tokens, depth, progress),
        Case::Decode { tokens, batch, depth } => {
            // The first sequences generate tokens while the last ones are prefilled: up to so many.
            let early = batch.max(1) * (1 + depth / policy.rows_step_max);
            let sampling = draw.sampling(tokens + 2 + early)?;
            decode(deployment, &mut engine, (tokens, batch.max(1), depth), &sampling, progress)
        }
    }
}

/// One step, or an error if the work is to end: a case may take a minute.
fn step(
    engine: &mut Engine<AnyDevice>,
    progress: &dyn Progress,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<StepReport, BenchError> {
    match progress.cancelled() {
        true => Err(BenchError::Interrupted),
        false => Ok(engine.step(on_event)?),
    }
}

/// Steps until nothing is left to do.
fn finish(engine: &mut Engine<AnyDevice>, progress: &dyn Progress) -> Result<(), BenchError> {
    while !engine.is_idle() {
        step(engine, progress, &mut |_| {})?;
    }
    Ok(())
}

fn request(deployment: &Deployment, label: &str, len: usize, sampling: Sampling) -> Request {
    let prompt = prompts::prompt(&deployment.facts(), 1, label, len);
    // As in the server: a request without log-probabilities gets no logits.
    Request { token_logits: false, ..Request::new(prompt, sampling) }
}

/// Prefills `tokens` tokens of a prompt after its first `depth`, which are not timed.
fn prefill(
    deployment: &Deployment,
    engine: &mut Engine<AnyDevice>,
    tokens: usize,
    depth: usize,
    progress: &dyn Progress,
) -> Result<(f64, Vec<KernelTime>), BenchError> {
    // A prompt of this length first, so that all memory that it touches is mapped, as in a server.
    engine.submit(request(deployment, "warm", tokens, Sampling::greedy(1)))?;
    finish(engine, progress)?;
    engine.submit(request(deployment, "bench", depth + tokens, Sampling::greedy(1)))?;
    let mut rows = 0;
    let policy = *engine.policy();
    while rows < depth {
        let rows_step_max = (depth - rows).clamp(1, policy.rows_step_max);
        engine.set_policy(Policy { rows_step_max, ..policy })?;
        rows += step(engine, progress, &mut |_| {})?.rows;
    }
    engine.set_policy(policy)?;
    engine.device().take_times();
    let start = Instant::now();
    finish(engine, progress)?;
    Ok(measured(tokens, start.elapsed(), engine))
}

/// Decodes `tokens` steps of `batch` sequences after prompts of `depth` tokens (at least one).
fn decode(
    deployment: &Deployment,
    engine: &mut Engine<AnyDevice>,
    (tokens, batch, depth): (usize, usize, usize),
    sampling: &Sampling,
    progress: &dyn Progress,
) -> Result<(f64, Vec<KernelTime>), BenchError> {
    for i in 0..batch {
        engine.submit(request(deployment, &format!("bench {i}"), depth.max(1), sampling.clone()))?;
    }
    let mut begun = 0;
    while begun < batch {
        step(engine, progress, &mut |event| {
            if let Event::Token { index: 0, .. } = event {
                begun += 1;
            }
        })?;
    }
    // Not timed: on a GPU the first step in which all sequences decode is recorded, once for many steps.
    step(engine, progress, &mut |_| {})?;
    let mut given = 0;
    engine.device().take_times();
    let start = Instant::now();
    for _ in 0..tokens {
        given += step(engine, progress, &mut |_| {})?.tokens;
    }
    Ok(measured(given, start.elapsed(), engine))
}

fn measured(tokens: usize, time: Duration, engine: &Engine<AnyDevice>) -> (f64, Vec<KernelTime>) {
    let time = time.as_secs_f64();
    let named = |(name, seconds)| KernelTime { name, seconds };
    let mut kernels: Vec<KernelTime> = engine.device().take_times().into_iter().map(named).collect();
    kernels.retain(|kernel| kernel.seconds > 0.0);
    if kernels.is_empty() {
        return (tokens as f64 / time.max(1e-9), kernels);
    }
    let launches: f64 = kernels.iter().map(|kernel| kernel.seconds).sum();
    kernels.push(KernelTime { name: "engine".into(), seconds: (time - launches).max(0.0) });
    kernels.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    (tokens as f64 / time.max(1e-9), kernels)
}

fn median(all: &[f64]) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, tokens, depth) = match self.case {
            Case::Prefill { tokens, depth } => ("prefill", tokens, depth),
            Case::Decode { tokens, depth, .. } => ("decode", tokens, depth),
        };
        let max = self.all.iter().copied().fold(f64::MIN, f64::max);
        let min = self.all.iter().copied().fold(f64::MAX, f64::min);
        let spread = 100.0 * (max - min) / self.tokens_per_s;
        let batch = self.case.batch();
        write!(f, "{what:<10} {tokens:>6} {batch:>6} {depth:>6} {:>12.1} {spread:>9.1}%", self.tokens_per_s)?;
        match self.bound_tokens_per_s {
            Some(bound) => write!(f, " {:>9.0}%", 100.0 * self.tokens_per_s / bound),
            None => write!(f, " {:>10}", "-"),
        }
    }
}
