//! Estimates how long a step takes on a card, by kernel: a calculation on the compiler's output, and no measurement.
//!
//! A launch takes as long as the slowest of seven: reading memory, at the card's rate or at the rate that its blocks'
//! outstanding loads allow; the second-level cache; the matrix units; the loads and pages of one block one after the
//! other; and, where its PTX can be executed, starting instructions and the banks of shared memory. One latency is
//! added, and a gap before the next launch. Nothing here decides what runs. Read next: [`card`], [`launches`],
//! [`counted`].

pub mod card;
pub mod counted;
mod launches;

use crate::bench::{Case, Work as Least};
use card::{Card, GAP_S, ISSUES_A_CLOCK, LATENCY_S, OWN_MATRIX_SHARE, PAGE_S, READY_S, STEP_S, TURNS_A_CLOCK};
use counted::{All, Tally};
use launches::Work;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use vosti_cpu::Ceilings;
use vosti_cubin::execute::{BANKS, Counted, WORD};
use vosti_cubin::{Cubin, Facts};
use vosti_kernels::KernelError;
use vosti_model::ModelPlan;

/// A step: every sequence has the same number of rows, after `depth` cached positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Sequences with rows.
    pub sequences: usize,
    /// Rows of each.
    pub tokens: usize,
    /// Positions that are cached, of each sequence.
    pub depth: usize,
    /// Whether a token is drawn from the last row of each; else the best one is taken.
    pub draws: bool,
}

impl Step {
    /// Rows of all sequences together.
    pub fn rows(self) -> usize {
        self.sequences * self.tokens
    }

    /// The rows of a range: of each sequence their number, and the first one's position.
    fn requests(self, rows: Range<usize>) -> Vec<(usize, usize)> {
        let of = |sequence: usize| {
            let first = sequence * self.tokens;
            let (start, end) = (rows.start.max(first), rows.end.min(first + self.tokens));
            (start < end).then(|| (end - start, self.depth + start - first))
        };
        (0..self.sequences).filter_map(of).collect()
    }

    /// The last row of each sequence.
    fn last(self) -> Vec<(usize, usize)> {
        vec![(1, self.depth + self.tokens.max(1) - 1); self.sequences]
    }

    fn case(self) -> Case {
        match self.tokens {
            1 => Case::Decode { tokens: 0, batch: self.sequences, depth: self.depth },
            tokens => Case::Prefill { tokens, depth: self.depth },
        }
    }
}

/// All launches of one specialisation in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The specialisation's name.
    pub name: String,
    /// Launches in a step.
    pub launches: usize,
    /// Bytes from memory, of all launches together.
    pub memory_bytes: f64,
    /// Multiplications and additions, of all launches together.
    pub flops: f64,
    /// Blocks of the largest launch.
    pub blocks: u64,
    /// Waves of the largest launch.
    pub waves: u64,
    /// Seconds of all launches together, without gaps.
    pub seconds: f64,
    /// Seconds between launches.
    pub gaps: f64,
    /// What limits the largest launch: memory, cache, matrices, chain (one block's loads and pages in turn), issue,
    /// banks or latency.
    pub limit: &'static str,
    /// Counts of its launches, if its PTX can be executed.
    pub tally: Option<Tally>,
}

/// A step's estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// What was estimated.
    pub step: Step,
    /// In the order of their first launch.
    pub kernels: Vec<Kernel>,
    /// Seconds of the whole step, gaps and the engine's work included.
    pub seconds: f64,
    /// Seconds of the step if the card reads and computes at its ceilings and does nothing else.
    pub bound_s: f64,
}

