//! The clauses of the core's statement, found in its text: conjuncts, arms of a `match` and whole bodies of the definitions in
//! `trusted/`, what devices and samplers must ensure and may require, what public functions ensure, and what theorems and corollaries
//! do. It relies on the core's formatting and knows no more of the language than that. Read next: `reach.rs`.

use crate::verify;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Clauses that are deleted together.
#[derive(Clone, Debug, PartialEq)]
pub struct Deletion {
    /// The file below the core's sources.
    pub file: String,
    pub function: String,
    /// Which one it is of the deletions in the file's functions of this name.
    pub nth: usize,
    /// Their bytes in the file's code, in order.
    pub ranges: Vec<Range<usize>>,
}

impl Deletion {
    /// The clause in one line, or how many there are.
    pub fn words(&self, text: &str) -> String {
        match &self.ranges[..] {
            [range] => text[range.clone()].split_whitespace().collect::<Vec<_>>().join(" "),
            ranges => format!("all {} clauses", ranges.len()),
        }
    }
}

/// What the verifier sees of a file: its lines without those that are comments. (No line of the core ends with a comment that counts.)
pub fn code(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(code_of(&text))
}

fn code_of(text: &str) -> String {
    let says = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    text.lines().filter(says).flat_map(|line| [line, "\n"]).collect()
}

/// A file's text without these clauses, which do not overlap.
pub fn without(text: &str, ranges: &mut [Range<usize>]) -> String {
    ranges.sort_by_key(|range| range.start);
    let mut out = text.to_string();
    for range in ranges.iter().rev() {
        out.replace_range(range.clone(), "true");
    }
    out
}

/// Every deletion of the sources, file by file.
pub fn deletions(folder: &Path) -> Result<Vec<Deletion>> {
    let mut files = Vec::new();
    verify::rust_files(folder, &mut files)?;
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let file = path.strip_prefix(folder)?.to_string_lossy().into_owned();
        all.extend(of_file(&file, &code(&path)?));
    }
    Ok(all)
}

/// The deletions of one file: each clause of a function, and all of them if there are several.
pub fn of_file(file: &str, text: &str) -> Vec<Deletion> {
    let trusted = file.starts_with("trusted/");
    let mut out = Vec::new();
    for item in items(text) {
        let stated = item.signature.contains("proof fn theorem_") || item.signature.contains("proof fn corollary_");
        let seam = file == "trusted/seam.rs" && !item.signature.contains("spec fn");
        let public = item.signature.trim_start().starts_with("pub fn ");
        let of =
            |ranges: Vec<Range<usize>>| Deletion { file: file.into(), function: item.name.clone(), nth: 0, ranges };
        if trusted && item.signature.contains("spec fn ") {
            if let Some(body) = item.body.clone().filter(|_| item.signature.contains("-> bool")) {
                let mut ranges = vec![trimmed(text, body.clone())];
                ranges.extend(conjuncts(text, body.clone()));
                ranges.extend(arms(text, body));
                ranges.dedup();
                out.extend(ranges.into_iter().map(|range| of(vec![range])));
            }
            continue;
        }
        let clauses = if seam {
            [clauses(text, &item, "requires"), clauses(text, &item, "ensures")].concat()
        } else if stated || public && !file.starts_with("proof/") {
            clauses(text, &item, "ensures")
        } else {
            continue;
        };
        let inner = |range: &Range<usize>| {
            if text[range.clone()].contains("&&& ") { conjuncts(text, range.clone()) } else { vec![] }
        };
        for range in &clauses {
            out.push(of(vec![range.clone()]));
            out.extend(inner(range).into_iter().map(|range| of(vec![range])));
        }
        if clauses.len() > 1 {
            out.push(of(clauses));
        }
    }
    let mut count = HashMap::<String, usize>::new();
    for deletion in &mut out {
        let of_name = count.entry(deletion.function.clone()).or_default();
        deletion.nth = *of_name;
        *of_name += 1;
    }
    out
}

