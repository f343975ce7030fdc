//! What a step costs without its device. Run with `--ignored --nocapture`; no test asserts a time.

mod common;
use common::*;
use std::time::{Duration, Instant};
use vosti_core::*;

struct Idle {
    pages: usize,
    row: u64,
}

impl Device for Idle {
    type Logits = u64;

    fn rows_max(&self) -> usize {
        4096
    }

    fn selected_max(&self) -> usize {
        4096
    }

    fn pages(&self, _group: usize) -> usize {
        self.pages
    }

    fn clear(&mut self) {}

    fn run(&mut self, _program: &Program, _plan: &StepPlan) -> Result<(), DeviceError> {
        Ok(())
    }

    fn logits(&self, _selected: usize) -> &u64 {
        &self.row
    }
}

#[test]
#[ignore = "prints a time"]
fn plan_and_commit_of_64_requests() {
    let mut program = program(&[None, Some(512)]);
    program.context = 8192;
    let mut core = Core::new(Idle { pages: 64 * 128, row: 7 }, Modulo, program).unwrap();
    let ids: Vec<_> = (0..64).map(|_| core.admit(prompt(4000), 0, u64::MAX).unwrap()).collect();
    for &id in &ids {
        for group in 0..2 {
            (0..128).for_each(|_| core.take_page(id, group).unwrap());
        }
        core.plan_begin().unwrap();
        core.plan_rows(id, 4000, &[], Select::Last).unwrap();
        core.run().unwrap();
        core.commit().unwrap();
    }
    let mut times: Vec<Duration> = (0..2000)
        .map(|_| {
            let start = Instant::now();
            core.plan_begin().unwrap();
            for &id in &ids {
                core.plan_rows(id, 1, &[], Select::Last).unwrap();
            }
            core.run().unwrap();
            core.commit().unwrap();
            start.elapsed()
        })
        .collect();
    times.sort();
    println!("plan + commit, 64 requests at depth 4,000, 2 groups: median {:?}, p99 {:?}", times[1000], times[1980]);
}