/// Estimates a step of a plan from the compiled kernels and the counts of its launches ([`counted::of`]). A launch
/// without a cubin is left out. An error names a kernel whose contract or grid is unknown.
pub fn estimate(
    plan: &ModelPlan,
    cubins: &BTreeMap<String, Cubin>,
    counts: &All,
    card: &Card,
    step: Step,
) -> Result<Estimate, KernelError> {
    let mut kernels: Vec<Kernel> = vec![];
    // Bytes that memory could still give during the launch before, and the shared memory of one of its blocks.
    let (mut idle, mut held) = (0.0, u64::MAX);
    for mut work in launches::of(plan, cubins, card, step)? {
        let name = work.spec.to_string();
        let Some(cubin) = cubins.get(&name) else { continue };
        let counted = counts.get(&work.key()).and_then(|counted| counted.as_ref().ok());
        let facts = &cubin.record.facts;
        // Only blocks that fit beside those of the launch before ask for their weights.
        let shared = facts.shared_dynamic + facts.shared_static;
        let fits = held.saturating_add(shared) <= card.arch.shared_bytes_max();
        let placed = if fits { work.blocks.min(u64::from(card.multiprocessors * facts.blocks)) } else { 0 };
        let early = (placed as f64 * facts.ahead as f64).min(idle).min(work.memory_bytes);
        work.memory_bytes -= early;
        let (seconds, waves, limit) = time(&work, facts, counted, card);
        (idle, held) = ((seconds * card.read() - work.memory_bytes).max(0.0), shared);
        work.memory_bytes += early;
        let at = kernels.iter().position(|kernel| kernel.name == name).unwrap_or_else(|| {
            let (launches, blocks, waves, limit) = (0, 0, 0, "");
            let (memory_bytes, flops, seconds, gaps) = (0.0, 0.0, 0.0, 0.0);
            let tally = counted.map(|_| Tally::default());
            kernels.push(Kernel { name, launches, memory_bytes, flops, blocks, waves, seconds, gaps, limit, tally });
            kernels.len() - 1
        });
        let kernel = &mut kernels[at];
        if work.blocks >= kernel.blocks {
            (kernel.blocks, kernel.waves, kernel.limit) = (work.blocks, waves, limit);
        }
        kernel.launches += 1;
        kernel.memory_bytes += work.memory_bytes;
        kernel.flops += work.block_flops * work.blocks as f64;
        kernel.seconds += seconds;
        kernel.gaps += GAP_S - if cubin.record.metadata.launch_pdl { READY_S } else { 0.0 };
        if let (Some(tally), Some(counted)) = (&mut kernel.tally, counted) {
            tally.add(counted, work.block_bytes * work.blocks as f64);
        }
    }
    let ceilings = Ceilings { read_bytes_per_s: card.read(), dot_flops_per_s: card.matrices() };
    let rate = Least::of(plan, step.case(), 2.0).bound(&ceilings);
    let seconds = STEP_S + kernels.iter().map(|kernel| kernel.seconds + kernel.gaps).sum::<f64>();
    Ok(Estimate { step, kernels, seconds, bound_s: step.rows() as f64 / rate.max(1e-12) })
}