/// A function: the text from its first line to its body, and the body.
pub struct Item {
    pub name: String,
    pub signature: String,
    /// Where the signature begins.
    pub at: usize,
    pub body: Option<Range<usize>>,
}

/// The functions of a file. A body begins with a line of its own, or in the signature's one line, and ends with a line at the same
/// indentation.
pub fn items(text: &str) -> Vec<Item> {
    let mut starts = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        starts.push((at, line));
        at += line.len();
    }
    let mut out = Vec::new();
    for (i, (at, line)) in starts.iter().enumerate() {
        let item = line.trim_start();
        let Some((head, rest)) = item.split_once("fn ").filter(|_| !item.starts_with("//")) else { continue };
        let known = ["pub", "open", "closed", "spec", "proof", "pub(crate)", "open(crate)"];
        if !head.split_whitespace().all(|word| known.contains(&word)) {
            continue;
        }
        let indent = &line[..line.len() - item.len()];
        let name = rest.split(['(', '<']).next().unwrap_or(rest).to_string();
        let opens = |line: &str| {
            line.trim_end() == format!("{indent}{{") || line.trim_end().ends_with(" {") && line == starts[i].1
        };
        // A declaration ends with a `;` outside of brackets.
        let mut depth = 0i32;
        let mut ends = |line: &str| {
            let code = if line.trim_start().starts_with("//") { "" } else { line.trim_end() };
            let before = depth;
            depth += code.matches(['(', '{', '[']).count() as i32 - code.matches([')', '}', ']']).count() as i32;
            before == 0 && opens(line) || depth == 0 && code.ends_with(';')
        };
        let Some(last) = (i..starts.len()).find(|j| ends(starts[*j].1)) else { continue };
        let (from, until) = (starts[last].0, starts[last].0 + starts[last].1.len());
        let body = opens(starts[last].1).then(|| {
            let close = (last + 1..starts.len()).find(|j| starts[*j].1.trim_end() == format!("{indent}}}"));
            until..close.map_or(until, |j| starts[j].0)
        });
        let end = if body.is_some() && last > i { from } else { until };
        out.push(Item { name, signature: text[*at..end].into(), at: *at, body });
    }
    out
}

/// The clauses of a section of a signature: what stands between commas.
fn clauses(text: &str, item: &Item, section: &str) -> Vec<Range<usize>> {
    const SECTIONS: [&str; 5] = ["requires", "ensures", "decreases", "no_unwind", "recommends"];
    let (mut range, mut at) = (None::<Range<usize>>, item.at);
    for line in item.signature.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let word = trimmed.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        if SECTIONS.contains(&word) {
            if range.is_some() {
                break;
            }
            if word == section {
                let begin = at + (line.len() - trimmed.len()) + word.len();
                range = Some(begin..at + line.len());
            }
        } else if let Some(range) = &mut range {
            range.end = at + line.len();
        }
        at += line.len();
    }
    range.map(|range| split(text, range, ",")).unwrap_or_default()
}

/// The conjuncts of a definition: each `&&&`, or what stands between `&&` if it is a conjunction in one expression.
fn conjuncts(text: &str, body: Range<usize>) -> Vec<Range<usize>> {
    let inner = &text[body.clone()];
    if !inner.contains("&&& ") {
        let whole = trimmed(text, body.clone());
        let plain = !text[whole.clone()].contains(['{', ';']);
        let parts = split(text, body, " && ");
        let weaker = |part: &Range<usize>| has(&text[part.clone()], &[" ==> ", " || ", " <==> "]);
        // A part that gives a name to the rest cannot go alone.
        let names = |part: &Range<usize>| text[part.clone()].contains(" matches ");
        let parted = plain && parts.len() > 1 && !parts.iter().any(weaker);
        // A quantifier's variables stay: the parts behind them need them.
        let inner = |part: Range<usize>| {
            let bound =
                ["exists|", "forall|"].iter().find_map(|word| text[part.clone()].strip_prefix(word)?.split_once("| "));
            bound.map_or(part.start, |(_, rest)| part.end - rest.len())..part.end
        };
        return parts.into_iter().filter(|part| parted && !names(part)).map(inner).collect();
    }
    let mut out = Vec::new();
    let mut from = 0;
    while let Some(found) = inner[from..].find("&&& ") {
        let begin = from + found + 4;
        let end = ends(&inner[begin..]).map_or(inner.len(), |n| begin + n);
        out.push(trimmed(text, body.start + begin..body.start + end));
        from = begin;
    }
    out
}

