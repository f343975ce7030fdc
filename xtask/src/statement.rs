//! `cargo xtask verify-statement`: looks for clauses of the core's statement that nothing uses. A clause that can be deleted while
//! everything verifies says nothing. So this command replaces clauses by `true`, one at a time and all of a function together,
//! verifies, and prints which survive: conjuncts of the definitions in `trusted/`, what devices and samplers must ensure and may
//! require, what public functions ensure, and what the theorems and corollaries do.
//!
//! It never tries what is *added* to a clause: `mutants/` has such weakenings. Read next: `verify.rs`, `mutants.rs`.

use crate::mutants::Place;
use crate::root;
use crate::verify::{self, Outcome, VERUS, installed};
use anyhow::{Context, Result, ensure};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{fs, thread};

/// Modules that test the statement. They are quick, and most clauses die in them.
const SUITES: [&str; 9] = [
    "proof::suite",
    "proof::suite_words",
    "proof::suite_legal",
    "proof::suite_effects",
    "proof::suite_premises",
    "proof::users",
    "proof::witness",
    "proof::symbolic",
    "proof::trace",
];
const SOURCES: &str = "crates/vosti-core/src";

#[derive(clap::Args)]
pub struct Statement {
    /// Only clauses whose place (`file: function`) contains one of these words; all if none is given
    places: Vec<String>,
    /// Print the clauses instead of trying them
    #[arg(long)]
    list: bool,
    /// How many clauses to try at a time; one for each processor if not given
    #[arg(long)]
    jobs: Option<usize>,
}

/// Clauses that are deleted together.
#[derive(Clone, Debug, PartialEq)]
pub struct Deletion {
    /// The file below the core's sources.
    pub file: String,
    pub function: String,
    /// Their bytes in the file, in order.
    pub ranges: Vec<Range<usize>>,
}

impl Deletion {
    /// The file's text without them.
    fn apply(&self, text: &str) -> String {
        let mut out = text.to_string();
        for range in self.ranges.iter().rev() {
            out.replace_range(range.clone(), "true");
        }
        out
    }

    /// The clause in one line, or how many there are.
    fn words(&self, text: &str) -> String {
        match &self.ranges[..] {
            [range] => text[range.clone()].split_whitespace().collect::<Vec<_>>().join(" "),
            ranges => format!("all {} clauses", ranges.len()),
        }
    }
}

/// Tries every deletion, or those of the named places; the error names what survived.
pub fn run(options: &Statement) -> Result<()> {
    let folder = root().join(SOURCES);
    let wanted = |deletion: &Deletion| {
        let place = format!("{}: {}", deletion.file, deletion.function);
        options.places.is_empty() || options.places.iter().any(|word| place.contains(word))
    };
    let all: Vec<Deletion> = deletions(&folder)?.into_iter().filter(wanted).collect();
    ensure!(!all.is_empty(), "no clause stands at such a place");
    let text = |deletion: &Deletion| fs::read_to_string(folder.join(&deletion.file));
    if options.list {
        for deletion in &all {
            println!("{}: {}: {}", deletion.file, deletion.function, deletion.words(&text(deletion)?));
        }
        println!("{} deletions", all.len());
        return Ok(());
    }
    ensure!(installed()?, "this needs Verus {VERUS} on PATH");
    let start = Instant::now();
    let jobs =
        options.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).clamp(1, all.len());
    let places = (0..jobs).map(|job| Place::new(job, true)).collect::<Result<Vec<_>>>()?;
    let queue = Mutex::new((all.iter(), Vec::new()));
    thread::scope(|scope| {
        for place in &places {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).0.next();
                    let Some(deletion) = next else { return };
                    let outcome = text(deletion).context("reading").and_then(|text| {
                        let words = deletion.words(&text);
                        Ok((words, tried(deletion, &text, place)?))
                    });
                    let line = match outcome {
                        Ok((_, None)) => continue,
                        Ok((words, Some(how))) => format!("{}: {}: {how}: {words}", deletion.file, deletion.function),
                        Err(error) => format!("{}: {}: {error:#}", deletion.file, deletion.function),
                    };
                    println!("{line}");
                    queue.lock().unwrap_or_else(PoisonError::into_inner).1.push(line);
                }
            });
        }
    });
    let survivors = queue.into_inner().unwrap_or_else(PoisonError::into_inner).1;
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!("{} deletions tried in {minutes:.0} min, {} survived", all.len(), survivors.len());
    ensure!(survivors.is_empty(), "these clauses can be deleted unseen:\n{}", survivors.join("\n"));
    Ok(())
}

