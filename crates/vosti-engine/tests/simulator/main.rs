//! The engine against a symbolic device, driven by seeds: random programs, windows, pools, policies, arrivals, aborts,
//! preemptions, drafts and steps that the device fails. Every invariant has its own checker (`checkers.rs`). A failure names
//! its seed.
//!
//!     cargo test -p vosti-engine --test simulator                          # 1,500 seeds, always the same
//!     cargo test -p vosti-engine --test simulator -- --seed 77             # that run again
//!     cargo test -p vosti-engine --test simulator -- --seeds 1500..9000    # others
//!     cargo test -p vosti-engine --test simulator -- --random 5000         # that many from a seed by the clock, printed

mod checkers;
mod scenario;
mod world;

use libtest_mimic::{Arguments, Failed, Trial};
use std::ops::Range;
use std::process::ExitCode;
use vosti_check::faulty::Fault;
use world::{Outcome, Violation, simulate};

/// Seeds that every run of the tests tries.
const SEEDS: u64 = 1_500;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().collect();
    let chosen = match chosen(&mut arguments) {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let test = |name: &str, test: fn()| {
        Trial::test(name, move || std::panic::catch_unwind(test).map_err(|_| Failed::without_message()))
    };
    let trials = match chosen {
        Some(seeds) => vec![Trial::test(format!("seeds {} to {}", seeds.start, seeds.end - 1), move || {
            run_all(seeds)
                .map(|total| println!("{total:?}"))
                .map_err(|(seed, what)| format!("seed {seed}: {what}").into())
        })],
        None => vec![
            test(
                "every_answer_is_canonical_and_no_page_is_lost_under_any_policy",
                every_answer_is_canonical_and_no_page_is_lost_under_any_policy,
            ),
            test("every_fault_of_a_device_is_caught", every_fault_of_a_device_is_caught),
            test("one_seed_gives_one_run", one_seed_gives_one_run),
        ],
    };
    libtest_mimic::run(&Arguments::from_iter(arguments), trials).exit_code()
}

/// Takes our own flags out of the arguments: which seeds to run instead of the tests.
fn chosen(arguments: &mut Vec<String>) -> Result<Option<Range<u64>>, String> {
    let Some(at) = arguments.iter().position(|a| ["--seed", "--seeds", "--random"].contains(&a.as_str())) else {
        return Ok(None);
    };
    let given = if at + 1 < arguments.len() { arguments.remove(at + 1) } else { String::new() };
    let flag = arguments.remove(at);
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{flag} {given}: \"{text}\" is not a number"));
    let (start, end) = match flag.as_str() {
        "--seed" => (number(&given)?, number(&given)?.saturating_add(1)),
        "--seeds" => match given.split_once("..") {
            Some((start, end)) => (number(start)?, number(end)?),
            None => return Err(format!("--seeds {given}: it takes FIRST..END")),
        },
        _ => {
            let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let start = clock.as_nanos() as u64 >> 8;
            (start, start.saturating_add(number(&given)?))
        }
    };
    if start >= end {
        return Err(format!("{flag} {given}: there is no seed in it"));
    }
    println!("seeds {start}..{end}");
    Ok(Some(start..end))
}

/// `run`, on two threads.
fn run_all(seeds: Range<u64>) -> Result<Outcome, (u64, Violation)> {
    let middle = seeds.start + (seeds.end - seeds.start) / 2;
    let (low, high) = std::thread::scope(|scope| {
        let low = scope.spawn(|| run(seeds.start..middle, None));
        (run(middle..seeds.end, None), low.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (mut total, high) = (low?, high?);
    total.add(&high);
    Ok(total)
}

fn run(seeds: Range<u64>, fault: Option<Fault>) -> Result<Outcome, (u64, Violation)> {
    let mut total = Outcome::default();
    for seed in seeds {
        let played = std::panic::catch_unwind(|| simulate(seed, fault)).unwrap_or_else(|panic| {
            eprintln!("seed {seed} panicked");
            std::panic::resume_unwind(panic)
        });
        total.add(&played.map_err(|violation| (seed, violation))?);
    }
    Ok(total)
}

fn every_answer_is_canonical_and_no_page_is_lost_under_any_policy() {
    let total = match run_all(0..SEEDS) {
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

fn every_fault_of_a_device_is_caught() {
    for fault in Fault::ALL {
        match run(0..50, Some(fault)) {
            Ok(_) => panic!("{} was not caught", fault.name()),
            Err((seed, violation)) => println!("{}: seed {seed}: {violation}", fault.name()),
        }
    }
}

fn one_seed_gives_one_run() {
    for seed in [1, 77, 1234] {
        let (a, b) = (simulate(seed, None), simulate(seed, None));
        assert_eq!(a.ok(), b.ok(), "seed {seed}");
    }
}
