//! Functions that the tile IR does not have: erf, functions of libdevice, precise division and root, clamps, scans, reductions of
//! several tiles at once, and casts of FP16 and FP8.
//!
//! A proof knows of a function only that it is one: equal operands give equal results, in every lane. So an expression of another
//! function of which it knows no more stands for it, of one that the text does not use itself: two functions never become one. Runs
//! that compute the other function are no counterexample. Of `exp` a proof knows more, so it stands for nothing.
//!
//! With `S` for that function, `S(S(S(a) - b) - c)` stands for a function of `a`, `b` and `c`; the last `S` lets no operand differ in the
//! sign of a zero. A reduction of tiles is a function of the lanes of each along its axis, as a sum is: the sums are its operands, and
//! its results are told apart by a number. A scan is a function of the same lanes and of the lane's place.
//! Read next: `floats.rs`.

use super::text::{bound, names};
use super::{Line, floats, remainder};
use crate::report::Premise;
use std::collections::{BTreeMap, BTreeSet};

const STAND_INS: [&str; 6] = ["math.rsqrt", "math.sin", "math.cos", "math.log2", "math.log", "math.sqrt"];

/// The names of what is added. A text that has one itself stays as it is.
const ADDED: &str = "%stood.";

/// Replaces them, if there are enough functions to stand for all of them. Gives the function that stands for each: of two texts it says
/// whether an operation is the same one in both.
pub(super) fn stood_for(lines: &mut Vec<Line>, premises: &mut BTreeSet<Premise>) -> BTreeMap<String, StandIn> {
    let folds: Vec<Fold> = (0..lines.len()).filter_map(|at| Fold::read(lines, at)).collect();
    let calls: Vec<Call> = lines.iter().filter_map(|line| call_of(&line.text, lines)).collect();
    let names: BTreeSet<String> =
        calls.iter().map(|call| call.function.clone()).chain(folds.iter().map(|fold| fold.function.clone())).collect();
    let free = STAND_INS.iter().filter(|name| !lines.iter().any(|line| line.text.contains(&format!(" {name} %"))));
    let by: BTreeMap<String, StandIn> = names.iter().cloned().zip(free.copied()).collect();
    if by.len() < names.len() || lines.iter().any(|line| line.text.contains(ADDED)) {
        return BTreeMap::new();
    }
    if !names.is_empty() {
        premises.insert(Premise::StandIn);
    }
    let (mut made, mut at) = (vec![], 0);
    let mut folds = folds.into_iter().peekable();
    let mut renamed = vec![];
    while at < lines.len() {
        let (python, depth) = (lines[at].python, indent(&lines[at].text));
        let mut writer = Writer { lines: vec![], number: made.len() };
        if let Some(fold) = folds.next_if(|fold| fold.start == at) {
            let names = fold.write(by[&fold.function], &mut writer);
            renamed.push((made.len(), names));
            at = fold.end;
        } else if let Some(call) = call_of(&lines[at].text, lines) {
            call.write(by[&call.function], &mut writer);
        } else {
            made.push(lines[at].clone());
            at += 1;
            continue;
        }
        at += 1;
        let own = " ".repeat(depth);
        made.extend(writer.lines.into_iter().map(|text| Line::new(own.clone() + text.trim_start(), python)));
    }
    // A name is one of its region: the next one may give it to another value.
    for (start, names) in renamed {
        let own = indent(&made[start].text);
        for line in made[start..].iter_mut().take_while(|line| indent(&line.text) >= own) {
            for (from, to) in &names {
                line.text = super::text::renamed(&line.text, from, to);
            }
        }
    }
    for line in &mut made {
        if let Some(text) = floats::widened(&line.text) {
            premises.insert(Premise::StandIn);
            line.text = text;
        }
    }
    *lines = made;
    by
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// A function that the text does not use. It stands for one function alone: an expression of it that is made for two, with a number that
/// tells them apart, could be one that a kernel's own constants make.
pub(super) type StandIn = &'static str;

/// Writes operations whose results have names of their own.
pub(super) struct Writer {
    lines: Vec<String>,
    /// No other writer has it.
    number: usize,
}

impl Writer {
    /// The name of `%name = op : ty`, with `%`.
    pub(super) fn put(&mut self, op: String) -> String {
        let name = format!("{ADDED}{}.{}", self.number, self.lines.len());
        self.lines.push(format!("    {name} = {op}"));
        name
    }

    /// Gives the value of the last line its name in the text.
    pub(super) fn named(&mut self, name: &str, value: &str) {
        if let Some(line) = self.lines.last_mut() {
            *line = line.replacen(value, name, 1);
        }
    }

    /// `S(S(S(a) - b) - c)`.
    pub(super) fn function(&mut self, stand_in: StandIn, operands: &[String], ty: &str) -> String {
        let mut value = String::new();
        for (at, operand) in operands.iter().enumerate() {
            let of = if at == 0 { operand.clone() } else { self.put(format!("arith.subf {value}, {operand} : {ty}")) };
            value = self.put(format!("{stand_in} {of} : {ty}"));
        }
        value
    }

    fn number(&mut self, value: usize, ty: &str) -> String {
        let number = format!("{value}.000000e+00");
        let number = if ty == "f32" { number } else { format!("dense<{number}>") };
        self.put(format!("arith.constant {number} : {ty}"))
    }

    /// A value of one axis, on both axes: it has `size` lanes, of axis `at`.
    fn wide(&mut self, value: &str, size: usize, at: usize, ty: &str) -> String {
        let one = tile(&if at == 0 { [size, 1] } else { [1, size] }, "f32");
        let from = tile(&[size], "f32");
        let value = self.put(format!("tt.expand_dims {value} {{axis = {} : i32}} : {from} -> {one}", 1 - at));
        self.put(format!("tt.broadcast {value} : {one} -> {ty}"))
    }

    /// The sum of a tile along an axis.
    fn sum(&mut self, operand: &str, axis: usize, ty: &str, result: &str) -> String {
        let name = self.put(format!("\"tt.reduce\"({operand}) <{{axis = {axis} : i32}}> ({{"));
        self.lines.extend([
            format!("    ^bb0({name}.a: f32, {name}.b: f32):"),
            format!("      {name}.c = arith.addf {name}.a, {name}.b : f32"),
            format!("      tt.reduce.return {name}.c : f32"),
            format!("    }}) : ({ty}) -> {result}"),
        ]);
        name
    }
}

struct Call {
    /// With `%`.
    result: String,
    function: String,
    operands: Vec<String>,
    ty: String,
    /// For a cast, the types that the operand and the result have.
    cast: Option<[String; 2]>,
    /// For a remainder, its type.
    remainder: Option<String>,
}

impl Call {
    fn write(&self, stand_in: StandIn, writer: &mut Writer) {
        if let Some(ty) = &self.remainder {
            return remainder::write(&self.result, &self.operands, [ty, &self.ty], stand_in, writer);
        }
        let mut operands = self.operands.clone();
        if let Some([from, _]) = &self.cast
            && *from != self.ty
        {
            let op = if floats::integer(from) { "arith.sitofp" } else { "arith.extf" };
            operands[0] = writer.put(format!("{op} {} : {from} to {}", operands[0], self.ty));
        }
        let mut value = writer.function(stand_in, &operands, &self.ty);
        if let Some([_, to]) = &self.cast
            && *to != self.ty
        {
            let op = if floats::integer(to) { "arith.fptosi" } else { "arith.truncf" };
            value = writer.put(format!("{op} {value} : {} to {to}", self.ty));
        }
        writer.named(&self.result, &value);
    }
}

/// A function that stands for another one, in a line of a text.
fn call_of(line: &str, lines: &[Line]) -> Option<Call> {
    if let Some((result, operands, ty)) = remainder::read(line, lines) {
        let wide = ty.replace("xi32>", "xf32>");
        return Some(Call {
            result,
            function: "arith.remsi".into(),
            operands,
            ty: wide,
            cast: None,
            remainder: Some(ty),
        });
    }
    foreign(line)
}

/// Operations of several operands of one type, which compute lane by lane.
const OPERATIONS: [&str; 4] = ["math.erf", "tt.precise_sqrt", "tt.precise_divf", "tt.clampf"];

/// `%y = math.erf %x : T`, or `%y = tt.extern_elementwise %x, %z {.., pure = true, symbol = "__nv_powf"} : (T, T) -> T`.
fn foreign(line: &str) -> Option<Call> {
    let (result, op) = line.trim_start().split_once(" = ")?;
    let call = |function: &str, operands: &str, ty: &str| {
        let operands: Vec<String> = operands.split(", ").map(String::from).collect();
        let plain = operands.iter().all(|name| name.starts_with('%') && !name.contains([',', ' ']));
        let [result, function, ty] = [result, function, ty].map(String::from);
        (plain && float(&ty) && result.starts_with('%')).then_some(Call {
            result,
            function,
            operands,
            ty,
            cast: None,
            remainder: None,
        })
    };
    if let Some(floats::Cast { function, operand, from, to, ty }) = floats::cast(op) {
        let cast = Some([from, to]);
        return call(&function, &operand, &ty).map(|call| Call { cast, ..call });
    }
    for name in OPERATIONS {
        if let Some(rest) = op.strip_prefix(name).and_then(|rest| rest.strip_prefix(' ')) {
            let (operands, ty) = rest.split_once(" : ")?;
            // What `tt.clampf` says of NaNs is a part of the function.
            return match operands.split_once(", propagateNan = ") {
                Some((operands, how)) => call(&format!("{name} {how}"), operands, ty),
                None => call(name, operands, ty),
            };
        }
    }
    let (operands, rest) = op.strip_prefix("tt.extern_elementwise ")?.split_once(" {")?;
    let (attributes, types) = rest.split_once("} : (")?;
    let (from, to) = types.split_once(") -> ")?;
    let (before, symbol) = attributes.split_once("pure = true, symbol = ")?;
    let nothing_else = before.split(", ").all(|part| part.is_empty() || part.starts_with("lib"));
    (from.split(", ").all(|from| from == to) && nothing_else).then(|| call(symbol, operands, to)).flatten()
}

fn float(ty: &str) -> bool {
    ty == "f32" || (ty.starts_with("tensor<") && ty.ends_with("xf32>") && !ty.contains(','))
}

/// A scan of tiles, or a reduction of several at once.
struct Fold {
    start: usize,
    /// The line with the types.
    end: usize,
    /// Without `%`.
    result: String,
    /// The operation, its extent and its region: two of one text are one function.
    function: String,
    operands: Vec<String>,
    axis: usize,
    scan: bool,
    /// Of each operand: `f32` or `i32`.
    elems: Vec<String>,
    /// The extents of each operand.
    shape: Vec<usize>,
}

/// The type of a tile, or of a number.
fn tile(shape: &[usize], elem: &str) -> String {
    match shape {
        [] => elem.to_string(),
        shape => format!("tensor<{}x{elem}>", shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")),
    }
}

impl Fold {
    /// None for a fold that the tile IR has, for one of other types, and if the region is no function of its arguments.
    fn read(lines: &[Line], start: usize) -> Option<Fold> {
        let (result, op) = lines[start].text.trim_start().strip_prefix('%')?.split_once(" = \"tt.")?;
        let scan = op.starts_with("scan\"");
        let rest = op.strip_prefix("scan\"(").or_else(|| op.strip_prefix("reduce\"("))?;
        let (operands, attributes) = rest.split_once(") <{axis = ")?;
        let (axis, attributes) = attributes.split_once(" : i32")?;
        let attributes = attributes.strip_suffix("}> ({")?;
        let operands: Vec<String> = operands.split(", ").map(String::from).collect();
        if !scan && operands.len() == 1 {
            return None;
        }
        let length = lines[start..].iter().position(|line| line.text.trim_start().starts_with("}) : ("))?;
        let end = start + length;
        let (from, _) = lines[end].text.trim_start().strip_prefix("}) : (")?.split_once(") -> ")?;
        let region = &lines[start + 1..end];
        let text: Vec<&str> = region.iter().map(|line| line.text.trim()).collect();
        let result = result.split(':').next()?.to_string();
        let types = from.split(", ").map(extents).collect::<Option<Vec<_>>>()?;
        let shape = types.first()?.0.clone();
        let axis = axis.parse().ok()?;
        let same = types.len() == operands.len() && types.iter().all(|(own, _)| *own == shape);
        if !closed(region, lines) || !same || shape.len() > 2 {
            return None;
        }
        // Rows are folded each alone, so the number of rows is no part of the function.
        let n = shape.get(axis)?;
        let function = format!("{} of {n}{attributes}\n{}", if scan { "scan" } else { "reduce" }, text.join("\n"));
        let elems = types.into_iter().map(|(_, elem)| elem).collect();
        Some(Fold { start, end, result, function, operands, axis, scan, elems, shape })
    }

    /// Names of results, and what stands for them.
    fn write(&self, stand_in: StandIn, writer: &mut Writer) -> Vec<(String, String)> {
        let rest: Vec<usize> = (0..self.shape.len()).filter(|at| *at != self.axis).map(|at| self.shape[at]).collect();
        let result = if self.scan { &self.shape } else { &rest };
        let (whole, ty) = (tile(&self.shape, "f32"), tile(result, "f32"));
        let mut operands: Vec<String> = vec![];
        for (operand, elem) in self.operands.iter().zip(&self.elems) {
            let mut operand = operand.clone();
            if elem == "i32" {
                operand = writer.put(format!("arith.sitofp {operand} : {} to {whole}", tile(&self.shape, "i32")));
            }
            operands.push(writer.sum(&operand, self.axis, &whole, &tile(&rest, "f32")));
        }
        if self.scan {
            let n = self.shape[self.axis];
            let lane = writer.put(format!("tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>"));
            let lane = writer.put(format!("arith.sitofp {lane} : tensor<{n}xi32> to tensor<{n}xf32>"));
            for sum in &mut operands {
                *sum = match rest[..] {
                    [] => writer.put(format!("tt.splat {sum} : f32 -> {ty}")),
                    [size, ..] => writer.wide(sum, size, 1 - self.axis, &ty),
                };
            }
            operands.push(if rest.is_empty() { lane } else { writer.wide(&lane, n, self.axis, &ty) });
        }
        let mut renamed = vec![];
        for (at, elem) in self.elems.iter().enumerate() {
            let number = writer.number(at, &ty);
            operands.push(number);
            let mut value = writer.function(stand_in, &operands, &ty);
            operands.pop();
            if elem == "i32" {
                value = writer.put(format!("arith.fptosi {value} : {ty} to {}", tile(result, "i32")));
            }
            let name = if self.elems.len() == 1 { self.result.clone() } else { format!("{}#{at}", self.result) };
            renamed.push((name, value.trim_start_matches('%').to_string()));
        }
        renamed
    }
}

/// The extents of a tile of `f32` or `i32`, and which.
fn extents(ty: &str) -> Option<(Vec<usize>, String)> {
    let (extents, elem) = ty.strip_prefix("tensor<")?.strip_suffix('>')?.rsplit_once('x')?;
    let shape = extents.split('x').map(|extent| extent.parse().ok()).collect::<Option<_>>()?;
    ["f32", "i32"].contains(&elem).then(|| (shape, elem.to_string()))
}

/// Whether a region names nothing from outside, and computes with numbers alone, as do the helpers that it calls.
fn closed(region: &[Line], all: &[Line]) -> bool {
    let defined: BTreeSet<&str> = region.iter().flat_map(|line| bound(&line.text)).collect();
    let inside = |line: &Line| names(&line.text).all(|name| defined.contains(name));
    region.iter().all(inside) && computes(region, all, 8)
}

fn computes(body: &[Line], all: &[Line], depth: usize) -> bool {
    body.iter().all(|line| {
        let text = line.text.trim_start();
        let op = text.split_once(" = ").map_or(text, |(_, op)| op);
        let pure = ["arith.", "math.", "ub.poison", "tt.return", "tt.reduce.return", "tt.scan.return", "^bb"];
        if let Some(callee) = op.strip_prefix("tt.call ") {
            let quoted = callee.starts_with("@\"");
            let end = if quoted { callee.find("\"(").map(|at| at + 1) } else { callee.find('(') };
            let head = end.map(|end| format!("  tt.func private {}(", &callee[..end]));
            let start = head.and_then(|head| all.iter().position(|line| line.text.starts_with(&head)));
            let Some(start) = start.filter(|_| depth > 0) else { return false };
            let length = all[start..].iter().position(|line| line.text == "  }").unwrap_or(1);
            return computes(&all[start + 1..start + length.max(1)], all, depth - 1);
        }
        pure.iter().any(|start| op.starts_with(start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(lines: &[&str]) -> Vec<String> {
        let mut lines: Vec<Line> = lines.iter().map(|line| Line::new(*line, None)).collect();
        stood_for(&mut lines, &mut BTreeSet::new());
        lines.into_iter().map(|line| line.text).collect()
    }

    const TANH: &str = r#"    %1 = tt.extern_elementwise %0 {libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"} : (f32) -> f32"#;

    #[test]
    fn two_functions_never_become_one() {
        let erf = "    %2 = math.erf %1 : f32";
        assert_eq!(
            after(&[TANH, erf]),
            ["    %1 = math.rsqrt %0 : f32", "    %2 = math.sin %1 : f32"].map(String::from)
        );
        // A function that the text uses itself stands for none.
        assert_eq!(after(&[erf, "    %3 = math.rsqrt %2 : f32"])[0], "    %2 = math.sin %1 : f32");
        let all: Vec<String> = STAND_INS.iter().map(|name| format!("    %9 = {name} %8 : f32")).collect();
        let mut all: Vec<&str> = all.iter().map(String::as_str).collect();
        all.push(erf);
        assert_eq!(after(&all)[6], erf);
    }

    #[test]
    fn a_call_that_is_not_pure_or_of_two_types_stays() {
        for line in [
            TANH.replace("pure = true", "pure = false"),
            TANH.replace("{libname", "{rounding = 1 : i32, libname"),
            TANH.replace("%0 {", "%0, %5 {").replace("(f32)", "(f32, i32)"),
            TANH.replace("-> f32", "-> i32"),
            TANH.replace("(f32) -> f32", "(f64) -> f64"),
        ] {
            assert_eq!(after(&[&line]), std::slice::from_ref(&line));
        }
    }

    #[test]
    fn a_function_of_two_operands_is_one_of_both() {
        let pow = TANH.replace("%0 {", "%0, %5 {").replace("(f32)", "(f32, f32)");
        let lines = after(&[&pow]);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].contains("math.rsqrt %0") && lines[1].contains("arith.subf") && lines[1].contains(", %5"));
        assert!(lines[2].starts_with("    %1 = math.rsqrt"), "{lines:?}");
    }

    #[test]
    fn a_region_that_takes_something_from_outside_stays() {
        let scan = |inner: &str| {
            [
                "    %2 = \"tt.scan\"(%1) <{axis = 0 : i32, reverse = false}> ({",
                "    ^bb0(%a: f32, %b: f32):",
                inner,
                "      tt.scan.return %c : f32",
                "    }) : (tensor<64xf32>) -> tensor<64xf32>",
            ]
            .map(String::from)
        };
        for (inner, known) in [
            ("      %c = arith.addf %a, %b : f32", true),
            ("      %c = arith.addf %a, %9 : f32", false),
            ("      %c = tt.load %a : f32", false),
            ("      %c = tt.call @nowhere(%a, %b) : (f32, f32) -> f32", false),
        ] {
            let text = scan(inner);
            let lines = after(&text.each_ref().map(String::as_str));
            assert_eq!(lines.iter().all(|line| !line.contains("tt.scan")), known, "{lines:?}");
        }
    }
}
