//! A kernel's own text and its normal form, run side by side on the plain interpreter.
//!
//! The steps of `normal` keep what a kernel computes. [`twins`] looks for a text of which they do not: it changes kernels at random,
//! brings each change to the normal form, and runs both. Two runs that differ are a fault of a step, whether the change can be proved or
//! not. A text whose normal form has other functions in it is not run: `examples/random.rs` runs what Triton compiles of such texts.

use crate::compiled::{grid, holds, integer};
use crate::contract::{self, Claim, Constants, plain};
use crate::error::{self, AuditError};
use crate::normal::{self, Launch, Line, Module, Programs};
use crate::{Request, render, rendering};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use vosti_contract::{Dtype, Number, NumberKind, Param, expr};
use vosti_tile::interp::{Buffer, Fault, Options, Order, run};
use vosti_tile::{Kernel, Literal, Scalar, bind, lift};
use vosti_verify::replay::Random;

/// What became of changed texts.
#[derive(Clone, Debug, Default)]
pub struct Twins {
    /// How many of each kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// Texts that run otherwise than their normal form, in words.
    pub differ: Vec<String>,
}

/// A text and what is claimed of it.
struct Base<'c> {
    claim: &'c Claim,
    constants: Constants,
    launch: Launch,
    lines: Vec<Line>,
}

/// Launches of one changed text.
const LAUNCHES: usize = 6;
/// The most operations of a run.
const OPERATIONS: u64 = 200_000;
const SIZES: [i64; 12] = [1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 40, 64];
const ROWS_MOST: usize = 9;

/// Changes the kernels of a file `count` times.
pub fn twins(python: &Path, request: &Request, seed: u64, count: u64) -> Result<Twins, AuditError> {
    let beside = request.contracts().display().to_string();
    let claims = contract::read(&beside, &error::text_of(&request.contracts(), "")?)?;
    let mut asked = vec![];
    for claim in &claims {
        let wrong = |why| claim.wrong(&beside, why);
        for (_, constants) in claim.launches(&[]).map_err(wrong)? {
            asked.push((claim, rendering(claim, &constants).map_err(wrong)?, constants));
        }
    }
    let requests: Vec<_> = asked.iter().map(|(_, request, _)| request.clone()).collect();
    let texts = render::texts(python, &request.path, &requests)?.texts;
    let mut bases = vec![];
    for ((claim, _, constants), choices) in asked.into_iter().zip(texts) {
        for choice in choices.into_iter().flatten() {
            let all = crate::with("", &constants, &choice.chosen).1;
            let wrong = |why| claim.wrong(&beside, why);
            let launch = claim.launch(&all).map_err(wrong)?;
            let Ok(lines) = choice.lines() else { continue };
            bases.push(Base { claim, constants: all, launch, lines });
        }
    }
    let mut twins = Twins::default();
    // A base that does not run as it is would only be skipped.
    bases.retain(|base| matches!(base.compared(&base.lines, &mut Random::new(seed)), Ok("the same")));
    twins.counts.insert("kernels", bases.len() as u64);
    for turn in 0..count {
        let Some(base) = bases.get(turn as usize % bases.len().max(1)) else { break };
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ turn);
        let mut lines = base.lines.clone();
        let mut what = vec![];
        for _ in 0..random.between(1, 3) {
            what.extend(changed(&mut lines, &mut random));
        }
        match base.compared(&lines, &mut random) {
            Ok(kind) => *twins.counts.entry(kind).or_default() += 1,
            Err(how) => {
                *twins.counts.entry("DIFFERENT").or_default() += 1;
                twins.differ.push(format!("{} (turn {turn}): {how}\n  {}", base.claim.function, what.join("\n  ")));
            }
        }
    }
    Ok(twins)
}

