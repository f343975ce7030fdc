//! The engine against a symbolic device, driven by seeds: random programs, windows, pools, policies, arrivals, aborts,
//! preemptions and drafts. Every invariant has its own checker (`checkers.rs`). A failure names its seed:
//! `simulate(seed, None)` is that run again.

mod checkers;
mod scenario;
mod world;

use vosti_engine::Counters;
use vosti_engine::faulty::Fault;
use world::{Violation, simulate};

/// Seeds that every run of the tests tries.
const SEEDS: u64 = 1_500;

fn add(total: &mut Counters, one: &Counters) {
    total.steps += one.steps;
    total.tokens += one.tokens;
    total.partial_chunks += one.partial_chunks;
    total.prefix_hits += one.prefix_hits;
    total.prefix_query_tokens += one.prefix_query_tokens;
    total.prefix_hit_tokens += one.prefix_hit_tokens;
    total.published += one.published;
    total.evictions += one.evictions;
    total.preemptions += one.preemptions;
    total.released_behind += one.released_behind;
    total.drafts_proposed += one.drafts_proposed;
    total.drafts_accepted += one.drafts_accepted;
    total.aborted += one.aborted;
    total.finished += one.finished;
}

/// `run`, on two threads.
fn run_all(seeds: u64) -> Result<Counters, (u64, Violation)> {
    let middle = seeds / 2;
    let (low, high) = std::thread::scope(|scope| {
        let low = scope.spawn(|| run(0..middle, None));
        (run(middle..seeds, None), low.join().expect("the simulator does not panic"))
    });
    let (mut total, high) = (low?, high?);
    add(&mut total, &high);
    Ok(total)
}

fn run(seeds: std::ops::Range<u64>, fault: Option<Fault>) -> Result<Counters, (u64, Violation)> {
    let mut total = Counters::default();
    for seed in seeds {
        let counters = simulate(seed, fault).map_err(|violation| (seed, violation))?;
        add(&mut total, &counters);
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
