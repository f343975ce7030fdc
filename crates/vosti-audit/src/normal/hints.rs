//! Words of a text that change no value: how memory is cached, what an author tells the compiler, and the order of lanes in a
//! reduction over all of them.

use super::Line;
use crate::report::Premise;
use std::collections::BTreeSet;

/// Removes them; notes each premise under which that keeps what the kernel computes.
pub(super) fn removed(lines: Vec<Line>, premises: &mut BTreeSet<Premise>) -> Vec<Line> {
    let reordered: Vec<bool> = (0..lines.len()).map(|at| in_any_order(&lines, at)).collect();
    let mut kept = vec![];
    for (mut line, reordered) in lines.into_iter().zip(reordered) {
        if line.text.trim_start().starts_with("llvm.intr.assume %") {
            premises.insert(Premise::HintsHold);
            continue;
        }
        if line.text.contains(" = tt.load %") || line.text.trim_start().starts_with("tt.store %") {
            for word in [" cacheModifier = ", " evictionPolicy = "] {
                line.text = without(&line.text, word);
            }
        }
        // TF32 is a precision of products of FP32.
        const TF32: &str = ", inputPrecision = tf32 : ";
        let narrow = ["xbf16>", "xf16>", "xf8E4M3FN>", "xf8E5M2>"];
        if line.text.contains(" = tt.dot %")
            && let Some((_, types)) = line.text.split_once(TF32)
            && types
                .split(" -> ")
                .next()
                .is_some_and(|pair| pair.split(" * ").all(|ty| narrow.iter().any(|end| ty.ends_with(end))))
        {
            line.text = line.text.replacen(TF32, " : ", 1);
        }
        for claim in ["tt.contiguity", "tt.divisibility", "tt.constancy"] {
            while let Some(text) = without_claim(&line.text, claim) {
                premises.insert(Premise::HintsHold);
                line.text = text;
            }
        }
        if reordered {
            premises.insert(Premise::OrderFixed);
            line.text = line.text.replacen(" allow_reorder :", " :", 1);
        }
        kept.push(line);
    }
    kept
}

/// Gives zeros to the lanes that a load does not read where it says nothing of them; None if each load says it.
pub(super) fn zeroed(lines: &[Line]) -> Option<Vec<Line>> {
    let mut made: Vec<Line> = vec![];
    let mut changed = false;
    for line in lines {
        let Some((before, types)) = line.text.split_once(" : ").filter(|(before, _)| before.contains(" = tt.load %"))
        else {
            made.push(line.clone());
            continue;
        };
        let before = [" cacheModifier = ", " evictionPolicy = "]
            .iter()
            .fold(before.to_string(), |text, word| without(&text, word));
        let plain = !before.contains('{') && before.matches('%').count() == 3 && before.matches(", ").count() == 1;
        let element = plain.then(|| pointed(types)).flatten();
        if let Some(ty) = element {
            let name = format!("%zeroed.{}", made.len());
            let zero =
                if ty.ends_with("i32") || ty.contains("xi") || ty.starts_with('i') { "0" } else { "0.000000e+00" };
            let zero = if ty.starts_with("tensor<") { format!("dense<{zero}>") } else { zero.to_string() };
            made.push(Line::new(format!("    {name} = arith.constant {zero} : {ty}"), line.python));
            made.push(Line::new(format!("{before}, {name} : {types}"), line.python));
            changed = true;
        } else if before.ends_with('}') && before.contains("{boundaryCheck = array<i32") && !before.contains("padding")
        {
            made.push(Line::new(
                format!("{}, padding = 1 : i32}} : {types}", before.trim_end_matches('}')),
                line.python,
            ));
            changed = true;
        } else {
            made.push(line.clone());
        }
    }
    changed.then_some(made)
}

/// The type of what a pointer, or a tile of pointers, points to.
fn pointed(ty: &str) -> Option<String> {
    let (before, rest) = ty.split_once("!tt.ptr<")?;
    let (element, after) = rest.split_once('>')?;
    let known = ["f32", "bf16", "f16", "f8E4M3FN", "f8E5M2", "i32", "i8", "i1"].contains(&element);
    (known && matches!((before, after), ("", "") | (_, ">"))).then(|| format!("{before}{element}{after}"))
}

/// Whether a line is `%x = tt.reshape %y allow_reorder : ...` to one axis, and the only use of `%x` is the reduction of the next
/// line. Then the order of its lanes is the order of a sum, and nothing else.
fn in_any_order(lines: &[Line], at: usize) -> bool {
    let reshape = || {
        let (name, rest) = lines[at].text.trim_start().strip_prefix('%')?.split_once(" = tt.reshape %")?;
        let (_, types) = rest.split_once(" allow_reorder : ")?;
        Some((name, types.split_once(" -> tensor<")?.1))
    };
    let Some((name, result)) = reshape() else { return false };
    let reduces = format!("\"tt.reduce\"(%{name}) <{{axis = 0 : i32}}> ({{");
    let next = lines.get(at + 1).is_some_and(|line| line.text.ends_with(&reduces));
    let mut others = lines.iter().skip(at + 2).take_while(|line| line.text != "  }");
    result.matches('x').count() == 1 && next && !others.any(|line| named(&line.text, name))
}

fn named(line: &str, name: &str) -> bool {
    line.split('%').skip(1).any(|word| {
        word.strip_prefix(name)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '-')))
    })
}

/// The line without `word` and the name behind it.
fn without(line: &str, word: &str) -> String {
    let Some((before, rest)) = line.split_once(word) else { return line.to_string() };
    format!("{before}{}", rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_'))
}

/// The line without `claim = dense<16> : tensor<1xi32>`; None if there is none.
fn without_claim(line: &str, claim: &str) -> Option<String> {
    let at = line.find(&format!("{claim} = dense<"))?;
    let end = at + line[at..].find("> : tensor<")? + "> : tensor<".len();
    let end = end + line[end..].find('>')? + 1;
    let (before, after) = (&line[..at], &line[end..]);
    Some(match (before.strip_suffix(", "), after.strip_prefix(", "), before.strip_suffix(" {")) {
        (Some(before), _, _) => format!("{before}{after}"),
        (_, Some(after), _) => format!("{before}{after}"),
        (_, _, Some(before)) => format!("{before}{}", after.strip_prefix('}')?),
        _ => return None,
    })
}
