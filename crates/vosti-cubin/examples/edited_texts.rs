//! Edits the PTX of some kernels at random, one edit at a time, executes it here, and counts what no case saw, by kind
//! and by reason. Edits that changed nothing for a reason that is not known are printed. The exit code is 2 if a kernel
//! cannot be compiled.
//!
//!     cargo xtask execute --edits COUNT [--seed SEED] [TARGET] [STEM...]
//!     cargo run -p vosti-cubin --example edited_texts -- SEED COUNT [TARGET] [STEM...]
//!
//! COUNT is for each kind and kernel; without stems, the kernels below are taken, of sm90 and sm100 those whose products only they have.
//! Read next: `vosti_ptx::Edit`.

use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use vosti_cubin::execute::compiled;
use vosti_cubin::toolchain::REQUIREMENT;
use vosti_cubin::{Artifact, Toolchain};
use vosti_kernels::parse_stem;
use vosti_ptx::{Cases, Edit, Kind, Seen};

/// One of each form: products, experts, attention, a norm, a store, integers, and states.
const KERNELS: [&str; 10] = [
    "linear-bf16-BK64-BM16-BN64-K712-N200-SWAP1",
    "linear_glu-bf16-ACT0-BK64-BM16-BN64-K712-N72-SWAP1",
    "expert_down-bf16-BK64-BM16-BN64-E9-K712-LANES16-N72-SWAP1-TOPK6-WHOLE1",
    "attend-bf16-BQ16-CAP0.0-CAPPED0-D64-DP64-GP4-GROUP3-HEIGHT16-KV_HEADS2-PAGE64-ROWS512-SINKS0-SLOPE0.18033688-SPAN0.0-SPLIT512-USE0-WINDOW1",
    "attend_combine-bf16-BQ1-D64-DP64-GP4-GROUP3-HEIGHT1-KV_HEADS2-ROWS512-SINKS0-SPLIT512",
    "rmsnorm-bf16-BH4096-BM1-EPS1e-5-H200",
    "rope_store-bf16-BM16-EPS1e-6-FIRST0-HALF20-HEADS4-HP32-KV_HEADS2-K_FIRST4-NORM1-PACKED8-PAGE64-PROGRAMS6-V_FIRST6-V_NORM1",
    "linear_int-bf16-BLOCKS5-BM64-BN64-HALVES1-N72-OFFSETS1-WIDE1",
    "read_state-bf16-BK32-BQ16-DK32-DP16-DV16-GROUP2-HEIGHT16-KEY_HEADS2-PAGE64",
    "store_delta-bf16-ACROSS1-DK32-DV16-GROUP2-KEY_HEADS2-PAGE64",
];

/// Products of a warpgroup and of tensor memory, with tiles that threads copy and that are copied by descriptor: of matrices, attention,
/// experts and integers.
const OF_ASYNCHRONOUS: [&str; 6] = [
    "linear-bf16-BK64-BM64-BN64-K712-N200-SWAP1",
    "linear_add-bf16-BK64-BM256-BN128-K328-N136-SCALE1.0-SWAP1",
    "linear_glu-bf16-ACT0-BK64-BM128-BN128-K264-N72-SWAP1",
    "attend-bf16-BQ16-CAP0.0-CAPPED0-D64-DP64-GP4-GROUP3-HEIGHT16-KV_HEADS2-PAGE64-ROWS512-SINKS0-SLOPE0.18033688-SPAN0.0-SPLIT512-USE0-WINDOW1",
    "expert_glu-bf16-ACT0-BK64-BM64-BN64-E12-K456-N72-SWAP1-TOPK10-WHOLE1",
    "linear_int-bf16-BLOCKS5-BM64-BN64-HALVES1-N72-OFFSETS1-WIDE1",
];

/// What was seen of the edits of a kind.
#[derive(Clone, Copy, Default)]
struct Count {
    stopped: usize,
    bits: usize,
    unread: usize,
    commutes: usize,
    not_reached: usize,
    same: usize,
    unused: usize,
    nothing: usize,
}

impl Count {
    fn add(&mut self, seen: &Seen) {
        *match seen {
            Seen::Stopped(_) => &mut self.stopped,
            Seen::Bits => &mut self.bits,
            Seen::Unread => &mut self.unread,
            Seen::Commutes => &mut self.commutes,
            Seen::NotReached => &mut self.not_reached,
            Seen::Same => &mut self.same,
            Seen::Unused => &mut self.unused,
            Seen::Nothing => &mut self.nothing,
        } += 1;
    }