/// What each arm of a `match` gives where the `match` is a clause, not a value.
fn arms(text: &str, body: Range<usize>) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    for (found, _) in text[body.clone()].match_indices("match ") {
        let at = body.start + found;
        let before = text[..at].trim_end();
        let comment = text[..at].rsplit('\n').next().unwrap_or("").contains("//");
        let Some(open) = text[at..body.end].find(" {\n").map(|n| at + n + 2) else { continue };
        if comment || before.ends_with('=') || text[at..open].contains('\n') {
            continue;
        }
        let close = ends(&text[open..]).map_or(body.end, |n| open + n);
        for arm in split(text, open..close, ",") {
            if let [_, .., last] = &split(text, arm.clone(), " => ")[..] {
                out.push(last.start..arm.end);
            }
        }
    }
    out.retain(|arm| !["true", "false"].contains(&&text[arm.clone()]));
    out
}

/// Whether one of these stands in an expression outside of brackets.
fn has(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| split(text, 0..text.len(), word).len() > 1)
}

/// Where a conjunct ends: at the next `&&&` beside it, or where its block closes.
fn ends(text: &str) -> Option<usize> {
    let mut depth = 0i32;
    let mut skip = false;
    for (i, c) in text.char_indices() {
        if skip || text[i..].starts_with("//") {
            skip = c != '\n';
            continue;
        }
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth < 0 || depth == 0 && text[i..].starts_with("&&& ") {
            return Some(i);
        }
    }
    None
}

/// The parts of a range between separators that stand outside of brackets, of comments and of a quantifier's variables.
fn split(text: &str, range: Range<usize>, separator: &str) -> Vec<Range<usize>> {
    let part = &text[range.clone()];
    let (mut depth, mut comment, mut bound) = (0i32, false, false);
    let (mut out, mut begin) = (Vec::new(), 0);
    for (i, c) in part.char_indices() {
        if comment || part[i..].starts_with("//") {
            comment = c != '\n';
            continue;
        }
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '|' if bound => bound = false,
            '|' if ["forall", "exists", "choose"].iter().any(|word| part[..i].ends_with(word)) => bound = true,
            _ => {}
        }
        if depth == 0 && !bound && part[i..].starts_with(separator) {
            out.push(begin..i);
            begin = i + separator.len();
        }
    }
    out.push(begin..part.len());
    let placed = out.into_iter().map(|r| trimmed(text, range.start + r.start..range.start + r.end));
    placed.filter(|r| !r.is_empty()).collect()
}

