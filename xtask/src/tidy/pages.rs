//! Rules for claims that pages and comments make about the tree: a named file exists, and a stated count is the tree's.
//! Measurements (times, rates) are not checked, and this file must never judge prose.

use super::{File, rust};
use crate::root;

/// A file that a page or a comment names must exist.
pub fn cited_files_exist(files: &[File]) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in pages(files).chain(rust(files)).filter(|file| !in_log(file)) {
        for (i, line) in file.text.lines().enumerate() {
            let prose = file.path.ends_with(".md") || line.trim_start().starts_with("//");
            for path in line.split(|c: char| c.is_whitespace() || "`()[]<>\"',;:".contains(c)).filter(|_| prose) {
                let path = path.trim_end_matches('.');
                if names_a_file(path) && !exists(files, path) {
                    breaches.push(format!("{}:{}: names {path}, which is not there", file.path, i + 1));
                }
            }
        }
    }
    breaches
}

/// The folders that paths in prose begin with.
const PLACES: &[&str] = &["bench", "crates", "deploy", "docs", "filetests", "kernels", "xtask"];

/// Whether a word is a path in this repository, written out: no pattern, no stand-in in capitals.
fn names_a_file(word: &str) -> bool {
    let first = word.split('/').next().unwrap_or("");
    let ours = PLACES.contains(&first) || (first.starts_with("vosti-") && word.contains("/src/"));
    let name = word.rsplit('/').next().unwrap_or("");
    let stem = name.split('.').next().unwrap_or("");
    let stands_in = !stem.is_empty() && stem.chars().all(|c| c.is_ascii_uppercase());
    ours && word.contains('/') && name.contains('.') && !stands_in && !word.contains(['*', '{', '$', '…'])
}

fn exists(files: &[File], path: &str) -> bool {
    let path = path.split('#').next().unwrap_or(path);
    let known = |path: &str| files.iter().any(|file| file.path == path) || root().join(path).exists();
    known(path) || known(&format!("crates/{path}"))
}

/// A count that pages state: the words before and behind the number, and the tree's number.
struct Count {
    before: &'static str,
    after: &'static str,
    is: usize,
}

/// A count that a page states must be the tree's, because the next change may make it wrong.
pub fn counts_are_the_trees(files: &[File]) -> Vec<String> {
    let mut breaches = Vec::new();
    for count in counts(files) {
        let mut seen = false;
        for file in pages(files).filter(|file| !in_log(file)) {
            for (i, line) in file.text.lines().enumerate() {
                for said in said(line, &count) {
                    seen = true;
                    if said != count.is {
                        let Count { before, after, is } = count;
                        breaches.push(format!("{}:{}: {before}{said}{after}; it is {is}", file.path, i + 1));
                    }
                }
            }
        }
        if !seen && count.is > 0 {
            breaches
                .push(format!("docs/: no page says \"{}N{}\", so this rule checks nothing", count.before, count.after));
        }
    }
    breaches
}

fn counts(files: &[File]) -> Vec<Count> {
    let number = |folder: &str, ending: &str| {
        let inside = |file: &&File| {
            let name = file.path.strip_prefix(folder).and_then(|rest| rest.strip_suffix(ending));
            name.is_some_and(|name| !name.contains('/'))
        };
        files.iter().filter(inside).count()
    };
    let saying = |folder: &str, line: &str| {
        let python = |file: &&File| file.path.starts_with(folder) && file.path.ends_with(".py");
        files.iter().filter(python).filter(|file| file.text.contains(line)).count()
    };
    // Files that hold several broken kernels, or several texts.
    let lines = |folder: &str, start: &str| {
        let inside = files.iter().filter(|file| file.path.starts_with(folder));
        inside.flat_map(|file| file.text.lines()).filter(|line| line.starts_with(start)).count()
    };
    let receipt = files.iter().find(|file| file.path == "crates/vosti-core/proof-receipt.json");
    let receipt = receipt.and_then(|file| serde_json::from_str::<serde_json::Value>(&file.text).ok());
    let verified = receipt.and_then(|receipt| receipt["verified"].as_u64()).unwrap_or(0) as usize;
    let mutants = "crates/vosti-core/mutants/";
    let neutral = lines(&format!("{mutants}neutral.patch"), "=== ");
    vec![
        Count { before: "", after: " verified, 0 errors", is: verified },
        Count { before: "", after: " checked-in texts", is: lines("kernels/ttir/", "// text of ") },
        Count { before: "", after: " kernels pass", is: number("filetests/pass/", ".py") },
        Count { before: "", after: " broken kernels", is: lines("filetests/broken/", "=== ") },
        Count { before: "", after: " come with a replayed pair", is: lines("filetests/broken/", "#: replay: differs") },
        Count { before: "", after: " kernels, all with dimensions", is: saying("kernels/", "# /// contract\n") },
        Count { before: "", after: " wrong and ", is: lines(mutants, "=== ") - neutral },
        Count { before: "", after: " neutral versions", is: neutral },
    ]
}

/// The numbers in a line that stand between the words of a count.
fn said(line: &str, count: &Count) -> Vec<usize> {
    let mut said = Vec::new();
    for (at, _) in line.match_indices(count.after) {
        let digits: String = line[..at].chars().rev().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
        let number: String = digits.chars().rev().filter(char::is_ascii_digit).collect();
        if let Ok(number) = number.parse()
            && line[..at - digits.len()].ends_with(count.before)
        {
            said.push(number);
        }
    }
    said
}

fn pages(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".md"))
}

/// Pages of the log are history, and may name files and counts of the past.
fn in_log(file: &File) -> bool {
    file.path.starts_with("docs/log/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Vec<File> {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let receipt = file("crates/vosti-core/proof-receipt.json", "{\"verified\": 7}");
        vec![file("docs/a.md", text), receipt, file("filetests/broken/x.patch", "=== one\n@@\n")]
    }

    #[test]
    fn a_file_that_is_not_there_is_seen_and_one_that_is_is_not() {
        let cited = |text: &str| cited_files_exist(&page(text)).len();
        assert_eq!(cited("see `docs/nothing.md`, kernels/nothing.py and vosti-core/src/nothing.rs."), 3);
        assert_eq!(
            cited("see [it](docs/a.md), `crates/vosti-core/src/trusted/spec.rs`, `kernels/*.py`, docs/NAME.md"),
            0
        );
    }

    #[test]
    fn a_count_that_is_not_the_trees_is_seen() {
        let breaches = |text: &str| counts_are_the_trees(&page(text));
        let right = "7 verified, 0 errors; 1 broken kernels";
        assert_eq!(breaches(right), Vec::<String>::new());
        assert_eq!(breaches(&right.replace('7', "1,008")).len(), 1);
        assert_eq!(breaches("7 verified, 0 errors").len(), 1, "nothing says how many broken kernels there are");
    }
}
