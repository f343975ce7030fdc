//! The engine against a symbolic device, driven by seeds: random programs, windows, pools, policies, arrivals, aborts,
//! preemptions, drafts and steps that the device fails. Every invariant has its own checker (`checkers.rs`). A failure names its seed:
//! `simulate(seed, None)` is that run again.

mod checkers;
mod scenario;
mod world;

use vosti_engine::faulty::Fault;
use world::{Outcome, Violation, simulate};

/// Seeds that every run of the tests tries.
const SEEDS: u64 = 1_500;

/// `run`, on two threads.
fn run_all(seeds: u64) -> Result<Outcome, (u64, Violation)> {
    let middle = seeds / 2;
    let (low, high) = std::thread::scope(|scope| {
        let low = scope.spawn(|| run(0..middle, None));
        (run(middle..seeds, None), low.join().expect("the simulator does not panic"))
    });
    let (mut total, high) = (low?, high?);
    total.add(&high);
    Ok(total)
}

fn run(seeds: std::ops::Range<u64>, fault: Option<Fault>) -> Result<Outcome, (u64, Violation)> {
    let mut total = Outcome::default();
    for seed in seeds {
        total.add(&simulate(seed, fault).map_err(|violation| (seed, violation))?);
    }
    Ok(total)
}

#[test]
fn every_answer_is_canonical_and_no_page_is_lost_under_any_policy() {
    let total = match run_all(SEEDS) {
        Ok(total) => total,
        Err((seed, violation)) => panic!("seed {seed}: {violation}"),
    };
    println!("{total:?}");
    // What the seeds are for has happened, many times.
    let Outcome { counters: total, failures, losses, refused } = total;
    for (what, count) in [
        ("chunks", total.partial_chunks),
        ("prefix hits", total.prefix_hits),
        ("evictions", total.evictions),
        ("preemptions", total.preemptions),
        ("pages released behind windows", total.released_behind),
        ("accepted drafts", total.drafts_accepted),
        ("rejected drafts", total.drafts_proposed - total.drafts_accepted),
        ("aborts", total.aborted),
        ("finished", total.finished),
        ("failed steps", failures),
        ("lost caches", losses * 10),
        ("requests too long for the pool", refused),
    ] {
        assert!(count > SEEDS / 2, "only {count} {what} in {SEEDS} seeds");
    }
}

#[test]
fn every_fault_of_a_device_is_caught() {
    for fault in Fault::ALL {
        match run(0..50, Some(fault)) {
            Ok(_) => panic!("{} was not caught", fault.name()),
            Err((seed, violation)) => println!("{}: seed {seed}: {violation}", fault.name()),
        }
    }
}

#[test]
fn one_seed_gives_one_run() {
    for seed in [1, 77, 1234] {
        let (a, b) = (simulate(seed, None), simulate(seed, None));
        assert_eq!(a.ok(), b.ok(), "seed {seed}");
    }
}