/// Seconds of a launch, its waves, and what limits it.
fn time(work: &Work, facts: &Facts, counted: Option<&Counted>, card: &Card) -> (f64, u64, &'static str) {
    let units = f64::from(card.multiprocessors);
    let blocks = work.blocks as f64;
    let slots = units * f64::from(facts.blocks.max(1));
    let waves = (blocks / slots).ceil();
    // A loop waits one latency for each group of loads: the one that it waits for, and those that are outstanding with it.
    let turn_bytes = work.block_bytes / (work.turns + 1.0);
    let ahead = (facts.in_flight as f64 * work.of_memory / turn_bytes.max(1.0)).round();
    let waits = work.loads + (work.turns / (ahead + 1.0)).ceil();
    // Little's law: outstanding bytes over one latency are the rate. A kernel without a pipeline loads a whole tile at once.
    let way = match facts.in_flight {
        0 => work.block_bytes / waits.max(1.0).max(work.pages),
        _ if work.turns > 0.0 => turn_bytes * (ahead + 1.0),
        bytes => bytes as f64 * work.of_memory,
    };
    let memory = work.memory_bytes / card.read().min(blocks.min(slots) * way / LATENCY_S);
    let rounds = (blocks / units).ceil();
    let cache = (blocks * work.block_bytes / card.cache()).max(rounds * work.block_bytes / card.port());
    let matrices = rounds * work.block_flops / (OWN_MATRIX_SHARE * card.matrices() / units);
    // A page that is not loaded ahead is waited for, and then computed with.
    let page = if facts.in_flight > 0 { PAGE_S.max(LATENCY_S) } else { PAGE_S + LATENCY_S };
    let chain = waves * (work.pages * page + (waits - 1.0) * LATENCY_S);
    let of_block = |many: u64| rounds * many as f64 / blocks / card.clock_per_s;
    let (issue, banks) = counted.map_or((0.0, 0.0), |Counted { counts, .. }| {
        let turns = counts.shared.wavefronts + counts.operand_bytes / (BANKS * WORD);
        (of_block(counts.issued()) / ISSUES_A_CLOCK, of_block(turns) / TURNS_A_CLOCK)
    });
    let all = [
        (memory, "memory"),
        (cache, "cache"),
        (matrices, "matrices"),
        (chain, "chain"),
        (issue, "issue"),
        (banks, "banks"),
    ];
    let (slowest, limit) = all.into_iter().fold((0.0, "memory"), |a, b| if b.0 > a.0 { b } else { a });
    let limit = if slowest < LATENCY_S { "latency" } else { limit };
    (slowest + LATENCY_S, waves as u64, limit)
}

impl Estimate {
    /// The bound's time over the estimated time: 1 if the step runs at the ceilings.
    pub fn share(&self) -> f64 {
        self.bound_s / self.seconds
    }

