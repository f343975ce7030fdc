//! Control flow: an early return as a branch, a loop over rows as one program for each row, and programs that a launch
//! does not have.

use super::{Line, Module, Stop};

/// A basic block of a function.
struct Block {
    lines: Vec<Line>,
    end: End,
    used: bool,
}

enum End {
    Return,
    Jump(usize),
    Branch { condition: String, then: usize, otherwise: usize },
}

/// Writes blocks that an early return makes as nested branches. A function whose blocks have arguments, or meet again, stays
/// as it is.
pub(super) fn structured(module: &mut Module) {
    if !module.body.iter().any(|line| line.text.starts_with("    cf.")) {
        return;
    }
    let body = blocks(&module.body).and_then(|mut blocks| {
        let mut body = vec![];
        nested(&mut blocks, 0, &mut body)?;
        body.push(Line::new("    tt.return", None));
        Some(body)
    });
    if let Some(body) = body {
        module.body = body;
    }
}

fn blocks(body: &[Line]) -> Option<Vec<Block>> {
    let label = |line: &Line| Some(line.text.strip_prefix("  ^")?.split_once(':')?.0.to_string());
    let mut groups: Vec<(String, Vec<Line>)> = vec![("bb0".into(), vec![])];
    for line in body {
        match label(line) {
            Some(name) if name.contains('(') => return None,
            Some(name) => groups.push((name, vec![])),
            None => groups.last_mut()?.1.push(line.clone()),
        }
    }
    let names: Vec<String> = groups.iter().map(|(name, _)| name.clone()).collect();
    let find = |text: &str| names.iter().position(|name| Some(name.as_str()) == text.trim().strip_prefix('^'));
    let mut blocks = vec![];
    for (_, mut lines) in groups {
        let last = lines.pop()?.text;
        let end = if last == "    tt.return" {
            End::Return
        } else if let Some(to) = last.strip_prefix("    cf.br ") {
            End::Jump(find(to)?)
        } else {
            let parts: Vec<&str> = last.strip_prefix("    cf.cond_br ")?.split(',').collect();
            let [condition, then, otherwise] = parts[..] else { return None };
            End::Branch { condition: condition.into(), then: find(then)?, otherwise: find(otherwise)? }
        };
        if lines.iter().any(|line| line.text.starts_with("    cf.") || line.text.starts_with("    tt.return")) {
            return None;
        }
        blocks.push(Block { lines, end, used: false });
    }
    Some(blocks)
}

/// A block and all that follow it; None if one would be written twice, so that the depth is at most the number of blocks.
fn nested(blocks: &mut [Block], at: usize, body: &mut Vec<Line>) -> Option<()> {
    if std::mem::replace(&mut blocks[at].used, true) {
        return None;
    }
    body.append(&mut blocks[at].lines);
    match std::mem::replace(&mut blocks[at].end, End::Return) {
        End::Return => {}
        End::Jump(to) => nested(blocks, to, body)?,
        End::Branch { condition, then, otherwise } => {
            body.push(Line::new(format!("    scf.if {condition} {{"), None));
            nested(blocks, then, body)?;
            body.push(Line::new("    } else {", None));
            nested(blocks, otherwise, body)?;
            body.push(Line::new("    }", None));
        }
    }
    Some(())
}

const AXES: [&str; 3] = ["x", "y", "z"];

/// A grid-stride loop over rows as a grid of one program for each row.
///
/// The programs of the loop run its body once for each row below `rows`, each row in one program. If the body carries no
/// state from one row to the next, depends on the program by the row alone, and nothing is stored outside of the loop, then
/// one program for each row runs the same bodies. Nothing that is stored is read, which the verifier proves, so their order
/// is not seen.
pub(super) fn one_turn(module: &mut Module, axis: usize, rows: &str) -> Result<(), Stop> {
    let at = module.body.iter().find(|line| line.text.contains("scf.for")).and_then(|line| line.python);
    let wrong = |why: &str| Err(Stop::Kernel(format!("axis {axis} of the grid takes rows in turn, and {why}"), at));
    let x = AXES[axis];
    let (program, programs) = (format!("tt.get_program_id {x} : i32"), format!("tt.get_num_programs {x} : i32"));
    let all = || module.body.iter().chain(&module.after);
    if [&program, &programs].iter().any(|op| all().filter(|line| line.text.ends_with(op.as_str())).count() != 1) {
        return wrong("the program or the number of programs is asked for elsewhere than in the loop");
    }
    let loops: Vec<usize> =
        (0..module.body.len()).filter(|at| module.body[*at].text.starts_with("    scf.for ")).collect();
    let [start] = loops[..] else { return wrong("there is not one outer loop") };
    let Some(length) =
        module.body[start..].iter().position(|line| line.text == "    }" || line.text.starts_with("    } {"))
    else {
        return wrong("the loop has another form than Triton prints");
    };
    let end = start + length;
    let header = module.body[start].text.clone();
    let Some((index, lo, hi, step)) = bounds(&header) else {
        return wrong("the loop carries a state or counts in another type than i32");
    };
    let effects =
        ["tt.store", "tt.atomic", "tt.descriptor", "tt.print", "tt.assert", "tt.call", "tt.elementwise_inline_asm"];
    let outside = module.body[..start].iter().chain(&module.body[end..]);
    if outside.clone().any(|line| effects.iter().any(|op| line.text.contains(op))) {
        return wrong("something is stored or called outside of the loop");
    }
    let Some((lo_chain, of_lo)) = chain(&module.body[..start], lo) else { return wrong("the loop begins elsewhere") };
    let Some((step_chain, of_step)) = chain(&module.body[..start], step) else {
        return wrong("the loop has another step");
    };
    let end_of = chain(&module.body[..start], hi);
    let limit = end_of.as_ref().and_then(|(names, of)| of.is_empty().then(|| names.last().cloned()).flatten());
    if of_lo != program || of_step != programs || limit.as_deref() != Some(rows) {
        return wrong("the loop is not from program_id to `rows` by num_programs");
    }
    // Each name of the two chains: where it is defined, and by the next or by the loop.
    if lo_chain.iter().chain(&step_chain).any(|name| module.count(name) != 2) {
        return wrong("the program or the number of programs is used elsewhere than as the loop's bounds");
    }
    let python = module.body[start].python;
    let (hi, index) = (hi.to_string(), index.to_string());
    module.body[end] = Line::new("    }", python);
    module.body.splice(
        start..=start,
        [
            Line::new(format!("    %{index} = {program}"), python),
            Line::new(format!("    %vosti.turn = arith.cmpi slt, %{index}, %{hi} : i32"), python),
            Line::new("    scf.if %vosti.turn {", python),
        ],
    );
    let gone = |line: &Line| {
        let defines = |name: &String| line.text.starts_with(&format!("    %{name} = "));
        lo_chain.iter().chain(&step_chain).any(defines)
    };
    module.body.retain(|line| !gone(line));
    Ok(())
}

