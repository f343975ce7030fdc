//! Tiles of two axes that are numbered on one axis of the grid, as one axis for each: `pid // cdiv(N, BN)`, groups of rows of
//! tiles, and a loop that takes the tiles in turn.
//!
//! A kernel whose launch has `P * Q` tiles may depend on a tile's number `t` by a pair (m, n) alone. Where `t -> (m, n)` is one to one
//! from `0..P * Q` onto `0..P` times `0..Q`, a launch with one program for each pair runs the same bodies; nothing that is stored is
//! read, which the verifier proves, so their order is not seen. Three numberings are known, each also with the axes swapped:
//!
//! - `m = t / Q`, `n = t % Q`.
//! - In groups of `G` rows, with `W = G * Q`, `first = t / W * G`, `s = min(P - first, G)`: `m = first + (t % W) % s`, `n = (t % W) / s`.
//! - The same with `m = first + t % s`.
//!
//! The groups are one to one: let `t = g * W + r` with `r < W`. From `t < P * Q` follows `g * G < P`, so `s` is at least 1, and `r < s * Q`:
//! if `s = G` that is `W`, and else `P * Q - g * W = s * Q`. The `r` of one `n` are the `s` numbers from `n * s` on. `(c + r) % s` takes each
//! value below `s` once on them, whatever `c` is (0, or `g * W`). So (m, n) takes each pair of the rows `first..first + s` once, and the
//! groups' rows are disjoint and together `0..P`.
//!
//! Numbers are of 32 bits and wrap. [`Tiles::fits`] says that no value above does; sums and products by constants are equal modulo
//! 2^32 however they are written. Divisions truncate, and all operands are at least 0. Read next: `flow.rs`.

use super::sums::{Sum, Term};
use super::text::bound;
use super::{Line, Module, Stop};
use std::collections::{BTreeMap, BTreeSet};

/// An axis of the grid that numbers the tiles of two axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    /// The axis that numbers them, which becomes that of the outer count.
    pub axis: usize,
    /// The first axis that the launch does not have, which becomes that of the inner count.
    pub added: usize,
    /// P.
    pub outer: Count,
    /// Q.
    pub inner: Count,
    pub turn: Turn,
}

/// `cdiv(of, by)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// An integer parameter, or a number.
    pub of: Of,
    pub by: i64,
    /// The largest value of `of`.
    pub most: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Parameter(String),
    Number(i64),
    /// The number of rows, which the kernel is not told.
    Unknown,
}

/// The programs that take the tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// One a tile.
    No,
    /// Any number, each `program_id`, `program_id + num_programs` and so on.
    ByPrograms,
    /// So many, or one a tile if these are fewer; each `program_id`, `program_id` plus that number and so on.
    By(i64),
}

impl Tiles {
    /// Whether all values of the numberings are below 2^31.
    fn fits(&self, group: i64) -> Option<()> {
        let tiles = |count: &Count| Some(count.most.checked_add(count.by - 1)? / count.by);
        let (p, q) = (tiles(&self.outer)?, tiles(&self.inner)?);
        let step = if let Turn::By(n) = self.turn { n } else { 1 << 20 };
        let sums = [
            self.outer.most.checked_add(self.outer.by)?,
            self.inner.most.checked_add(self.inner.by)?,
            // A number of a tile and one step more; a group and the rows of its last one.
            p.checked_mul(q)?.checked_add(step)?,
            group.checked_mul(q.max(p))?,
            p.max(q).checked_add(group)?,
        ];
        sums.iter().all(|n| i32::try_from(*n).is_ok()).then_some(())
    }
}

/// A count as an integer of the kernel.
fn sum_of(count: &Count) -> Option<Sum> {
    let of = match &count.of {
        Of::Parameter(name) => Sum::of(Term::Parameter(name.clone())),
        Of::Number(n) => Sum::number(*n),
        // No value of the kernel is one with a name that no parameter has.
        Of::Unknown => Sum::of(Term::Parameter("rows that the kernel is not told".into())),
    };
    of.plus(&Sum::number(count.by - 1))?.div(&Sum::number(count.by))
}