/// A range without the space, comments and final `;` around it.
fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let Range { mut start, mut end } = range;
    loop {
        let part = &text[start..end];
        let spaces = part.len() - part.trim_start().len();
        start += spaces;
        if !text[start..end].starts_with("//") {
            break;
        }
        start += text[start..end].find('\n').unwrap_or(end - start);
    }
    loop {
        end = start + text[start..end].trim_end().trim_end_matches([';', ',']).trim_end().len();
        let line = start + text[start..end].rfind('\n').map_or(0, |n| n + 1);
        if line == start || !text[line..end].trim_start().starts_with("//") {
            return start..end;
        }
        end = line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(file: &str, text: &str) -> Vec<String> {
        of_file(file, text).iter().map(|deletion| deletion.words(text)).collect()
    }

    #[test]
    fn each_clause_of_a_public_contract_is_one() {
        let text = "    /// x\n    pub fn a(&self) -> (n: usize)\n        requires b,\n        ensures\n            // Words, not a clause.\n            \
            n == f(1, 2), forall|i: int, j: int| i < j ==> {\n                p(i)\n            },\n    {\n        1\n    }\n\n    fn own(&self)\n        \
            ensures true,\n    {\n    }\n";
        assert_eq!(
            texts("image.rs", text),
            ["n == f(1, 2)", "forall|i: int, j: int| i < j ==> { p(i) }", "all 2 clauses"]
        );
        let text = "pub proof fn theorem_a(x: int)\n    requires x > 0,\n    ensures\n        ({\n            let y = x;\n            \
            &&& y >= 0\n            &&& true\n        }),\n{\n}\n";
        assert_eq!(texts("proof/trace.rs", text), ["({ let y = x; &&& y >= 0 &&& true })", "y >= 0", "true"]);
        let text = "    fn run(&mut self)\n        requires a,\n        ensures\n            // One.\n            b ==> c,\n        no_unwind;\n";
        assert_eq!(texts("trusted/seam.rs", text), ["a", "b ==> c", "all 2 clauses"]);
    }

    #[test]
    fn each_conjunct_of_a_definition_is_one() {
        let text = "pub open(crate) spec fn f(a: bool) -> bool {\n    let b = a;\n    &&& a\n    // Why.\n    &&& b ==> {\n        &&& c && d\n        \
            &&& e\n    }\n}\n\npub open(crate) spec fn g() -> bool {\n    a && b(1, x && y)\n}\n\npub open(crate) spec fn h() -> bool {\n    \
            a && b ==> c\n}\n\npub open(crate) spec fn i() -> bool {\n    exists|s: int| a(s) && #[trigger] b(s)\n}\n";
        let found = texts("trusted/next.rs", text);
        // The whole definition comes first.
        assert!(found[0].starts_with("let b = a; &&& a"));
        assert_eq!(found[1..5], ["a", "b ==> { &&& c && d &&& e }", "c && d", "e"]);
        assert_eq!(
            found[5..],
            [
                "a && b(1, x && y)",
                "a",
                "b(1, x && y)",
                "a && b ==> c",
                "exists|s: int| a(s) && #[trigger] b(s)",
                "a(s)",
                "#[trigger] b(s)"
            ]
        );
        assert_eq!(texts("state.rs", text), [""; 0]);
    }

    #[test]
    fn an_arm_of_a_match_is_one() {
        let text = "pub open(crate) spec fn f(a: A) -> bool {\n    match a {\n        A::B | A::C { x: (y, _) } => y,\n        A::D => {\n            \
            &&& p ==> q\n        },\n        _ => false,\n    }\n}\n\npub open(crate) spec fn g(a: A) -> bool {\n    \
            &&& n == match a {\n        A::B => 1,\n    }\n}\n";
        let found = texts("trusted/next.rs", text);
        assert_eq!(found[1..4], ["p ==> q", "y", "{ &&& p ==> q }"]);
        assert_eq!(found[4..], ["&&& n == match a { A::B => 1, }", "n == match a { A::B => 1, }"]);
    }

    #[test]
    fn a_deleted_clause_is_true() {
        let text = "spec fn f() -> bool {\n    &&& a\n    &&& b\n}\n";
        let ranges = |numbers: &[usize]| {
            let all = of_file("trusted/next.rs", text);
            numbers.iter().flat_map(|n| all[*n].ranges.clone()).collect::<Vec<_>>()
        };
        assert_eq!(without(text, &mut ranges(&[1])), "spec fn f() -> bool {\n    &&& true\n    &&& b\n}\n");
        assert_eq!(without(text, &mut ranges(&[2, 1])), "spec fn f() -> bool {\n    &&& true\n    &&& true\n}\n");
        assert_eq!(without(text, &mut ranges(&[0])), "spec fn f() -> bool {\n    true\n}\n");
    }
}