/// None if an obligation fails without the clauses; otherwise how they survived.
fn tried(deletion: &Deletion, text: &str, place: &Place) -> Result<Option<&'static str>> {
    let path = Path::new(SOURCES).join(&deletion.file);
    let suites: Vec<&str> = SUITES.iter().flat_map(|module| ["--verify-only-module", module]).collect();
    place.edited(&path, &deletion.apply(text), |copy| {
        for extra in [&suites[..], &[]] {
            match verify::verify(copy, place.target(), extra)? {
                Outcome::Verified { errors: 0, .. } => {}
                Outcome::Verified { .. } => return Ok(None),
                Outcome::GaveUp => return Ok(Some("the solver gave up")),
                Outcome::Broken(_) => return Ok(Some("does not compile")),
            }
        }
        Ok(Some("survives"))
    })
}

/// Every deletion of the sources, file by file.
fn deletions(folder: &Path) -> Result<Vec<Deletion>> {
    let mut files = Vec::new();
    verify::rust_files(folder, &mut files)?;
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let file = path.strip_prefix(folder)?.to_string_lossy().into_owned();
        all.extend(of_file(&file, &fs::read_to_string(&path)?));
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
        let ranges = if trusted && item.signature.contains("spec fn ") {
            item.body.as_ref().map(|body| conjuncts(text, body.clone())).unwrap_or_default()
        } else if seam {
            [clauses(text, &item, "requires"), clauses(text, &item, "ensures")].concat()
        } else if stated || public && !file.starts_with("proof/") {
            clauses(text, &item, "ensures")
        } else {
            continue;
        };
        let deletion = |ranges: Vec<Range<usize>>| Deletion { file: file.into(), function: item.name.clone(), ranges };
        out.extend(ranges.iter().map(|range| deletion(vec![range.clone()])));
        // A conjunct may stand inside of another one.
        let inside = |range: &Range<usize>| {
            ranges.iter().any(|other| other != range && other.start <= range.start && range.end <= other.end)
        };
        let outer: Vec<_> = ranges.iter().filter(|range| !inside(range)).cloned().collect();
        if outer.len() > 1 {
            out.push(deletion(outer));
        }
    }
    out
}

/// A function: the text from its first line to its body, and the body.
struct Item {
    name: String,
    signature: String,
    /// Where the signature begins.
    at: usize,
    body: Option<Range<usize>>,
}

/// The functions of a file. A body begins with a line of its own, or in the signature's one line, and ends with a line at the same
/// indentation.
fn items(text: &str) -> Vec<Item> {
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
        let ends = |line: &str| opens(line) || line.trim_end().ends_with(';') && !line.trim_start().starts_with("//");
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
        return if plain && parts.len() > 1 && !parts.iter().any(weaker) { parts } else { vec![] };
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
        let text = "pub proof fn theorem_a(x: int)\n    requires x > 0,\n    ensures x >= 0,\n{\n}\n";
        assert_eq!(texts("proof/trace.rs", text), ["x >= 0"]);
        let text = "    fn run(&mut self)\n        requires a,\n        ensures\n            // One.\n            b ==> c,\n        no_unwind;\n";
        assert_eq!(texts("trusted/seam.rs", text), ["a", "b ==> c", "all 2 clauses"]);
    }

    #[test]
    fn each_conjunct_of_a_definition_is_one() {
        let text = "pub open(crate) spec fn f(a: bool) -> bool {\n    let b = a;\n    &&& a\n    // Why.\n    &&& b ==> {\n        &&& c && d\n        \
            &&& e\n    }\n}\n\npub open(crate) spec fn g() -> bool {\n    a && b(1, x && y)\n}\n\npub open(crate) spec fn h() -> bool {\n    \
            a && b ==> c\n}\n";
        let found = texts("trusted/next.rs", text);
        assert_eq!(found[..3], ["a", "b ==> { &&& c && d &&& e }", "c && d"]);
        assert_eq!(found[3..], ["e", "all 2 clauses", "a", "b(1, x && y)", "all 2 clauses"]);
        assert_eq!(texts("state.rs", text), [""; 0]);
    }

    #[test]
    fn a_deleted_clause_is_true() {
        let text = "spec fn f() -> bool {\n    &&& a\n    &&& b\n}\n";
        let deletions = of_file("trusted/next.rs", text);
        assert_eq!(deletions[0].apply(text), "spec fn f() -> bool {\n    &&& true\n    &&& b\n}\n");
        assert_eq!(deletions[2].apply(text), "spec fn f() -> bool {\n    &&& true\n    &&& true\n}\n");
    }
}