    fn line(&self) -> String {
        let Count { stopped, bits, unread, commutes, not_reached, same, unused, nothing } = self;
        let all = stopped + bits + unread + commutes + not_reached + same + unused + nothing;
        format!("{all} | {stopped} | {bits} | {unread} | {commutes} | {not_reached} | {same} | {unused} | {nothing}")
    }
}

fn main() {
    let wrong = |error: &dyn std::fmt::Display| -> ! {
        eprintln!("{error}");
        std::process::exit(2)
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seed, count, names @ ..] = arguments.as_slice() else { wrong(&"edited_texts SEED COUNT [TARGET] [STEM...]") };
    let number = |text: &String| text.parse::<u64>().unwrap_or_else(|_| wrong(&format!("{text} is no number")));
    let (seed, count) = (number(seed), number(count) as usize);
    let (targets, stems): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| name.starts_with("cuda"));
    let target = targets.first().map_or("cuda-sm80", |target| target.as_str());
    let stems: Vec<&str> = match target {
        _ if !stems.is_empty() => stems.iter().map(|stem| stem.as_str()).collect(),
        "cuda-sm90" | "cuda-sm100" => OF_ASYNCHRONOUS.to_vec(),
        _ => KERNELS.to_vec(),
    };
    let read =
        |stem: &&str| parse_stem(stem).unwrap_or_else(|| wrong(&format!("{stem} is no kernel with its dimensions")));
    let specs: Vec<_> = stems.iter().map(read).collect();
    let Some(python) = vosti_test_tools::python(REQUIREMENT) else { wrong(&format!("{REQUIREMENT} is not there")) };
    let artifacts = Toolchain::with_python(python).compile_checked_in(target, &specs);
    let artifacts = artifacts.unwrap_or_else(|error| wrong(&error));
    let cases = |artifact: &Artifact| Cases::new(&artifact.spec, &artifact.ttir).unwrap_or_else(|error| wrong(&error));
    let cases: Vec<Cases> = artifacts.iter().map(cases).collect();
    let work: Vec<(usize, Edit)> = artifacts
        .iter()
        .enumerate()
        .flat_map(|(at, artifact)| Edit::some(&artifact.ptx, count, seed).into_iter().map(move |edit| (at, edit)))
        .collect();
    let bar = ProgressBar::new(work.len() as u64);
    bar.set_style(
        ProgressStyle::with_template("{msg} [{bar:32}] {pos} of {len}").unwrap_or_else(|error| wrong(&error)),
    );
    let (next, found) = (AtomicUsize::new(0), Mutex::new(vec![]));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((at, edit)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let seen = cases[*at].see(&compiled(&artifacts[*at]), edit);
                    found.lock().unwrap_or_else(|error| error.into_inner()).push((*at, edit, seen));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut found = found.into_inner().unwrap_or_else(|error| error.into_inner());
    found.sort_by_key(|(at, edit, _)| (*at, edit.line));
    println!("edits | stopped | other bits | no PTX | commute | not reached | same numbers | not used | nothing");
    for kind in Kind::ALL {
        let mut sum = Count::default();
        found.iter().filter(|(_, edit, _)| edit.kind == kind).for_each(|(_, _, seen)| sum.add(seen));
        println!("{kind} | {}", sum.line());
    }
    for (at, artifact) in artifacts.iter().enumerate() {
        let mut sum = Count::default();
        found.iter().filter(|(of, ..)| *of == at).for_each(|(_, _, seen)| sum.add(seen));
        println!("{} | {}", artifact.spec, sum.line());
    }
    let mut words: BTreeMap<String, usize> = BTreeMap::new();
    for (.., seen) in &found {
        if let Seen::Stopped(fault) = seen {
            let word: String = fault.to_string().chars().filter(|c| !c.is_ascii_digit()).take(30).collect();
            *words.entry(word).or_default() += 1;
        }
    }
    words.iter().for_each(|(word, many)| println!("  {many} stopped: {word}.."));
    for (at, edit, _) in found.iter().filter(|(.., seen)| *seen == Seen::Nothing) {
        println!("  nothing: {} {edit}", artifacts[*at].spec.kernel);
    }
}