/// The pairs (m, n) of the known numberings.
fn numberings(p: &Sum, q: &Sum, groups: &BTreeSet<i64>) -> Option<Vec<(Sum, Sum)>> {
    let t = Sum::of(Term::Tile);
    let mut list = vec![];
    for (p, q, swapped) in [(p, q, false), (q, p, true)] {
        let mut put = |m, n| list.push(if swapped { (n, m) } else { (m, n) });
        put(t.div(q)?, t.rem(q)?);
        for group in groups {
            let g = Sum::number(*group);
            let width = q.mul(&g)?;
            let first = t.div(&width)?.mul(&g)?;
            let inside = t.rem(&width)?;
            let size = p.minus(&first)?.least(&g)?;
            let n = inside.div(&size)?;
            put(first.plus(&inside.rem(&size)?)?, n.clone());
            put(first.plus(&t.rem(&size)?)?, n);
        }
    }
    // A numbering of a single row or column has a pair that no value of the kernel need be.
    list.retain(|(m, n)| m.has(&Term::Tile) && n.has(&Term::Tile));
    Some(list)
}

/// What is known of the integers of a function. A name with two values, in two regions, has none.
#[derive(Default)]
struct Values(BTreeMap<String, Option<Sum>>);

impl Values {
    fn get(&self, name: &str) -> Option<&Sum> {
        self.0.get(name)?.as_ref()
    }

    fn put(&mut self, name: &str, value: Option<Sum>) {
        match self.0.get(name) {
            Some(known) if *known != value => _ = self.0.insert(name.into(), None),
            _ => _ = self.0.insert(name.into(), value),
        }
    }
}

/// How deep helpers may call helpers.
const DEPTH: usize = 8;

/// The value of one operation on integers of 32 bits; None for another operation.
fn operation(op: &str, values: &Values, axis: &str) -> Option<Sum> {
    let operand = |text: &str| values.get(text.trim().strip_prefix('%')?).cloned();
    if op == format!("tt.get_program_id {axis} : i32") {
        return Some(Sum::of(Term::Program));
    }
    if op == format!("tt.get_num_programs {axis} : i32") {
        return Some(Sum::of(Term::Programs));
    }
    if let Some(same) = op.strip_prefix("arith.bitcast ") {
        return operand(same.strip_suffix(" : i32 to i32")?);
    }
    let (word, rest) = op.strip_suffix(" : i32")?.split_once(' ')?;
    if word == "arith.constant" {
        return rest.parse().ok().map(Sum::number);
    }
    let (a, b) = rest.split_once(", ")?;
    let (a, b) = (operand(a)?, operand(b)?);
    match word {
        "arith.addi" => a.plus(&b),
        "arith.subi" => a.minus(&b),
        "arith.muli" => a.mul(&b),
        "arith.divsi" => a.div(&b),
        "arith.remsi" => a.rem(&b),
        "arith.minsi" => a.least(&b),
        _ => None,
    }
}

/// `%name = op` or `%name:2 = op`: name, number of results and operation.
fn definition(line: &str) -> Option<(&str, usize, &str)> {
    let (name, op) = line.trim_start().strip_prefix('%')?.split_once(" = ")?;
    let (name, many) = name.split_once(':').map_or((name, Some(1)), |(name, many)| (name, many.parse().ok()));
    Some((name, many?, op))
}

/// The callee and the arguments of `tt.call @"name"(%a, %b) : (..) -> ..`. A name of Triton's own is quoted, and may hold parentheses.
fn call(op: &str) -> Option<(&str, Vec<&str>)> {
    let rest = op.strip_prefix("tt.call @")?;
    let (name, rest) = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once("\"(")?,
        None => rest.split_once('(')?,
    };
    let (list, _) = rest.split_once(") : ")?;
    Some((name, list.split(", ").filter_map(|name| name.strip_prefix('%')).collect()))
}

/// The results of a helper that computes integers and does nothing else.
fn helper(
    after: &[Line],
    name: &str,
    arguments: Vec<Option<Sum>>,
    axis: &str,
    depth: usize,
) -> Option<Vec<Option<Sum>>> {
    if depth == 0 {
        return None;
    }
    let heads = [format!("  tt.func private @\"{name}\"("), format!("  tt.func private @{name}(")];
    let list = |line: &Line| {
        heads.iter().find_map(|head| line.text.strip_prefix(head)?.split_once(')')).map(|(list, _)| list.to_string())
    };
    let (start, list) = after.iter().enumerate().find_map(|(at, line)| Some((at, list(line)?)))?;
    let names =
        list.split(", ").filter_map(|part| part.trim().strip_prefix('%')?.split_once(": ")).map(|(name, _)| name);
    let mut values = Values::default();
    for (name, value) in names.zip(arguments) {
        values.put(name, value);
    }
    for line in &after[start + 1..] {
        if let Some(results) = line.text.strip_prefix("    tt.return %") {
            let (names, types) = results.split_once(" : ")?;
            let plain = types.split(", ").all(|ty| ty == "i32");
            let value = |name: &str| values.get(name.trim_start_matches('%')).cloned();
            return plain.then(|| names.split(", ").map(value).collect());
        }
        let (name, many, op) = definition(&line.text)?;
        if !op.starts_with("arith.") && !op.starts_with("tt.call ") && !op.starts_with("tt.get_") {
            return None;
        }
        define(&mut values, after, (name, many, op), axis, depth)?;
    }
    None
}

