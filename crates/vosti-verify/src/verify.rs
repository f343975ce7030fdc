//! Proves one contract: first the premises, then the obligations of each run alone, then the relation of the two runs.

use crate::apart::separated;
use crate::budget::GIVEN_UP_MAX;
use crate::certificate::StandsFor;
use crate::certificate::extent;
use crate::condition::Condition;
use crate::equal::{At, Mode};
use crate::folded::reads_height;
use crate::premises::Premises;
use crate::problem::{Problem, ProblemError, Uses};
use crate::prover::{Access, Placed, Prover, Side};
use crate::recur;
use crate::solver::{Solver, SolverError};
use crate::term::Term;
use crate::verdict::{Assumption, Failure, Obligation, Proof, Step, Trouble, Verdict};
use crate::world::shared_facts;
use std::time::{Duration, Instant};
use vosti_contract::{FOLDED, HEIGHT, Role, Shape, USE};
use vosti_tile::{Line, OpKind};

/// The result of verifying one contract: verdict, assumptions, proof and cost.
#[derive(Clone, Debug)]
pub struct Verification {
    /// File stem of the TTIR; `A == B` for a pair.
    pub name: String,
    /// The promise in a few words; `?` if the kernel could not be read.
    pub contract: String,
    /// Proved, refuted or unknown.
    pub verdict: Verdict,
    /// The assumptions that the proof uses besides the tile IR.
    pub assumptions: Vec<Assumption>,
    /// Kernels whose bits it was proved to give.
    pub stands_for: Vec<StandsFor>,
    /// The proof in steps, for `--explain`.
    pub story: Vec<Step>,
    /// Questions to the solver or to its recorded answers.
    pub queries: u64,
    /// For the whole verdict, solvers and replays included.
    pub time: Duration,
}

impl Verification {
    /// The result for a kernel whose contract and TTIR make no problem.
    pub fn refused(name: &str, error: &ProblemError) -> Verification {
        let line = match error {
            ProblemError::Lift { source, .. } => Line { ttir: source.ttir_line, python: source.python_line },
            _ => Line::default(),
        };
        Verification {
            name: name.to_string(),
            contract: "?".into(),
            verdict: Verdict::Unknown(Failure::new(error.obligation(), line, error.to_string())),
            assumptions: vec![],
            stands_for: vec![],
            story: vec![],
            queries: 0,
            time: Duration::ZERO,
        }
    }
}

impl Verification {
    /// Adds another proof, which the verdict needs too, to this one.
    fn add(&mut self, title: &str, other: Verification) {
        self.story.push(Step { depth: 0, text: title.into() });
        self.story.extend(other.story.into_iter().map(|step| Step { depth: step.depth + 1, ..step }));
        self.assumptions.extend(other.assumptions);
        self.assumptions.sort();
        self.assumptions.dedup();
        self.queries += other.queries;
        self.time += other.time;
        if !other.verdict.is_proved() {
            self.verdict = other.verdict;
        }
    }
}

/// Proves a kernel against itself, under the built-in shape of its contract.
pub fn verify(problem: &Problem, solver: &mut Solver) -> Result<Verification, SolverError> {
    verify_pair(problem, problem, solver)
}

/// Proves that two specialisations give equal selected outputs for equal selected inputs: for each value of `USE`, where they have
/// it.
pub fn verify_pair(left: &Problem, right: &Problem, solver: &mut Solver) -> Result<Verification, SolverError> {
    let mut verification = verify_case(left, right, solver)?;
    verification.contract = contract_name(left);
    let pairs = |of: fn(&Uses) -> &Option<Box<Problem>>| [of(&left.uses), of(&right.uses)].map(Option::as_deref);
    for (value, pair) in [(1, pairs(|uses| &uses.windowed)), (FOLDED, pairs(|uses| &uses.folded))] {
        match pair {
            _ if !verification.verdict.is_proved() => break,
            [None, None] => {}
            [Some(l), Some(r)] => verification.add(&format!("where {USE} is {value}:"), verify_case(l, r, solver)?),
            _ => {
                let why = format!("{USE} has other values in the two kernels");
                verification.verdict = Verdict::Unknown(Failure::new(Obligation::Contract, Line::default(), why));
            }
        }
    }
    Ok(verification)
}

