//! Which functions an obligation depends on, read from the text. So several clauses can be deleted at once: if an obligation fails and
//! depends on one of the deletions only, that deletion alone makes it fail.
//!
//! It errs on the safe side: functions of one name count as one.

use super::clauses::{Item, code, items};
use crate::verify;
use anyhow::Result;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// What each function's text names. Obligations are told apart by file too.
#[derive(Default)]
pub struct Reach {
    /// What a function's obligation speaks of: calls in its whole text.
    own: HashMap<(String, String), HashSet<String>>,
    /// What a caller gets of a function: a definition's body, and the contract of any other function. Bodies of closed definitions
    /// are in `closed`, with their file.
    seen: HashMap<String, HashSet<String>>,
    closed: HashMap<String, Vec<(String, HashSet<String>)>>,
    /// Functions that run, and the type invariants, which those may use without naming them.
    running: HashSet<(String, String)>,
    invariants: HashSet<String>,
    /// The text of each function, and of the functions of a name what their callers get; of a definition that is all of it.
    texts: BTreeMap<(String, String), String>,
    shown: HashMap<String, String>,
    /// What stands outside of functions, without imports: types, constants, and heads of traits and implementations.
    frame: String,
}

impl Reach {
    pub fn new(folder: &Path) -> Result<Reach> {
        let mut files = Vec::new();
        verify::rust_files(folder, &mut files)?;
        files.sort();
        let mut reach = Reach::default();
        for path in files {
            let file = path.strip_prefix(folder)?.to_string_lossy().into_owned();
            reach.add(&file, &code(&path)?);
        }
        Ok(reach)
    }

    fn add(&mut self, file: &str, text: &str) {
        let mut outside = 0;
        for item in items(text) {
            self.keep(file, text, &item, &mut outside);
            let body = item.body.clone().map_or("", |range| &text[range]);
            let (mut contract, mut whole) = (calls(&item.signature), calls(&item.signature));
            // Specifications ask no array of a step for its length, but sequences.
            contract.remove("len");
            whole.extend(calls(body));
            let definition = item.signature.contains("spec fn ");
            if definition {
                whole.remove("len");
            }
            if definition && item.signature.contains("closed ") {
                self.closed.entry(item.name.clone()).or_default().push((file.into(), whole.clone()));
            } else {
                self.seen.entry(item.name.clone()).or_default().extend(if definition {
                    whole.clone()
                } else {
                    contract
                });
            }
            if text[..item.at].trim_end().ends_with("#[verifier::type_invariant]") {
                self.invariants.insert(item.name.clone());
            }
            if !definition && !item.signature.contains("proof fn ") {
                self.running.insert((file.into(), item.name.clone()));
            } else {
                whole.remove("len");
            }
            self.own.entry((file.into(), item.name)).or_default().extend(whole);
        }
        self.frame += &without_imports(&text[outside..]);
    }

    /// Keeps the texts of a function, and what stands between it and the one before.
    fn keep(&mut self, file: &str, text: &str, item: &Item, outside: &mut usize) {
        let signature = item.at..item.at + item.signature.len();
        let whole = item.at..item.body.as_ref().map_or(signature.end, |body| body.end);
        let shown = if item.signature.contains("spec fn ") { whole.clone() } else { signature };
        *self.texts.entry((file.into(), item.name.clone())).or_default() += &text[whole.clone()];
        *self.shown.entry(item.name.clone()).or_default() += &text[shown];
        // A function in a function's text is part of that.
        self.frame += &without_imports(&text[(*outside).min(item.at)..item.at]);
        *outside = whole.end.max(*outside);
    }

    /// A hash of all that an obligation of this function depends on: while it is the same, what failed fails.
    pub fn evidence(&self, file: &str, function: &str) -> String {
        let mut names: Vec<String> = self.of(file, function).into_iter().collect();
        names.sort();
        let own = self.texts.get(&(file.to_string(), function.to_string()));
        let shown = names.iter().flat_map(|name| [Some(name), self.shown.get(name)]);
        let mut hash = blake3::Hasher::new();
        for text in [Some(&self.frame), own].into_iter().chain(shown).flatten() {
            hash.update(text.as_bytes()).update(&[0]);
        }
        hash.finalize().to_hex().to_string()
    }

    /// Every function of these files, and what it depends on.
    pub fn proofs(&self, files: impl Fn(&str) -> bool) -> Vec<(String, HashSet<String>)> {
        let of = |(file, name): &(String, String)| files(file).then(|| (name.clone(), self.of(file, name)));
        let mut out: Vec<_> = self.own.keys().filter_map(of).collect();
        out.sort_by(|a, b| (a.1.len(), &a.0).cmp(&(b.1.len(), &b.0)));
        out
    }

    /// The names of all functions that an obligation of this function depends on, its own among them.
    pub fn of(&self, file: &str, function: &str) -> HashSet<String> {
        let mut out = HashSet::new();
        let root = (file.to_string(), function.to_string());
        let mut next: Vec<String> = self.own.get(&root).into_iter().flatten().cloned().collect();
        if self.running.contains(&root) {
            next.extend(self.invariants.iter().cloned());
        }
        while let Some(name) = next.pop() {
            if !out.insert(name.clone()) {
                continue;
            }
            next.extend(self.seen.get(&name).into_iter().flatten().cloned());
            let inside = |home: &str| file == home || file.starts_with(&format!("{}/", home.trim_end_matches(".rs")));
            let closed = self.closed.get(&name).into_iter().flatten();
            next.extend(closed.filter(|(home, _)| inside(home)).flat_map(|(_, calls)| calls).cloned());
        }
        out.insert(function.into());
        out
    }
}