/// Notes what a line of the kernel binds: its integer, or that nothing is known of it. Two regions may give one name to two values, and
/// a name of which both are noted has none.
fn note(values: &mut Values, after: &[Line], line: &str, axis: &str) {
    let defined = definition(line).and_then(|defined| define(values, after, defined, axis, DEPTH).map(|()| defined.0));
    for name in bound(line).into_iter().filter(|name| Some(*name) != defined) {
        values.put(name, None);
    }
    if let (Some((name, many, _)), None) = (definition(line), defined) {
        (0..many).for_each(|at| values.put(&format!("{name}#{at}"), None));
    }
}

/// Notes what an operation defines; None for a call of a helper that does more than to compute integers.
fn define(
    values: &mut Values,
    after: &[Line],
    (name, many, op): (&str, usize, &str),
    axis: &str,
    depth: usize,
) -> Option<()> {
    let Some((callee, arguments)) = call(op) else {
        values.put(name, if many == 1 { operation(op, values, axis) } else { None });
        return Some(());
    };
    let given = arguments.iter().map(|name| values.get(name).cloned()).collect();
    let results = helper(after, callee, given, axis, depth - 1)?;
    for (at, value) in results.into_iter().enumerate() {
        values.put(&if many == 1 { name.to_string() } else { format!("{name}#{at}") }, value);
    }
    Some(())
}

const AXES: [&str; 3] = ["x", "y", "z"];

/// Gives each of the two counts an axis of its own. The launch has `outer * inner` programs on the axis, or those of `turn`.
pub(super) fn apart(module: &mut Module, tiles: &Tiles) -> Result<(), Stop> {
    let python = module.body.iter().find_map(|line| line.python);
    let refused =
        |why: &str, line| Err(Stop::Kernel(format!("axis {} of the grid numbers tiles, and {why}", tiles.axis), line));
    let Some(new) = AXES.get(tiles.added).copied() else {
        return refused("there is no axis left for its second count", python);
    };
    let axis = AXES[tiles.axis];
    let (Some(p), Some(q)) = (sum_of(&tiles.outer), sum_of(&tiles.inner)) else {
        return refused("a count is no i32", python);
    };
    let mut values = Values::default();
    for (name, _) in module.parameters.iter().filter(|(_, ty)| ty == "i32") {
        values.put(name, Some(Sum::of(Term::Parameter(name.clone()))));
    }
    if tiles.turn == Turn::No {
        unturned(&mut values, module, axis);
    } else if let Err(why) = turned(&mut values, module, tiles, axis, (&p, &q)) {
        return refused(
            why,
            module.body.iter().find(|line| line.text.contains("scf.for")).and_then(|line| line.python),
        );
    }
    // A group's rows are a constant of the text.
    let constant =
        |line: &Line| definition(&line.text)?.2.strip_prefix("arith.constant ")?.strip_suffix(" : i32")?.parse().ok();
    let groups = module.body.iter().chain(&module.after).filter_map(constant).chain([1]);
    let known: BTreeSet<i64> =
        groups.filter(|group| (1..=1 << 16).contains(group) && tiles.fits(*group).is_some()).collect();
    let Some(list) = numberings(&p, &q, &known).filter(|_| !known.is_empty()) else {
        return refused("a number of it may be no i32: narrow the contract's ranges", python);
    };
    let used = |value: &Sum| values.0.values().flatten().any(|own| own == value);
    let Some((m, n)) = list.iter().find(|(m, n)| used(m) && used(n)) else {
        return refused("it takes a tile's row and column from the number in a way that is not known", python);
    };
    let names = ["vosti.tile_outer", "vosti.tile_inner"];
    for (name, value) in &values.0 {
        for (own, to) in [m, n].into_iter().zip(names) {
            if value.as_ref() == Some(own) {
                module.rename_uses(name, to);
            }
        }
    }
    unused(module, &values);
    let line = |name: &str, axis: &str| Line::new(format!("    %{name} = tt.get_program_id {axis} : i32"), python);
    let asked = |line: &&Line| {
        [axis, new].iter().any(|axis| {
            line.text.contains(&format!("tt.get_program_id {axis} "))
                || line.text.contains(&format!("tt.get_num_programs {axis} "))
        })
    };
    if let Some(line) = module.body.iter().chain(&module.after).find(asked) {
        return refused("the number is used elsewhere than for a tile's row and column", line.python);
    }
    module.body.splice(0..0, [line(names[0], axis), line(names[1], new)]);
    Ok(())
}