impl Base<'_> {
    /// What became of a text; an error says how its runs differ.
    fn compared(&self, lines: &[Line], random: &mut Random) -> Result<&'static str, String> {
        let normal = match normal::normal(lines.to_vec(), &self.launch) {
            Ok(normal) if normal.stand_ins.is_empty() => normal,
            Ok(_) => return Ok("with another function"),
            Err(_) => return Ok("refused"),
        };
        let Some(own) = Module::read(lines.to_vec()).and_then(|module| lift(&module.print()).ok()) else {
            return Ok("not run: its text is not read");
        };
        let Ok(form) = lift(&normal.text) else { return Ok("refused") };
        let mut ran = 0;
        for _ in 0..LAUNCHES {
            if self.pair(&own, &form, random)? {
                ran += 1;
            }
        }
        Ok(if ran > 0 { "the same" } else { "not run: it faults, or its order is seen" })
    }

    /// One launch of both. False if it has no one result.
    fn pair(&self, own: &Kernel, form: &Kernel, random: &mut Random) -> Result<bool, String> {
        let rows = random.between(1, ROWS_MOST);
        let Some(sizes) = self.sizes(random) else { return Ok(false) };
        let lookup = integer(&self.constants, &sizes, rows);
        let Ok(launched) = grid(self.claim, &lookup, random) else { return Ok(false) };
        let whole = self.whole(&lookup, launched, random);
        let Some(buffers) = self.buffers(&lookup, random) else { return Ok(false) };
        let mut values: BTreeMap<String, Literal> =
            sizes.iter().map(|(name, n)| (name.clone(), Literal::Int(*n))).collect();
        for (name, factors) in
            self.claim.written.params.iter().filter_map(|(n, role)| Some((n, role.trim().strip_prefix('=')?)))
        {
            let Ok(n) = expr::eval(factors.trim(), &lookup) else { return Ok(false) };
            values.insert(name.clone(), Literal::Int(n));
        }
        if let Some(name) = self.claim.rows() {
            values.insert(name, Literal::Int(rows as i64));
        }
        let seed = random.draw();
        let orders = [Order::Ascending, Order::Descending, Order::Shuffled(seed)];
        let [first, others @ ..] = orders.map(|order| result(own, &buffers, &values, rows, launched, order));
        let normal = orders.map(|order| result(form, &buffers, &values, rows, whole, order));
        // The turns of one program have an order, which the normal form does not: its programs write no cell twice, says the verifier.
        let seen = others.iter().any(|other| *other != first) || normal.iter().any(|other| *other != normal[0]);
        if seen || [&first, &normal[0]].contains(&&Ran::Aside) {
            return Ok(false);
        }
        match first.apart(&normal[0]) {
            None => Ok(first != Ran::Fault),
            Some(how) => Err(format!("{rows} rows, {sizes:?}, programs {launched:?} and {whole:?}: {how}")),
        }
    }

    fn sizes(&self, random: &mut Random) -> Option<BTreeMap<String, i64>> {
        for _ in 0..64 {
            let mut sizes = BTreeMap::new();
            for (name, role) in &self.claim.written.params {
                if let Some(Ok(Number { kind: NumberKind::Dimension { lo, hi }, .. })) = Number::parse(name, role) {
                    sizes.insert(name.clone(), SIZES[random.below(SIZES.len())].clamp(lo, hi));
                }
            }
            if holds(self.claim, &integer(&self.constants, &sizes, 1)) {
                return Some(sizes);
            }
        }
        None
    }

    /// The programs of the normal form: all of each count, and some that have no rows.
    fn whole(&self, lookup: &dyn Fn(&str) -> Option<i64>, launched: [u32; 3], random: &mut Random) -> [usize; 3] {
        let mut whole = launched.map(|n| n as usize);
        if let Some(tiles) = &self.launch.tiles
            && let Some((outer, inner)) = contract::in_turn(&self.claim.written.grid[tiles.axis]).0.split_once(" * ")
        {
            let value = |text: &str| expr::eval(text.trim(), lookup).ok().and_then(|n| usize::try_from(n).ok());
            (whole[tiles.axis], whole[tiles.added]) = (value(outer).unwrap_or(0), value(inner).unwrap_or(0));
        }
        for (axis, programs) in &self.launch.axes {
            if *programs == Programs::InTurn {
                whole[*axis] = lookup("rows").map_or(0, |n| n as usize);
            }
            let times = if let Programs::Exactly { times, .. } = programs { *times as usize } else { 1 };
            whole[*axis] += random.below(3) * times;
        }
        whole
    }

    fn buffers(&self, lookup: &dyn Fn(&str) -> Option<i64>, random: &mut Random) -> Option<BTreeMap<String, Buffer>> {
        let mut all = BTreeMap::new();
        for (name, role) in &self.claim.written.params {
            let Some(extents) = self.claim.written.shapes.get(name) else { continue };
            let elem = match Param::parse(name, &plain(role))?.elem(Dtype::Bf16) {
                Dtype::Bf16 => Scalar::Bf16,
                Dtype::F32 => Scalar::F32,
                Dtype::I8 => Scalar::I8,
                Dtype::I32 => Scalar::I32,
            };
            let value = |text: &String| usize::try_from(expr::eval(text.trim(), lookup).ok()?).ok();
            let len = extents.iter().try_fold(1usize, |n, text| n.checked_mul(value(text)?))?;
            let mut buffer = Buffer::zeros(elem, (len <= 1 << 16).then_some(len)?);
            for at in 0..len {
                let x = (random.draw() >> 40) as f32 / (1u64 << 24) as f32 * 4.0 - 2.0;
                let bits = match elem {
                    Scalar::F32 => u64::from(x.to_bits()),
                    Scalar::Bf16 => u64::from(x.to_bits() >> 16),
                    _ => (x * 8.0) as i64 as u64,
                };
                buffer.set_bits(at, bits);
            }
            all.insert(name.clone(), buffer);
        }
        Some(all)
    }
}