/// Index, bounds and step of `scf.for %i = %lo to %hi step %s  : i32 {`, without `%`.
fn bounds(header: &str) -> Option<(&str, &str, &str, &str)> {
    let (index, rest) = header.strip_prefix("    scf.for %")?.split_once(" = %")?;
    let (lo, rest) = rest.split_once(" to %")?;
    let (hi, rest) = rest.split_once(" step %")?;
    let step = rest.strip_suffix(" : i32 {")?.trim_end();
    let plain = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '-'));
    [index, lo, hi, step].iter().all(plain).then_some((index, lo, hi, step))
}

/// The names that a value has through casts to its own type, and the operation that defines the last; empty for a parameter.
fn chain(body: &[Line], name: &str) -> Option<(Vec<String>, String)> {
    let (mut names, mut name) = (vec![], name.to_string());
    loop {
        let op = body.iter().find_map(|line| line.text.strip_prefix(&format!("    %{name} = ")));
        names.push(name.clone());
        let Some(op) = op else { return Some((names, String::new())) };
        match op.strip_prefix("arith.bitcast %").and_then(|rest| rest.strip_suffix(" : i32 to i32")) {
            Some(from) if names.len() <= body.len() => name = from.to_string(),
            Some(_) => return None,
            None => return Some((names, op.to_string())),
        }
    }
}

/// Lets only the programs below `cdiv(rows, over) * times` run, and tells them that there are no others: then a launch that has
/// others does what the launch without them does.
pub(super) fn guarded(module: &mut Module, axis: usize, over: i64, times: i64, rows: &str) -> Result<(), Stop> {
    let x = AXES[axis];
    let asked = format!(" = tt.get_num_programs {x} : i32");
    if let Some(line) = module.after.iter().find(|line| line.text.ends_with(&asked)) {
        return Err(Stop::Kernel("a helper asks for the number of programs".into(), line.python));
    }
    // The last line is the return; the first one reads the number of rows.
    let Some(end) = module.body.len().checked_sub(1).filter(|end| module.body[*end].text == "    tt.return") else {
        return Err(Stop::Kernel("it ends with another operation than a return".into(), None));
    };
    let python = module.body.iter().find_map(|line| line.python);
    let mut lines = vec![];
    let mut put = |text: String| lines.push(Line::new(format!("    {text}"), python));
    let name = |what: &str| format!("%vosti.{what}{axis}");
    let [program, tile, first, live] = ["program", "tile", "first", "live"].map(name);
    let [last, tiles, programs] = ["last", "tiles", "programs"].map(name);
    put(format!("{program} = tt.get_program_id {x} : i32"));
    let mut by = |op: &str, result: &str, value: &str, n: i64| {
        put(format!("{result}.by = arith.constant {n} : i32"));
        put(format!("{result} = arith.{op} {value}, {result}.by : i32"));
    };
    by("divsi", &tile, &program, times);
    by("muli", &first, &tile, over);
    by("addi", &last, &format!("%{rows}"), over - 1);
    by("divsi", &tiles, &last, over);
    by("muli", &programs, &tiles, times);
    put(format!("{live} = arith.cmpi slt, {first}, %{rows} : i32"));
    put(format!("scf.if {live} {{"));
    module.body.insert(end, Line::new("    }", python));
    let questions: Vec<String> = module.body.iter().filter_map(|line| answered(&line.text, &asked)).collect();
    module.body.retain(|line| answered(&line.text, &asked).is_none());
    questions.iter().for_each(|name| module.rename(name, programs.trim_start_matches('%')));
    module.body.splice(1..1, lines);
    Ok(())
}

/// The name of `%name = tt.get_num_programs x : i32`.
fn answered(line: &str, asked: &str) -> Option<String> {
    Some(line.trim_start().strip_prefix('%')?.strip_suffix(asked)?.to_string())
}
