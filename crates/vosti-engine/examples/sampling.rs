//! The cost of one sampled token, by vocabulary and parameters.
//!
//! `cargo run --release -p vosti-engine --example sampling` prints microseconds per token.

use std::time::Instant;
use vosti_core::Sampler;
use vosti_engine::sampler::{SamplerState, TokenSampler};
use vosti_engine::{Sampling, SamplingParams, logprobs};

fn main() {
    let warm = || SamplingParams { temperature: 0.8, ..SamplingParams::default() };
    let kinds = [
        ("greedy", SamplingParams::default()),
        ("temperature", warm()),
        ("top_k 40", SamplingParams { top_k: 40, ..warm() }),
        ("top_p 0.95", SamplingParams { top_p: 0.95, ..warm() }),
        ("min_p 0.05", SamplingParams { min_p: 0.05, ..warm() }),
        ("penalties", SamplingParams { repetition_penalty: 1.1, ..SamplingParams::default() }),
    ];
    for vocab in [49_152u32, 262_144] {
        // Gumbel-like tails: a few likely tokens and a long rest, as models give.
        let logit = |i: u32| -> f32 {
            let u = vosti_engine::random::uniform(1, 0, u64::from(i));
            (-libm::log(-libm::log(u.max(1e-12))) * 2.0) as f32
        };
        let row: Vec<f32> = (0..vocab).map(logit).collect();
        for (name, params) in &kinds {
            let sampler = TokenSampler::new(vocab);
            let sampling = Sampling::new(params.clone()).expect("in range");
            let mut state = SamplerState::new(&sampling, &[1, 2, 3], 0);
            let start = Instant::now();
            let draws = 200;
            for _ in 0..draws {
                std::hint::black_box(sampler.sample(&mut state, std::hint::black_box(&row)));
            }
            let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(draws);
            println!("vocabulary {vocab:6}  {name:12} {each:8.1} us");
        }
        let start = Instant::now();
        (0..100).for_each(|t| drop(std::hint::black_box(logprobs::logprobs(&row, t, 5))));
        println!("vocabulary {vocab:6}  logprobs 5   {:8.1} us", start.elapsed().as_secs_f64() * 1e4);
    }
}
