//! The remainder of a tile's lanes by an integer of the launch: `(pid * BM + tl.arange(0, BM)) % M`.
//!
//! `x % y` is `x` where 0 <= x < y. Where x is at least y, and y at least 1, it is one of `0..y`, and else it is something; of both nothing
//! more is kept than that they are functions of x and y. Whatever is proved of all such values is proved of the remainder.
//! Read next: `foreign.rs`.

use super::Line;
use super::foreign::{StandIn, Writer};

/// Result, operands and type of `%r = arith.remsi %x, %y : tensor<16xi32>`, where `%y` is no constant.
pub(super) fn read(line: &str, lines: &[Line]) -> Option<(String, Vec<String>, String)> {
    let (result, rest) = line.trim_start().split_once(" = arith.remsi ")?;
    let (operands, ty) = rest.split_once(" : ")?;
    let (x, y) = operands.split_once(", ")?;
    let same = format!("{y} = tt.splat %");
    let one = lines.iter().filter(|line| line.text.trim_start().starts_with(&format!("{y} = "))).count() == 1;
    let splat = one && lines.iter().any(|line| line.text.trim_start().starts_with(&same));
    let tile = ty.starts_with("tensor<") && ty.ends_with("xi32>");
    (splat && tile).then(|| (result.to_string(), vec![x.to_string(), y.to_string()], ty.to_string()))
}

pub(super) fn write(result: &str, operands: &[String], [ty, wide]: [&str; 2], stand_in: StandIn, writer: &mut Writer) {
    let [x, y] = operands else { return };
    let bits = ty.replace("xi32>", "xi1>");
    let mut floats = vec![];
    for operand in operands {
        floats.push(writer.put(format!("arith.sitofp {operand} : {ty} to {wide}")));
    }
    let something = writer.function(stand_in, &floats, wide);
    let something = writer.put(format!("arith.fptosi {something} : {wide} to {ty}"));
    let [zero, one] = [0, 1].map(|n| writer.put(format!("arith.constant dense<{n}> : {ty}")));
    let last = writer.put(format!("arith.subi {y}, {one} : {ty}"));
    let within = writer.put(format!("arith.maxsi {something}, {zero} : {ty}"));
    let within = writer.put(format!("arith.minsi {within}, {last} : {ty}"));
    let below = writer.put(format!("arith.cmpi slt, {x}, {y} : {ty}"));
    let inner = writer.put(format!("arith.select {below}, {x}, {within} : {bits}, {ty}"));
    let some = writer.put(format!("arith.cmpi sge, {x}, {zero} : {ty}"));
    let positive = writer.put(format!("arith.cmpi sgt, {y}, {zero} : {ty}"));
    let known = writer.put(format!("arith.andi {some}, {positive} : {bits}"));
    let value = writer.put(format!("arith.select {known}, {inner}, {something} : {bits}, {ty}"));
    writer.named(result, &value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remainder_by_a_constant_stays() {
        let lines =
            |by: &str| [by, "    %r = arith.remsi %x, %y : tensor<16xi32>"].map(|text| Line::new(text, None)).to_vec();
        let of = |by: &str| read("    %r = arith.remsi %x, %y : tensor<16xi32>", &lines(by)).is_some();
        assert!(of("    %y = tt.splat %M : i32 -> tensor<16xi32>"));
        assert!(!of("    %y = arith.constant dense<4> : tensor<16xi32>"));
    }
}