/// Without lines of brackets too.
fn without_imports(text: &str) -> String {
    let mut imports = false;
    let keeps = |line: &&str| {
        let begins = line.starts_with("use ") || line.starts_with("pub use ");
        let keeps = !imports && !begins && line.contains(char::is_alphanumeric);
        imports = (imports || begins) && !line.trim_end().ends_with(';');
        keeps
    };
    text.split_inclusive('\n').filter(keeps).collect()
}

/// The function whose text has this line, counted from 1; None if that is only declared there.
pub fn function_at(text: &str, line: usize) -> Option<String> {
    let at = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum::<usize>();
    let has = |item: &Item| item.body.as_ref().is_some_and(|body| (item.at..=body.end).contains(&at));
    items(text).into_iter().find(has).map(|item| item.name)
}

/// The names that are called: followed by `(` or by `::<`.
fn calls(text: &str) -> HashSet<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = HashSet::new();
    let mut begin = None;
    for (i, c) in text.char_indices() {
        if word(c) {
            begin.get_or_insert(i);
        } else if let Some(begin) = begin.take() {
            let vstd = ["Seq::new", "Vec::new", "Map::new"].iter().any(|name| text[..i].ends_with(name));
            if !vstd && (c == '(' || text[i..].starts_with("::<")) {
                out.insert(text[begin..i].to_string());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "impl A {\n    #[verifier::type_invariant]\n    closed spec fn sound(self) -> bool {\n        deep(self)\n    }\n}\n\n\
        spec fn word(x: int) -> bool {\n    other::<int>(x)\n}\n\nproof fn lemma(x: int)\n    ensures word(x),\n{\n    helper(x);\n}\n\n\
        proof fn user(x: int)\n    ensures true,\n{\n    lemma(x);\n    a.sound()\n}\n\npub fn runs()\n    ensures true,\n{\n}\n\n\
        trait T {\n    fn promised()\n        ensures kept();\n}\n";

    fn of(home: &str, function: &str) -> Vec<String> {
        let mut reach = Reach::default();
        reach.add("core.rs", TEXT);
        reach.add("proof/x.rs", "proof fn far()\n    ensures sound(),\n{\n}\n");
        let mut found: Vec<String> = reach.of(home, function).into_iter().collect();
        found.sort();
        found
    }

    #[test]
    fn a_proof_depends_on_its_text_and_on_what_it_calls_ensures() {
        assert_eq!(of("core.rs", "lemma"), ["helper", "lemma", "other", "word"]);
        // Not on how a lemma is proved, and on a closed definition's body in its own file only.
        assert_eq!(of("core.rs", "user"), ["deep", "lemma", "other", "sound", "user", "word"]);
        assert_eq!(of("proof/x.rs", "far"), ["far", "sound"]);
        assert_eq!(of("core.rs", "runs"), ["deep", "runs", "sound"]);
    }

    #[test]
    fn what_failed_fails_until_something_changes_that_it_speaks_of() {
        let evidence = |from: &str, to: &str| {
            let mut reach = Reach::default();
            assert!(from.is_empty() || TEXT.contains(from));
            reach.add("core.rs", &if from.is_empty() { TEXT.to_string() } else { TEXT.replacen(from, to, 1) });
            reach.add("proof/x.rs", "use crate::a;\n\nproof fn far()\n    ensures sound(),\n{\n}\n");
            (reach.evidence("core.rs", "lemma"), reach.evidence("proof/x.rs", "far"))
        };
        let (lemma, far) = evidence("", "");
        // Its own text, a definition's body, and what stands outside of functions.
        assert_ne!(evidence("helper(x);", "helper(x); helper(x);").0, lemma);
        assert_ne!(evidence("    other::<int>(x)", "    !other::<int>(x)").0, lemma);
        assert_ne!(evidence("impl A", "impl B").0, lemma);
        assert_ne!(evidence("deep(self)", "true").1, far);
        // Another lemma, before or after it, and how another lemma is proved.
        assert_eq!(evidence("    lemma(x);\n", "    lemma(x);\n    helper(x);\n").0, lemma);
        assert_eq!(evidence("helper(x);", "helper(x); helper(x);").1, far);
        assert_eq!(evidence("spec fn word", "proof fn more()\n    ensures true,\n{\n}\nspec fn word").0, lemma);
        assert_eq!(evidence("impl A", "use a::{\n    b,\n};\nimpl A").0, lemma);
    }

    #[test]
    fn a_line_is_of_the_function_that_has_a_body() {
        let at = |line| function_at(TEXT, line);
        assert_eq!(
            [at(4).unwrap(), at(9).unwrap(), at(14).unwrap(), at(15).unwrap()],
            ["sound", "word", "lemma", "lemma"]
        );
        let declared = TEXT.lines().position(|line| line.contains("kept")).unwrap() + 1;
        assert_eq!((at(1), at(declared)), (None, None));
    }
}
