//! Elementwise functions that the tile IR does not have: erf, and functions of libdevice with one operand.
//!
//! A proof knows of a function only that it is one: equal operands give equal results, in every lane. So another function of which
//! it knows no more stands for it, one that the text does not use itself: two functions never become one. Runs that compute the
//! other function are no counterexample. Of `exp` a proof knows more, so it stands for nothing.

use super::Line;
use crate::report::Premise;
use std::collections::{BTreeMap, BTreeSet};

const STAND_INS: [&str; 6] = ["math.rsqrt", "math.sin", "math.cos", "math.log2", "math.log", "math.sqrt"];

/// Replaces them, if there are enough functions to stand for all of them.
pub(super) fn stood_for(lines: &mut [Line], premises: &mut BTreeSet<Premise>) {
    let names: BTreeSet<String> = lines.iter().filter_map(|line| Some(foreign(&line.text)?.function)).collect();
    let free = STAND_INS.iter().filter(|name| !lines.iter().any(|line| line.text.contains(&format!(" {name} %"))));
    let by: BTreeMap<String, &str> = names.iter().cloned().zip(free.copied()).collect();
    if names.is_empty() || by.len() < names.len() {
        return;
    }
    premises.insert(Premise::StandIn);
    for line in lines {
        let text = foreign(&line.text)
            .map(|call| format!("{} = {} {} : {}", call.result, by[&call.function], call.operand, call.ty));
        line.text = text.unwrap_or_else(|| std::mem::take(&mut line.text));
    }
}

struct Call {
    /// With the line's indentation.
    result: String,
    function: String,
    operand: String,
    ty: String,
}

/// `%y = math.erf %x : T`, or `%y = tt.extern_elementwise %x {.., pure = true, symbol = "__nv_tanhf"} : (T) -> T`.
fn foreign(line: &str) -> Option<Call> {
    let (result, op) = line.split_once(" = ")?;
    let call = |function: &str, operand: &str, ty: &str| {
        let one = operand.starts_with('%') && !operand.contains([',', ' ']);
        let float = ty == "f32" || (ty.starts_with("tensor<") && ty.ends_with("xf32>"));
        let [result, function, operand, ty] = [result, function, operand, ty].map(String::from);
        (one && float).then_some(Call { result, function, operand, ty })
    };
    if let Some(rest) = op.strip_prefix("math.erf ") {
        let (operand, ty) = rest.split_once(" : ")?;
        return call("math.erf", operand, ty);
    }
    let (operand, rest) = op.strip_prefix("tt.extern_elementwise ")?.split_once(" {")?;
    let (attributes, types) = rest.split_once("} : (")?;
    let (from, to) = types.split_once(") -> ")?;
    let (before, symbol) = attributes.split_once("pure = true, symbol = ")?;
    let nothing_else = before.split(", ").all(|part| part.is_empty() || part.starts_with("lib"));
    (from == to && nothing_else).then(|| call(symbol, operand, to)).flatten()
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
    fn a_call_that_is_not_pure_or_has_two_operands_stays() {
        for line in [
            TANH.replace("pure = true", "pure = false"),
            TANH.replace("%0 {", "%0, %5 {").replace("(f32)", "(f32, f32)"),
            TANH.replace("-> f32", "-> i32"),
            TANH.replace("(f32) -> f32", "(f64) -> f64"),
        ] {
            assert_eq!(after(&[&line]), std::slice::from_ref(&line));
        }
    }
}