/// Adds to the proof of an attention that it gives the bits of its two launches where it folds its own splits. `second` is the
/// second launch. The pairs are those of `folded.rs`.
pub fn verify_folded(
    problem: &Problem,
    second: &Problem,
    verification: &mut Verification,
    solver: &mut Solver,
) -> Result<(), SolverError> {
    let (Some(storing), Some(folded)) = (&problem.uses.storing, &problem.uses.folded) else { return Ok(()) };
    let pairs: [(String, &Problem, &Problem); 3] = [
        (format!("where {USE} is 3 in one run and 0 in the other:"), storing, problem),
        (format!("where {USE} is 3, in the place of {}:", second.name), storing, second),
        (format!("where {USE} is {FOLDED} in one run and 3 in the other:"), folded, storing),
    ];
    for (title, left, right) in pairs {
        if verification.verdict.is_proved() {
            verification.add(&title, verify_case(left, right, solver)?);
        }
    }
    if verification.verdict.is_proved() {
        verification.stands_for.push(StandsFor { kernel: second.name.clone(), ttir_hash: second.ttir_hash.clone() });
    }
    Ok(())
}

fn verify_case(left: &Problem, right: &Problem, solver: &mut Solver) -> Result<Verification, SolverError> {
    // The rules follow operands recursively, as deep as the lifting allows a chain of them.
    std::thread::scope(|scope| {
        let deep = std::thread::Builder::new().stack_size(STACK);
        let proof = deep.spawn_scoped(scope, || verify_here(left, right, solver)).map_err(SolverError::NoThread)?;
        proof.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Bytes of the stack of a proof; pages that are not touched cost nothing.
const STACK: usize = 256 << 20;

fn verify_here(left: &Problem, right: &Problem, solver: &mut Solver) -> Result<Verification, SolverError> {
    let start = Instant::now();
    let same = std::ptr::eq(left, right);
    let mut prover = Prover::new(left, right, solver);
    let outcome = prove(&mut prover, same);
    let verdict = match outcome {
        _ if prover.t.budget.exhausted() => Verdict::Unknown(too_many_cases(&prover, outcome)),
        Ok(()) if prover.t.spoiled => Verdict::Unknown(Failure::new(
            Obligation::NoWrap,
            Line::default(),
            "a constant or a product of sums is too large for the verifier, or a bit is counted with",
        )),
        Ok(()) => Verdict::Proved,
        Err(Trouble::Failed(mut failure)) => {
            if prover.gave_up > 0 {
                failure.why += "; this may hold nevertheless, because the solver gave up on some questions";
            }
            Verdict::Unknown(failure)
        }
        Err(Trouble::Solver(error)) => return Err(error),
    };
    Ok(Verification {
        name: if same { left.name.clone() } else { format!("{} == {}", left.name, right.name) },
        contract: contract_name(left),
        verdict,
        assumptions: prover.assumptions.into_iter().collect(),
        stands_for: vec![],
        story: prover.story,
        queries: prover.queries,
        time: start.elapsed(),
    })
}

/// The line is where the proof stopped.
fn too_many_cases(prover: &Prover, outcome: Proof) -> Failure {
    let why = match prover.gave_up > GIVEN_UP_MAX {
        true => "the solver gave up on too many questions",
        false => "the proof needs more steps than the verifier takes for one kernel",
    };
    let failure = Failure::new(Obligation::TooManyCases, Line::default(), why);
    match outcome {
        Err(Trouble::Failed(at)) => Failure { ttir_line: at.ttir_line, python_line: at.python_line, ..failure },
        _ => failure,
    }
}

/// As [`verify_pair`]; a pair that is not proved is replayed on the interpreter, `replays` times at most, and is refuted if
/// two related runs give different bits. `left` and `right` may be one problem.
pub fn verify_or_refute(
    left: &Problem,
    right: &Problem,
    replays: u64,
    solver: &mut Solver,
) -> Result<Verification, SolverError> {
    let mut verification = verify_pair(left, right, solver)?;
    if let Verdict::Unknown(failure) = &verification.verdict
        && let Some(counterexample) = crate::replay::search(left, right, 0..replays).different()
    {
        verification.verdict = Verdict::Refuted { failure: failure.clone(), counterexample };
    }
    Ok(verification)
}

/// Adds to a kernel's own proof that it gives the bits of another, in whose place it may run: a row of equal inputs has
/// equal outputs in a run of the one and a run of the other.
pub fn verify_in_place_of(
    first: &Problem,
    problem: &Problem,
    verification: &mut Verification,
    replays: u64,
    solver: &mut Solver,
) -> Result<(), SolverError> {
    let pair = verify_or_refute(first, problem, replays, solver)?;
    if pair.verdict.is_proved() {
        verification.stands_for.push(StandsFor { kernel: first.name.clone(), ttir_hash: first.ttir_hash.clone() });
    }
    verification.add(&format!("in the place of {}:", first.name), pair);
    Ok(())
}

/// The contract in a few words: `row-wise`, `causal, window 512`.
pub fn contract_name(problem: &Problem) -> String {
    let Uses { windowed, folded, .. } = &problem.uses;
    let other = |value, of: &Option<Box<Problem>>| Some(format!("{} where it is {value}", promise(of.as_ref()?)));
    let others: Vec<String> = [other(1, windowed), other(FOLDED, folded)].into_iter().flatten().collect();
    if !others.is_empty() {
        return format!("{} where {USE} is 0, {}", promise(problem), others.join(", "));
    }
    promise(problem)
}

fn promise(problem: &Problem) -> String {
    match problem.premises {
        Premises::Rowwise { .. } => "row-wise".into(),
        Premises::StoreKv { .. } if problem.role(Role::Out(0)).is_some() => "exact effect and row-wise".into(),
        Premises::StoreKv { .. } => "exact effect".into(),
        Premises::Attend { window: Some(w), .. } => format!("causal, window {}", extent(problem, &w)),
        Premises::Attend { window: None, .. } => "causal".into(),
        Premises::AttendPart { splits, .. } => format!("causal, splits of {}", splits.size),
        Premises::AttendCombine { splits, .. } => format!("sum of splits of {}", splits.size),
        Premises::RecurStore { page } => format!("exact effect, looks back {page}"),
        Premises::RecurRead { page, .. } => format!("causal, page of {page} and the one before"),
    }
}

/// The claim as a person would say it.
fn claim(problem: &Problem) -> String {
    let names = |wanted: fn(Role) -> bool| {
        let list: Vec<String> =
            problem.buffers.iter().filter(|b| wanted(b.role)).map(|b| format!("`{}`", b.name)).collect();
        list.join(" and ")
    };
    let (ins, outs) = (names(|r| matches!(r, Role::In(_))), names(|r| matches!(r, Role::Out(_))));
    let mut same = vec![];
    if !ins.is_empty() {
        let gathered =
            if problem.role(Role::RowIndex).is_some() { ", at the packed rows that the index names" } else { "" };
        same.push(format!("hold the same in {ins}{gathered}"));
    }
    if problem.role(Role::Tokens).is_some() {
        same.push("hold the same token".into());
    }
    if problem.role(Role::Positions).is_some() {
        same.push("stand at the same position".into());
    }
    let same = same.join(" and ");
    match problem.premises {
        Premises::Rowwise { .. } => format!(
            "claim: if row x of run L and row y of run R {same}, {outs}[x, :] of L and {outs}[y, :] of R are the same, whatever else is in the two batches"
        ),
        Premises::StoreKv { .. } => {
            let rows = if outs.is_empty() {
                outs
            } else {
                format!(
                    ", and {outs}[x, :] of L and {outs}[y, :] of R are the same, whatever else is in the two batches"
                )
            };
            format!(
                "claim: if row x of run L and row y of run R {same}, the cells of their slots get the same, finite values, and only slots of live rows are written{rows}"
            )
        }
        Premises::AttendPart { splits, .. } if problem.shape == Shape::AttendFolded => {
            let (size, parts) = (splits.size, names(|r| matches!(r, Role::Scratch(_))));
            format!(
                "claim: if position p is row x of run L and row y of run R, with the same query and the same keys and values at 0 <= j <= p through each run's page table, {outs}[x, :] of L and {outs}[y, :] of R are the same, and, if p >= {size}, for each split s with s * {size} <= p, {parts}[s, x] and {parts}[s, y], so far as the other run is to write them"
            )
        }
        Premises::AttendPart { splits, .. } => {
            let (size, parts) = (splits.size, names(|r| matches!(r, Role::Scratch(_))));
            format!(
                "claim: if position p is row x of run L and row y of run R, with the same query and the same keys and values at 0 <= j <= p through each run's page table, then, if p < {size}, {outs}[x, :] of L and {outs}[y, :] of R are the same, and otherwise, for each split s with s * {size} <= p, {parts}[s, x] of L and {parts}[s, y] of R are, whatever pages, chunks, other keys and other requests there are; rows of {outs} at other positions are left alone"
            )
        }
        Premises::AttendCombine { splits, .. } => {
            let (size, parts) = (splits.size, names(|r| matches!(r, Role::Scratch(_))));
            format!(
                "claim: if position p >= {size} is row x of run L and row y of run R, with {parts}[s, x] of L and {parts}[s, y] of R the same for each split s with s * {size} <= p, {outs}[x, :] of L and {outs}[y, :] of R are the same, whatever stands in other splits and rows; rows of {outs} at other positions are left alone"
            )
        }
        Premises::RecurStore { page } => format!(
            "claim: if position p is row x of run L and row y of run R, which {same}, and the entries at p - {page} <= j < p are the same after the two runs through each run's page table, the cells of p's entry get the same, finite values, whatever pages, chunks, other rows and other requests there are; only cells of live rows' entries are written, and no cell is read that is"
        ),
        Premises::RecurRead { page, .. } => format!(
            "claim: if position p is row x of run L and row y of run R, which {same}, and the entries at p - {page} <= j <= p are the same through each run's page table, {outs}[x, :] of L and {outs}[y, :] of R are the same, whatever pages, chunks, other entries and other requests there are"
        ),
        Premises::Attend { window, .. } => {
            let keys = window.map_or("0 <= j <= p".to_string(), |w| format!("p - {} < j <= p", extent(problem, &w)));
            format!(
                "claim: if position p is row x of run L and row y of run R, with the same query and the same keys and values at {keys} through each run's page table, {outs}[x, :] of L and {outs}[y, :] of R are the same, whatever pages, chunks, other keys and other requests there are"
            )
        }
    }
}

fn prove(p: &mut Prover, same: bool) -> Proof {
    let compared = compatible(p)?;
    let claimed = claim(p.runs[0].problem);
    p.tell(claimed);
    consistent(p)?;
    p.tell("one run at a time:");
    p.depth += 1;
    p.unary(Side::L)?;
    if same {
        let wrapping = p.runs[0].wrapping().clone();
        p.runs[1].wraps_as(wrapping);
    } else {
        p.unary(Side::R)?;
    }
    p.depth -= 1;
    p.assumptions.insert(Assumption::NanPayload);
    relate(p, compared)
}

/// What is compared of a pair's outputs.
#[derive(Clone, Copy, PartialEq)]
enum Compared {
    /// All that both write.
    All,
    /// Output rows: only one of the runs writes partial results, or only one reads them.
    Rows,
}

/// A pair must have one contract: shape, roles, extents, dimensions, conditions and premises. A condition may have another bound if
/// nothing reads its dimensions. The pairs of `folded.rs` have two contracts.
fn compatible(p: &Prover) -> Proof<Compared> {
    let (a, b) = (p.runs[0].problem, p.runs[1].problem);
    let line = Line::default();
    let compared = match (a.shape, b.shape) {
        (x, y) if x == y => Compared::All,
        (Shape::AttendFolded, Shape::AttendPart) => Compared::All,
        (Shape::AttendFolded, Shape::AttendCombine) if [a, b].into_iter().any(reads_height) => {
            let why = format!("a kernel reads {HEIGHT}, which is another number in each of two launches");
            return p.fail(Obligation::Contract, line, why);
        }
        (Shape::Attend, Shape::AttendFolded) | (Shape::AttendFolded, Shape::AttendCombine) => Compared::Rows,
        _ => return p.fail(Obligation::Contract, line, "the two kernels have contracts of different shapes"),
    };
    let alone = |role: Role| compared == Compared::Rows && matches!(role, Role::Scratch(_)) && a.shape == Shape::Attend;
    for buffer in b.buffers.iter().filter(|buffer| !alone(buffer.role)) {
        let twin = a.buffers.iter().find(|o| o.role == buffer.role);
        if twin.is_none_or(|t| (a.extents(t), t.elem) != (b.extents(buffer), buffer.elem)) {
            let why = format!("`{}` has no counterpart of the same extents and type in the other kernel", buffer.name);
            return p.fail(Obligation::Contract, line, why);
        }
    }
    let premises = [a, b].map(|problem| {
        let own = problem.premises;
        (own.vocabulary(), own.page(), own.window(), own.splits())
    });
    let (ours, theirs) = (&a.numbers, &b.numbers);
    let known = theirs.iter().all(|n| ours.contains(n))
        && b.conditions.iter().all(|c| a.conditions.iter().any(|own| own.text == c.text));
    let alike = |(own, other): (&Condition, &Condition)| {
        let unread = || own.numbers().all(|at| !a.reads(at) && !b.reads(at));
        own == other || own.text == other.text && unread()
    };
    let all = a.conditions.len() == b.conditions.len() && a.conditions.iter().zip(&b.conditions).all(alike);
    let whole = b.shape == Shape::AttendCombine || ours == theirs && all;
    if !known || !whole {
        return p.fail(
            Obligation::Contract,
            line,
            "the two kernels have other dimensions or conditions, or take them in another order",
        );
    }
    let same = match compared {
        Compared::All => a.buffers.len() == b.buffers.len() && premises[0] == premises[1],
        Compared::Rows => b.shape != Shape::AttendCombine || a.splits() == b.splits(),
    };
    if !same {
        return p.fail(Obligation::Contract, line, "the two kernels have different buffers, windows or splits");
    }
    Ok(compared)
}

/// The premises about the chosen rows and about both runs at once.
fn premises(p: &mut Prover) -> Vec<Term> {
    let mut premises = [&p.chosen[0].facts[..], &p.chosen[1].facts[..]].concat();
    let (problem, chosen) = (p.runs[0].problem, p.chosen.clone());
    let worlds = [p.runs[0].world.clone(), p.runs[1].world.clone()];
    premises.extend(shared_facts(&mut p.t, problem, (&worlds[0], &chosen[0]), (&worlds[1], &chosen[1])));
    premises
}

/// The premises have a model: from premises that contradict each other everything would follow.
fn consistent(p: &mut Prover) -> Proof {
    let premises = premises(p);
    let len = p.context.len();
    p.context.extend(premises);
    let possible = p.satisfiable();
    p.context.truncate(len);
    match possible? {
        true => Ok(()),
        false => {
            p.fail(Obligation::Premises, Line::default(), "the contract contradicts itself: no run has such a row")
        }
    }
}

fn relate(p: &mut Prover, compared: Compared) -> Proof {
    let programs = [p.program(Side::L), p.program(Side::R)];
    let left = p.sites(Side::L, programs[0])?;
    let right = p.sites(Side::R, programs[1])?;
    let mut left = p.stores(Side::L, &left)?;
    let right = p.stores(Side::R, &right)?;
    if compared == Compared::Rows {
        left.retain(|store| matches!(p.runs[0].problem.buffers[store.param].role, Role::Out(_)));
    }
    if left.is_empty() {
        return p.fail(Obligation::Coverage, Line::default(), "the kernel stores nothing");
    }
    let premises = premises(p);
    // The roles for which two runs that really differ were found. If the premises contradict each other, there are none.
    let mut apart = vec![];
    p.under(&premises, |p| {
        let left = p.placed(Side::L, &left)?;
        let right = p.placed(Side::R, &right)?;
        for a in &left {
            for b in &right {
                let role = |side: usize, store: &Placed| p.runs[side].problem.buffers[store.access.param].role;
                if a.happens() && b.happens() && role(0, a) == role(1, b) {
                    relate_stores(p, a, b, &mut apart)?;
                }
            }
        }
        Ok(())
    })?;
    let role = |p: &Prover, access: &Access| p.runs[0].problem.buffers[access.param].role;
    let Some(alike) = left.iter().find(|access| !apart.contains(&role(p, access))) else {
        return Ok(());
    };
    let why = "no two runs that are really apart satisfy the premises, or the solver found none: nothing is proved";
    p.fail(Obligation::Premises, alike.site.op.line, why)
}

/// Proves that two stores to the chosen cells store equal values. `apart` collects the roles for which two runs that really
/// differ were found.
fn relate_stores<'k>(
    p: &mut Prover<'k, '_>,
    left: &Placed<'_, 'k>,
    right: &Placed<'_, 'k>,
    apart: &mut Vec<Role>,
) -> Proof {
    let (a, b) = (left.access, right.access);
    let role = p.runs[0].problem.buffers[a.param].role;
    let guards = [&a.guard[..], &b.guard[..]].concat();
    p.under(&guards, |p| {
        let chosen = chosen_cells(p, left, right)?;
        p.under(&chosen, |p| {
            if !apart.contains(&role) && separated(p, a, b, role)? {
                apart.push(role);
            }
            if !std::ptr::eq(a.site.op, b.site.op) && p.impossible()? {
                return Ok(()); // stores to different cells
            }
            let (Some(v), Some(w)) = (stored(a), stored(b)) else {
                return p.fail(Obligation::Alignment, a.site.op.line, "not a store");
            };
            let at = a.site.op.line.python.map(|l| format!(" at Python line {l}")).unwrap_or_default();
            p.tell(format!("the value stored{at} is the same in both runs, because:"));
            p.depth += 1;
            let l = At::new(v, a.lanes.clone(), &a.site.env);
            let r = At::new(w, b.lanes.clone(), &b.site.env);
            let context = p.context.clone();
            let result = recur::settled(p, a, b, [l, r]).and_then(|[l, r]| p.equal(&l, &r, Mode::Exact));
            p.context = context;
            p.depth -= 1;
            result
        })
    })
}

fn stored(access: &Access) -> Option<vosti_tile::Value> {
    match &access.site.op.kind {
        OpKind::Store { value, .. } | OpKind::StoreBlock { value, .. } => Some(*value),
        _ => None,
    }
}

/// The conditions that both stores write the cell that the contract compares.
fn chosen_cells(p: &mut Prover, left: &Placed, right: &Placed) -> Proof<Vec<Term>> {
    let (a, b, l, r) = (left.access, right.access, &left.cell, &right.cell);
    let mut facts = vec![];
    if p.runs[0].problem.shape == Shape::RecurStore {
        return recur::chosen_slots(p, a, b);
    }
    let role = p.runs[0].problem.buffers[a.param].role;
    let kv = p.runs[0].problem.shape == Shape::StoreKv && role.is_cache();
    // The place of the axis of rows.
    let rows = if let Role::Scratch(_) = role { 1 } else { 0 };
    for (side, c) in [(0, l), (1, r)] {
        let row = p.chosen[side].row;
        if !kv {
            facts.push(p.t.eq(c[rows], row));
            if let (1, Some(split)) = (rows, p.chosen[side].split) {
                facts.push(p.t.eq(c[0], split));
            }
            facts.extend(p.named(if side == 0 { Side::L } else { Side::R }, role));
            continue;
        }
        let world = p.runs[side].world.clone();
        let slot = world.read(&mut p.t, Role::Slots, row).zip(p.runs[side].problem.premises.page());
        let Some((slot, page)) = slot else {
            return p.fail(Obligation::Subset, a.site.op.line, "no slots");
        };
        let (number, within) = (p.t.div(slot, page), p.t.rem(slot, page));
        facts.push(p.t.eq(c[0], number));
        facts.push(p.t.eq(c[2], within));
    }
    for (i, (x, y)) in l.iter().zip(r).enumerate() {
        if i != rows && !(kv && i == 2) {
            facts.push(p.t.eq(*x, *y));
        }
    }
    Ok(facts)
}
