//! Faults that only a test inside the module can cause.

use super::*;
use crate::{Request, Sampling};
use vosti_check::symbolic::{SymbolicDevice, program};

#[test]
fn a_livelock_is_an_error_and_not_a_hang() {
    let program = program(&[Some(100)], &[0], 24, 3_000);
    let device = SymbolicDevice::new(&program, &[4], 512, 512, 1);
    let mut engine = Engine::new(device, program, Policy::default()).unwrap();
    engine.submit(Request::new(vec![1; 200], Sampling::greedy(1_000))).unwrap();
    let stuck = loop {
        // Pretends that every page behind the window was freed, so that none is, and the pool fills up with unused pages.
        engine.sequences.values_mut().for_each(|s| s.behind.fill(usize::MAX));
        match engine.step(&mut |_| {}) {
            Ok(_) if engine.counters.steps < 1_000 => {}
            Ok(_) => panic!("the window was released after all"),
            Err(error) => break error,
        }
    };
    assert!(matches!(stuck, EngineError::Stuck { waiting: 1, .. }), "{stuck}");
    assert!(engine.step(&mut |_| {}).is_err(), "and it stays one");
}
