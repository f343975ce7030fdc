//! Makes a scenario from a seed: a program, a device, a policy, requests.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_check::symbolic;
use vosti_core::{Program, Token};
use vosti_engine::{Drafter, Order, Policy, Request, Sampling, SamplingParams, Speculation};

/// Seeded random numbers.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// From `low` to `high`, both included.
    pub fn range(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.range(0, of.len() - 1)].clone()
    }
}

pub fn program(random: &mut Random) -> Program {
    let windows = [1, 2, 5, 40, 63, 64, 65, 100, 130];
    let groups = random.range(1, 3);
    let window = |random: &mut Random| match random.range(0, 1) {
        0 => None,
        _ => Some(random.pick(&windows)),
    };
    let windows: Vec<Option<u32>> = (0..groups).map(|_| window(random)).collect();
    let mut layers: Vec<u32> = (0..groups as u32).collect();
    layers.extend((0..random.range(0, 1)).map(|_| random.range(0, groups - 1) as u32));
    let context = random.pick(&[70, 128, 257, 400, 400]);
    symbolic::program(&windows, &layers, random.range(4, 30) as u32, context)
}

/// Pages of each group's pool.
pub fn pages(random: &mut Random, program: &Program) -> Vec<usize> {
    let most = random.pick(&[6, 9, 9, 24]);
    program.groups.iter().map(|_| random.range(2, most)).collect()
}

pub fn policy(random: &mut Random) -> Policy {
    let ngram = Speculation::Ngram {
        ngram_min: random.range(1, 2),
        ngram_max: random.range(2, 4),
        drafts_max: random.range(1, 8),
    };
    let order = [Order::Turn, Order::Lifo, Order::Random(random.next())];
    Policy {
        rows_step_max: random.pick(&[1, 2, 7, 16, 33, 64, 100, 1000]),
        rows_mixed_max: random.pick(&[1, 5, 40, usize::MAX, usize::MAX]),
        rows_sequence_max: random.pick(&[1, 3, 17, 64, 65, usize::MAX, usize::MAX, usize::MAX]),
        running_max: random.pick(&[1, 2, 3, 5, 8, 100]),
        order: random.pick(&order),
        prefix_cache: !random.one_in(6),
        eviction: !random.one_in(6),
        speculation: random.pick(&[Speculation::Off, ngram, ngram]),
        decode_first: !random.one_in(3),
        waiting_max: usize::MAX,
    }
}

/// Few distinct beginnings, so that prefixes are shared.
fn prompt(random: &mut Random, vocab: u32, longest: usize) -> Vec<Token> {
    let len = match random.range(0, 3) {
        0 => random.range(1, longest.min(20)),
        1 => random.pick(&[63, 64, 65, 127, 128, 129, 191, 192]).min(longest),
        _ => random.range(1, longest.min(220)),
    };
    let shared = random.pick(&[0, len / 2, len, len, len]);
    let family = random.next() % 2;
    let mut same = Random::new(family);
    let mut tokens: Vec<Token> = (0..shared).map(|_| (same.next() % u64::from(vocab)) as Token).collect();
    tokens.extend((shared..len).map(|_| (random.next() % u64::from(vocab)) as Token));
    tokens
}

fn sampling(random: &mut Random, vocab: u32) -> Sampling {
    let token = |random: &mut Random| (random.next() % u64::from(vocab)) as Token;
    // A temperature alone: the device draws.
    let bare = random.one_in(4);
    let params = SamplingParams {
        temperature: random.pick(&[0.0, 0.0, 0.7, 1.5]),
        top_k: random.pick(&[0, 0, 3]),
        top_p: random.pick(&[1.0, 0.9]),
        min_p: random.pick(&[0.0, 0.05]),
        typical_p: random.pick(&[1.0, 1.0, 0.8]),
        repetition_penalty: random.pick(&[1.0, 1.0, 1.2]),
        presence_penalty: random.pick(&[0.0, 0.0, 0.5]),
        frequency_penalty: random.pick(&[0.0, 0.0, 0.3]),
        logit_bias: if random.one_in(4) { vec![(token(random), 2.0)] } else { Vec::new() },
        stop_tokens: if random.one_in(3) { vec![token(random)] } else { Vec::new() },
        tokens_max: random.pick(&[1, 5, 20, 50, 90, usize::MAX]),
        seed: random.next(),
        ..SamplingParams::default()
    };
    let SamplingParams { stop_tokens, tokens_max, seed, .. } = params.clone();
    let temperature = params.temperature + 0.4;
    let drawn = SamplingParams { temperature, stop_tokens, tokens_max, seed, ..SamplingParams::default() };
    Sampling::new(if bare { drawn } else { params }).expect("parameters in range")
}

/// A request of any length up to the context, whatever the pool holds.
pub fn request(random: &mut Random, program: &Program) -> Request {
    let vocab = program.vocab;
    let prompt = prompt(random, vocab, program.context as usize - 1);
    Request {
        routed_experts: prompt[0].is_multiple_of(5),
        prompt,
        sampling: sampling(random, vocab),
        choices: random.pick(&[1, 1, 1, 2, 3]),
        token_logits: random.one_in(2),
        prompt_logits: random.one_in(5),
        use_prefix_cache: !random.one_in(8),
        salt: random.pick(&[0, 0, 0, 0, 0, 0, 1]),
        foreseen: Vec::new(),
    }
}

/// Drafts that follow the successor rule of the symbolic logits: right often, wrong often.
pub struct Successors(pub u32);

impl Drafter for Successors {
    fn draft(&mut self, sequence: u64, history: &[Token], drafts_max: usize) -> Vec<Token> {
        let mut last = history[history.len() - 1];
        let count = (sequence as usize + history.len()) % 5;
        let mut next = || {
            last = (last * 5 + 3) % self.0;
            last
        };
        (0..count.min(drafts_max)).map(|_| next()).collect()
    }

    fn forget(&mut self, _: u64) {}
}

/// The same request, shortened until a pool that holds `tokens` of one sequence takes it.
pub fn shortened(mut request: Request, tokens: usize) -> Request {
    request.prompt.truncate(tokens - 1);
    let left = tokens - request.prompt.len();
    let tokens_max = request.sampling.tokens_max.min(left);
    let params = SamplingParams { tokens_max, ..SamplingParams::clone(&request.sampling) };
    request.sampling = Sampling::new(params).expect("fewer tokens are as valid");
    request
}