/// The integers of a kernel with one program for a tile.
fn unturned(values: &mut Values, module: &Module, axis: &str) {
    let tile = |sum: Sum| Sum {
        terms: sum
            .terms
            .into_iter()
            .map(|(term, by)| (if term == Term::Program { Term::Tile } else { term }, by))
            .collect(),
        ..sum
    };
    let program = format!("tt.get_program_id {axis} : i32");
    for line in &module.body {
        match definition(&line.text) {
            Some((name, _, op)) if op == program => values.put(name, operation(op, values, axis).map(tile)),
            _ => note(values, &module.after, &line.text, axis),
        }
    }
}

/// The integers of a kernel with a loop over tiles, which becomes one turn of it: the tile of a program.
fn turned(
    values: &mut Values,
    module: &mut Module,
    tiles: &Tiles,
    axis: &str,
    (p, q): (&Sum, &Sum),
) -> Result<(), &'static str> {
    let loops: Vec<usize> = (0..module.body.len())
        .filter(|at| {
            module.body[*at].text.starts_with("    ")
                && !module.body[*at].text.starts_with("     ")
                && module.body[*at].text.contains("scf.for %")
        })
        .collect();
    let [start] = loops[..] else { return Err("there is not one outer loop") };
    let end = module.body[start..].iter().position(|line| line.text == "    }" || line.text.starts_with("    } {"));
    let Some(end) = end.map(|length| start + length) else {
        return Err("the loop has another form than Triton prints");
    };
    let Some(header) = Header::read(&module.body[start].text) else {
        return Err("the loop counts in another type than i32");
    };
    let computes = |line: &Line| {
        let defined = definition(&line.text);
        let helper = defined.and_then(|(_, _, op)| call(op)).is_some_and(|(callee, _)| integers(&module.after, callee));
        let pure = defined.is_some_and(|(_, _, op)| PURE.iter().any(|word| op.starts_with(word)));
        helper || pure || line.text == "    tt.return"
    };
    let outside = module.body[..start].iter().chain(&module.body[end + 1..]);
    if !outside.clone().all(computes) {
        return Err("something is stored or called outside of the loop");
    }
    for line in &module.body[..start] {
        note(values, &module.after, &line.text, axis);
    }
    let value = |values: &Values, name: &str| values.get(name).cloned();
    let (lo, hi, step) = (value(values, &header.lo), value(values, &header.hi), value(values, &header.step));
    let by = match tiles.turn {
        Turn::By(n) => Sum::number(n),
        _ => Sum::of(Term::Programs),
    };
    if lo != Some(Sum::of(Term::Program)) || hi.is_none() || hi != p.mul(q) || step.as_ref() != Some(&by) {
        return Err("the loop is not from program_id to the number of tiles by the number of programs");
    }
    let tile = Sum::of(Term::Tile);
    values.put(&header.index, Some(tile.clone()));
    // A number that goes along with the tile: one step behind it when a turn begins.
    for (name, first) in &header.carried {
        if value(values, first) != Sum::of(Term::Program).minus(&by) {
            return Err("the loop carries a state");
        }
        values.put(name, tile.minus(&by));
    }
    let mut last = end;
    if let Some(result) = &header.result {
        if module.count(result) != 1 {
            return Err("the loop carries a state");
        }
        last = end - 1;
    }
    for line in &module.body[start + 1..last] {
        note(values, &module.after, &line.text, axis);
    }
    if last < end {
        let list =
            module.body[last].text.trim_start().strip_prefix("scf.yield ").and_then(|text| text.split_once(" : "));
        let Some((list, _)) = list else { return Err("the loop has another form than Triton prints") };
        let next: Vec<_> = list.split(", ").map(|name| values.get(name.trim_start_matches('%')).cloned()).collect();
        if next.len() != header.carried.len() || next.iter().any(|next| next.as_ref() != Some(&tile)) {
            return Err("the loop carries a state");
        }
    }
    module.body.drain(last..=end);
    module.body.remove(start);
    // What the loop counts and carries has a line no more; a use that stays is refused with the lines that ask for the program.
    let carried = header.carried.iter().map(|(name, _)| name);
    let numbers = carried.chain([&header.index]);
    let python = module.body.first().and_then(|line| line.python);
    let lines: Vec<Line> =
        numbers.map(|name| Line::new(format!("    %{name} = tt.get_program_id {axis} : i32"), python)).collect();
    module.body.splice(0..0, lines);
    Ok(())
}

