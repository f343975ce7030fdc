//! The engine's own cost of a step: plan, launch and commit, on a device that computes nothing.
//!
//! `cargo run --release -p vosti-engine --example overhead` prints microseconds per decode step by number of requests.

use std::time::{Duration, Instant};
use vosti_check::symbolic;
use vosti_core::{Device, DeviceError, Draw, Program, StepPlan, Token};
use vosti_engine::{Engine, Policy, Request, Sampling};

/// A device that computes nothing.
struct NoDevice {
    row: Vec<f32>,
    running: Duration,
}

impl Device for NoDevice {
    type Logits = [f32];
    type Top = [(Token, f32)];

    fn rows_max(&self) -> usize {
        2_048
    }

    fn selected_max(&self) -> usize {
        2_048
    }

    fn pages(&self, _: usize) -> usize {
        8_192
    }

    fn top_max(&self) -> usize {
        0
    }

    fn draws(&self) -> bool {
        false
    }

    fn clear(&mut self) {}

    fn run(&mut self, _: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        let start = Instant::now();
        std::hint::black_box(plan.tokens());
        self.running += start.elapsed();
        Ok(())
    }

    fn logits(&self, _: usize) -> &[f32] {
        &self.row
    }

    fn best(&self, _: usize) -> Token {
        0
    }

    fn top(&self, _: usize) -> &[(Token, f32)] {
        &[]
    }

    fn drawn(&self, _: usize, _: Draw) -> Token {
        unreachable!("it draws nothing")
    }
}

/// Microseconds per decode step, median and 99th percentile.
fn measure(requests: usize, prompt: usize) -> (f64, f64) {
    let program = symbolic::program(&[None, Some(512)], &[0, 1], 64, 8_192);
    let device = NoDevice { row: vec![0.0; 64], running: Duration::ZERO };
    let policy = Policy { running_max: requests, rows_step_max: 2_048, ..Policy::default() };
    let mut engine = Engine::new(device, program, policy).expect("a well-formed program");
    for i in 0..requests {
        let prompt = (0..prompt).map(|p| ((p * 7 + i) % 64) as u32).collect();
        let request = Request { token_logits: false, ..Request::new(prompt, Sampling::greedy(2_000)) };
        engine.submit(request).expect("it fits");
    }
    while engine.counters().tokens < requests as u64 * 4 {
        engine.step(&mut |_| {}).expect("a step");
    }
    let mut times: Vec<f64> = (0..1_000)
        .map(|_| {
            let start = Instant::now();
            engine.step(&mut |_| {}).expect("a step");
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[500], times[990])
}

fn main() {
    println!("requests  prompt  us/step (median)  us/step (p99)");
    for requests in [1, 8, 64, 256] {
        for prompt in [100, 4_000] {
            if requests * prompt > 64 * 4_000 {
                continue;
            }
            let (median, p99) = measure(requests, prompt);
            println!("{requests:8}  {prompt:6}  {median:16.1}  {p99:13.1}");
        }
    }
}