/// What a run gave: the buffers of the contract, that it stopped, or nothing that can be compared.
#[derive(Clone, Debug, PartialEq)]
enum Ran {
    Buffers(BTreeMap<String, Buffer>),
    Fault,
    Aside,
}

impl Ran {
    /// How two runs differ, in words.
    fn apart(&self, other: &Ran) -> Option<String> {
        let (Ran::Buffers(own), Ran::Buffers(others)) = (self, other) else {
            let word = |ran: &Ran| if *ran == Ran::Fault { "stops" } else { "runs" };
            return (self != other).then(|| format!("one {} and the other {}", word(self), word(other)));
        };
        own.iter().zip(others).find_map(|((name, a), (_, b))| {
            let at = (0..a.len()).find(|at| a.bits(*at) != b.bits(*at))?;
            Some(format!("`{name}` differs at {at}: {:#x} and {:#x}", a.bits(at), b.bits(at)))
        })
    }
}

fn result(
    kernel: &Kernel,
    buffers: &BTreeMap<String, Buffer>,
    values: &BTreeMap<String, Literal>,
    rows: usize,
    grid: [impl TryInto<usize>; 3],
    order: Order,
) -> Ran {
    let Ok(bound) = bind(kernel, values) else { return Ran::Aside };
    let count = || Buffer::I32(vec![rows as i32]);
    let mut memory: Vec<Buffer> =
        bound.params.iter().map(|param| buffers.get(&param.name).cloned().unwrap_or_else(count)).collect();
    let options = Options { order, operations_max: Some(OPERATIONS), ..Options::default() };
    let grid = grid.map(|n| n.try_into().unwrap_or(usize::MAX));
    match run(&bound, &mut memory, grid, &options) {
        Ok(()) => {
            let named = bound.params.iter().map(|param| param.name.clone()).zip(memory);
            Ran::Buffers(named.filter(|(name, _)| buffers.contains_key(name)).collect())
        }
        Err(error) => match error.reason {
            Fault::OutOfBounds { .. } => Ran::Fault,
            _ => Ran::Aside,
        },
    }
}