    /// A table for people: one line for each kernel.
    pub fn table(&self) -> String {
        let Step { sequences, tokens, depth, .. } = self.step;
        let tokens_per_s = self.step.rows() as f64 / self.seconds;
        let what = match tokens {
            1 => format!("decode, batch {sequences} after {depth}"),
            _ => format!("prefill of {tokens} after {depth}"),
        };
        let mut out = format!(
            "{what}: {:.3} ms a step, {tokens_per_s:.0} tokens/s, {:.0}% of the bound of {:.3} ms\n",
            self.seconds * 1e3,
            self.share() * 100.0,
            self.bound_s * 1e3
        );
        let gaps: f64 = self.kernels.iter().map(|kernel| kernel.gaps).sum();
        let launches: usize = self.kernels.iter().map(|kernel| kernel.launches).sum();
        writeln!(out, "{launches} launches, {:.3} ms of gaps between them", gaps * 1e3).ok();
        writeln!(
            out,
            "{:>8} {:>6} {:>8} {:>9} {:>10} {:>8} {:>6} {:>9}  kernel",
            "launches", "share", "ms", "MB", "GFLOP", "blocks", "waves", "limit"
        )
        .ok();
        for kernel in &self.kernels {
            writeln!(
                out,
                "{:>8} {:>5.1}% {:>8.3} {:>9.1} {:>10.2} {:>8} {:>6} {:>9}  {}",
                kernel.launches,
                100.0 * (kernel.seconds + kernel.gaps) / self.seconds,
                (kernel.seconds + kernel.gaps) * 1e3,
                kernel.memory_bytes / 1e6,
                kernel.flops / 1e9,
                kernel.blocks,
                kernel.waves,
                kernel.limit,
                kernel.name
            )
            .ok();
        }
        out + &counted::table(&self.kernels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vosti_contract::Const;
    use vosti_cubin::Arch;
    use vosti_kernels::parse_stem;

    fn facts(in_flight: u64, blocks: u32) -> Facts {
        Facts {
            params: 0,
            threads: 128,
            registers: 64,
            shared_dynamic: 0,
            shared_static: 0,
            matrix_instructions: 1,
            matrix_kinds: vec![],
            async_copies: 1,
            in_flight,
            ahead: 0,
            blocks,
            reductions: vec![],
        }
    }

    fn work() -> Work {
        Work {
            spec: parse_stem("linear-bf16-BK64-BM16-BN64-K4096-N4096-SWAP1").unwrap(),
            requests: vec![(1, 0)],
            blocks: 264,
            memory_bytes: 1e9,
            block_bytes: 1e9 / 264.0,
            of_memory: 1.0,
            block_flops: 0.0,
            loads: 1.0,
            pages: 0.0,
            turns: 0.0,
        }
    }

    #[test]
    fn a_launch_is_held_back_by_what_is_scarcest() {
        let card = Card::find(Arch::Sm90, None).unwrap();
        assert_eq!((card.name, Card::find(Arch::Sm90, Some("h100")).unwrap().multiprocessors), ("h200", 132));
        assert_eq!(Card::find(Arch::Sm90, Some("rtx4090")), None);
        let of = |work: Work, facts: Facts| time(&work, &facts, None, &card);
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        let (seconds, waves, limit) = of(work(), facts(100_000, 2));
        assert!(near(seconds, 1e9 / card.read() + LATENCY_S) && waves == 1 && limit == "memory", "{seconds}");
        // Few outstanding bytes limit the rate: so many bytes in each latency.
        let few = of(work(), facts(1_000, 2)).0;
        assert!(near(few, 1e9 / (264.0 * 1_000.0 / LATENCY_S) + LATENCY_S), "{few}");
        // A wave and one block: the pages of two blocks, one after the other, loaded ahead or waited for.
        let paged = Work { memory_bytes: 0.0, block_bytes: 0.0, blocks: 265, pages: 16.0, ..work() };
        let (ahead, waves, limit) = of(paged.clone(), facts(32_768, 2));
        assert!(near(ahead, 2.0 * 16.0 * PAGE_S + LATENCY_S) && waves == 2 && limit == "chain", "{ahead}");
        let waited = of(paged, facts(0, 2)).0;
        assert!(near(waited, 2.0 * 16.0 * (PAGE_S + LATENCY_S) + LATENCY_S), "{waited}");
        // The first load and the loop's eight, one after the other; and with three more on their way, two times four.
        let few = Work { memory_bytes: 0.0, block_bytes: 9.0 * 1024.0, turns: 8.0, blocks: 1, ..work() };
        assert!(near(of(few.clone(), facts(0, 2)).0, 9.0 * LATENCY_S));
        assert!(near(of(few, facts(3 * 1024, 2)).0, 3.0 * LATENCY_S));
        let dots = Work { memory_bytes: 0.0, block_bytes: 0.0, block_flops: 1e9, ..work() };
        assert_eq!(of(dots, facts(32_768, 2)).2, "matrices");
        let idle = Work { memory_bytes: 1.0, block_bytes: 1.0, ..work() };
        assert_eq!(of(idle.clone(), facts(32_768, 2)).2, "latency");
        // Two blocks of each multiprocessor, one after the other, with a million instructions or turns each.
        let counted = |issued: u64, turns: u64| {
            let mut counted = Counted::default();
            (counted.counts.instructions[0], counted.counts.shared.wavefronts) = (264 * issued, 264 * turns);
            time(&idle, &facts(32_768, 2), Some(&counted), &card)
        };
        let (seconds, _, limit) = counted(1_000_000, 0);
        assert!(near(seconds, 2e6 / ISSUES_A_CLOCK / card.clock_per_s + LATENCY_S) && limit == "issue", "{seconds}");
        let (seconds, _, limit) = counted(0, 1_000_000);
        assert!(near(seconds, 2e6 / TURNS_A_CLOCK / card.clock_per_s + LATENCY_S) && limit == "banks", "{seconds}");
    }

    /// What a launch asks for early is not read again, as far as it fits beside the launch before and memory had time.
    #[test]
    fn weights_that_are_asked_for_early_are_read_during_the_launch_before() {
        let plan =
            vosti_stand_in::plan_with("configs/llama-3.1-8b.json", &[("num_hidden_layers", 1)], "cuda-sm90", 4096);
        let card = Card::find(Arch::Sm90, None).unwrap();
        let step = Step { sequences: 4, tokens: 1, depth: 2048, draws: false };
        let seconds = |ahead: u64, shared: u64, early: bool| {
            let mut cubins = vosti_stand_in::cubins(&plan);
            for (name, cubin) in &mut cubins {
                let Facts { ahead: asked, shared_dynamic, blocks, in_flight, .. } = &mut cubin.record.facts;
                (*shared_dynamic, *blocks, *in_flight) = (shared, 2, 65_536);
                *asked = if name.starts_with("linear_glu") { ahead } else { 0 };
                cubin.record.metadata.launch_pdl = early;
            }
            let found = estimate(&plan, &cubins, &All::default(), &card, step).unwrap();
            (found.kernels.iter().find(|k| k.name.starts_with("linear_glu")).unwrap().seconds, found.kernels[0].gaps)
        };
        let (none, gap) = seconds(0, 1024, true);
        let (some, _) = seconds(16_384, 1024, true);
        let bytes = 224.0 * 16_384.0;
        assert!(((none - some) * card.read() / bytes - 1.0).abs() < 1e-6, "{none} {some}");
        assert_eq!(seconds(16_384, 120_000, true).0, none, "two such blocks do not fit");
        assert!(seconds(1 << 40, 1024, true).0 > none / 2.0, "a norm is short");
        assert!((seconds(0, 1024, false).1 - gap - READY_S).abs() < 1e-12);
    }

    #[test]
    fn a_step_has_the_launches_that_the_device_makes_and_reads_what_it_must() {
        let path = format!("{}/../vosti-model/configs/llama-3.1-8b.json", env!("CARGO_MANIFEST_DIR"));
        let config = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let decoder = vosti_model::families::from_config("llama", &config).unwrap();
        let plan = vosti_model::plan(&decoder, &vosti_model::Target::named("cuda-sm90"), None).unwrap();
        let card = Card::find(Arch::Sm90, None).unwrap();
        let cubins = vosti_stand_in::cubins(&plan);
        let of = |step| launches::of(&plan, &cubins, &card, step).unwrap();
        let decode = Step { sequences: 4, tokens: 1, depth: 2048, draws: false };
        let all = of(decode);
        assert_eq!(all.len(), 293);
        let least = Least::of(&plan, decode.case(), 2.0).per_token().1 * 4.0;
        let bytes: f64 = all.iter().map(|work| work.memory_bytes).sum();
        assert!((1.0..1.02).contains(&(bytes / least)), "{}", bytes / least);
        let blocks = |kernel: &str| all.iter().find(|work| work.spec.kernel == kernel).unwrap().blocks;
        // Four rows; 64 columns each; five splits of four sequences and eight heads; a row and KV head each.
        assert_eq!(["rmsnorm", "linear", "attend", "attend_combine"].map(blocks), [4, 96, 160, 32]);
        // At most 512 rows of a launch of attention: four, of 2,048, and each folds its own splits.
        let prefill = of(Step { sequences: 1, tokens: 2048, depth: 0, draws: false });
        let many = |kernel: &str| prefill.iter().filter(|work| work.spec.kernel == kernel).count();
        assert_eq!((many("attend"), many("attend_combine")), (128, 0));
        // A few rows behind many keys are split.
        let few = of(Step { sequences: 1, tokens: 16, depth: 16_384, draws: false });
        assert_eq!(few.iter().filter(|work| work.spec.kernel == "attend_combine").count(), 32);
        // Many rows have tiles of 128 lanes, half as many for each KV head; few rows and decode have those of 64.
        let tiles = |all: &[Work]| {
            let work = all.iter().find(|work| work.spec.kernel == "attend").unwrap();
            (work.spec.constants["HEIGHT"], work.blocks)
        };
        assert_eq!([tiles(&prefill), tiles(&all)], [(Const::Int(32), 128), (Const::Int(16), 160)]);
        assert_eq!(tiles(&few).0, Const::Int(16));
    }
}
