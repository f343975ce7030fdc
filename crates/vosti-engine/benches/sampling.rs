//! The cost of one sampled token, by vocabulary and parameters.
//!
//! `cargo bench -p vosti-engine --bench sampling` prints the time of a draw from one row of logits.

use divan::{Bencher, black_box};
use vosti_core::Sampler;
use vosti_engine::sampler::{SamplerState, TokenSampler};
use vosti_engine::{Sampling, SamplingParams, logprobs};

fn main() {
    divan::main();
}

const VOCABULARIES: [u32; 2] = [49_152, 262_144];

/// Logits like a model's: a few likely tokens and a long tail.
fn row(vocab: u32) -> Vec<f32> {
    let logit = |i: u32| {
        let u = vosti_engine::random::uniform(1, 0, u64::from(i));
        (-libm::log(-libm::log(u.max(1e-12))) * 2.0) as f32
    };
    (0..vocab).map(logit).collect()
}

fn warm() -> SamplingParams {
    SamplingParams { temperature: 0.8, ..SamplingParams::default() }
}

fn draw(bencher: Bencher<'_, '_>, vocab: u32, params: SamplingParams) {
    let (row, sampler) = (row(vocab), TokenSampler::new(vocab));
    let sampling = Sampling::new(params).expect("in range");
    let mut state = SamplerState::new(&sampling, &[1, 2, 3], 0);
    bencher.bench_local(|| sampler.sample(&mut state, black_box(&row)));
}

#[divan::bench(args = VOCABULARIES)]
fn greedy(bencher: Bencher<'_, '_>, vocab: u32) {
    draw(bencher, vocab, SamplingParams::default());
}

#[divan::bench(args = VOCABULARIES)]
fn temperature(bencher: Bencher<'_, '_>, vocab: u32) {
    draw(bencher, vocab, warm());
}

#[divan::bench(args = VOCABULARIES)]
fn top_k_40(bencher: Bencher<'_, '_>, vocab: u32) {
    draw(bencher, vocab, SamplingParams { top_k: 40, ..warm() });
}

#[divan::bench(args = VOCABULARIES)]
fn top_p_95(bencher: Bencher<'_, '_>, vocab: u32) {
    draw(bencher, vocab, SamplingParams { top_p: 0.95, ..warm() });
}

#[divan::bench(args = VOCABULARIES)]
fn min_p_05(bencher: Bencher<'_, '_>, vocab: u32) {
    draw(bencher, vocab, SamplingParams { min_p: 0.05, ..warm() });
}

#[divan::bench(args = VOCABULARIES)]
fn penalties(bencher: Bencher<'_, '_>, vocab: u32) {
    draw(bencher, vocab, SamplingParams { repetition_penalty: 1.1, ..SamplingParams::default() });
}

#[divan::bench(args = VOCABULARIES)]
fn logprobs_5(bencher: Bencher<'_, '_>, vocab: u32) {
    let row = row(vocab);
    bencher.bench_local(|| logprobs::logprobs(black_box(&row), 7, 5));
}