/// Operations on two integers, and orders of two integers.
const WORDS: [&[&str]; 4] = [
    &["arith.addi", "arith.subi", "arith.muli", "arith.divsi", "arith.remsi", "arith.minsi", "arith.maxsi"],
    &["slt", "sle", "sgt", "sge", "eq", "ne"],
    &["tt.get_program_id", "tt.get_num_programs"],
    &["x : i32", "y : i32", "z : i32"],
];

/// Changes one line, and gives it in words: another operation, number or integer, or its place.
fn changed(lines: &mut [Line], random: &mut Random) -> Option<String> {
    let integers =
        |line: &Line| line.text.ends_with(": i32") || line.text.contains("scf.for") || line.text.contains("scf.yield");
    let places: Vec<usize> = (0..lines.len()).filter(|at| integers(&lines[*at]) || random.below(8) == 0).collect();
    let at = *places.get(random.below(places.len()))?;
    let before = lines[at].text.clone();
    let text = match random.below(8) {
        0 if at + 1 < lines.len() => {
            lines.swap(at, at + 1);
            return Some(format!("line {at} and the next: {}", before.trim()));
        }
        1 | 2 => word(&before, random),
        3 => number(&before, random),
        _ => operand(lines, at, random),
    }?;
    lines[at].text.clone_from(&text);
    Some(format!("line {at}: {} -> {}", before.trim(), text.trim()))
}

fn word(line: &str, random: &mut Random) -> Option<String> {
    let kind = WORDS.iter().find(|kind| kind.iter().any(|word| line.contains(*word)))?;
    let own = kind.iter().find(|word| line.contains(**word))?;
    Some(line.replacen(own, kind[random.below(kind.len())], 1))
}

fn number(line: &str, random: &mut Random) -> Option<String> {
    let (name, rest) = line.split_once(" = arith.constant ")?;
    let (n, ty) = rest.split_once(" : ")?;
    let n: i64 = n.parse().ok()?;
    let other = [n + 1, n - 1, n * 2, 1, 0, 3][random.below(6)];
    Some(format!("{name} = arith.constant {other} : {ty}"))
}

/// Another integer of the function in an operand's place.
fn operand(lines: &[Line], at: usize, random: &mut Random) -> Option<String> {
    let line = &lines[at].text;
    let start = lines[..at].iter().rposition(|line| line.text.starts_with("  tt.func"))?;
    let mut known: BTreeSet<String> = BTreeSet::new();
    for (_, part) in lines[start].text.split(", ").filter_map(|part| part.split_once('%')) {
        known.extend(part.split_once(": i32").map(|(name, _)| name.to_string()));
    }
    for line in lines[start + 1..at].iter().map(|line| line.text.trim_start()) {
        if let Some((name, rest)) = line.strip_prefix('%').and_then(|line| line.split_once(" = "))
            && (rest.ends_with(": i32") || rest.ends_with("-> i32"))
        {
            known.insert(name.to_string());
        }
        if let Some((index, _)) = line.split_once("scf.for %").and_then(|(_, rest)| rest.split_once(' ')) {
            known.insert(index.to_string());
        }
    }
    let known: Vec<&String> = known.iter().collect();
    let other = known.get(random.below(known.len()))?;
    let body = line.find(" = ").filter(|_| !line.contains("scf.for")).map_or(0, |at| at + 3);
    let uses: Vec<&str> = normal::names(&line[body..]).collect();
    let own = uses.get(random.below(uses.len()))?;
    Some(line[..body].to_string() + &normal::renamed(&line[body..], own, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operand_is_another_integer_of_the_function() {
        let lines = [
            "  tt.func public @k(%x: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {",
            "    %t = tt.get_program_id x : i32",
            "    %m = arith.divsi %t, %t : i32",
        ];
        let lines: Vec<Line> = lines.iter().map(|text| Line::new(*text, None)).collect();
        let all: BTreeSet<String> = (0..40).filter_map(|seed| operand(&lines, 2, &mut Random::new(seed))).collect();
        let wanted = ["%t, %t", "%n, %n"].map(|operands| format!("    %m = arith.divsi {operands} : i32"));
        assert_eq!(all, wanted.into());
    }
}