/// Operations of one line that store nothing and have no region.
const PURE: [&str; 14] = [
    "arith.",
    "math.",
    "ub.poison",
    "tt.get_program_id ",
    "tt.get_num_programs ",
    "tt.splat ",
    "tt.make_range ",
    "tt.expand_dims ",
    "tt.broadcast ",
    "tt.reshape ",
    "tt.trans ",
    "tt.addptr ",
    "tt.make_tensor_ptr ",
    "tt.load ",
];

/// Whether a helper computes integers and does nothing else.
fn integers(after: &[Line], name: &str) -> bool {
    helper(after, name, vec![], "x", DEPTH).is_some()
}

/// `%r = scf.for %i = %lo to %hi step %step iter_args(%a = %first) -> (i32)  : i32 {`, without `%`.
struct Header {
    result: Option<String>,
    index: String,
    lo: String,
    hi: String,
    step: String,
    carried: Vec<(String, String)>,
}

impl Header {
    fn read(line: &str) -> Option<Header> {
        let (before, rest) = line.split_once("scf.for %")?;
        let result = before.trim().strip_suffix('=').and_then(|name| name.trim().strip_prefix('%'));
        let result = result.map(|name| name.split(':').next().unwrap_or(name).to_string());
        let rest = rest.strip_suffix(" : i32 {")?.trim_end();
        let (head, carried) = match rest.split_once(" iter_args(") {
            None => (rest, vec![]),
            Some((head, list)) => {
                let (list, types) = list.split_once(") -> (")?;
                if types.strip_suffix(')')?.split(", ").any(|ty| ty != "i32") {
                    return None;
                }
                let pair = |part: &str| {
                    let (name, first) = part.strip_prefix('%')?.split_once(" = %")?;
                    Some((name.to_string(), first.to_string()))
                };
                (head, list.split(", ").map(pair).collect::<Option<_>>()?)
            }
        };
        let (index, rest) = head.split_once(" = %")?;
        let (lo, rest) = rest.split_once(" to %")?;
        let (hi, step) = rest.split_once(" step %")?;
        let [index, lo, hi, step] = [index, lo, hi, step.trim_end()].map(String::from);
        (result.is_some() != carried.is_empty()).then_some(Header { result, index, lo, hi, step, carried })
    }
}

/// Removes lines that compute integers which nothing uses any more, and functions that nothing calls any more.
fn unused(module: &mut Module, values: &Values) {
    loop {
        let before = module.body.len();
        let at = module.body.iter().position(|line| {
            let Some((name, _, op)) = definition(&line.text) else { return false };
            let known = values.0.contains_key(name) || values.0.contains_key(&format!("{name}#0"));
            let pure = ["arith.", "tt.get_program_id ", "tt.get_num_programs "].iter().any(|word| op.starts_with(word));
            let helper = call(op).is_some_and(|(callee, _)| integers(&module.after, callee));
            known && (pure || helper) && module.count(name) == 1
        });
        at.map(|at| module.body.remove(at));
        if module.body.len() == before {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(sum: &Sum, tile: i64, p: i64, q: i64) -> i64 {
        let of = |sum: &Sum| value(sum, tile, p, q);
        let term = |term: &Term| match term {
            Term::Tile => tile,
            Term::Parameter(name) if name == "P" => p,
            Term::Parameter(_) => q,
            Term::Div(a, b) => of(a) / of(b),
            Term::Rem(a, b) => of(a) % of(b),
            Term::Min(a, b) => of(a).min(of(b)),
            _ => unreachable!(),
        };
        sum.number + sum.terms.iter().map(|(own, by)| term(own) * by).sum::<i64>()
    }

    /// What the module's comment proves, for all small numbers.
    #[test]
    fn a_numbering_takes_each_pair_once() {
        let [p, q] = ["P", "Q"].map(|name| Sum::of(Term::Parameter(name.into())));
        let list = numberings(&p, &q, &(1..=4).collect()).unwrap();
        assert_eq!(list.len(), 2 * (1 + 2 * 4));
        for (m, n) in list {
            for (p, q) in (1..=9).flat_map(|p| (1..=9).map(move |q| (p, q))) {
                let pairs: BTreeSet<_> = (0..p * q).map(|t| (value(&m, t, p, q), value(&n, t, p, q))).collect();
                let all: BTreeSet<_> = (0..p).flat_map(|m| (0..q).map(move |n| (m, n))).collect();
                assert_eq!(pairs, all, "{p} {q} {m:?} {n:?}");
            }
        }
    }
}
