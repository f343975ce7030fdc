//! `cargo xtask verify-statement`: looks for clauses of the core's statement that nothing uses. A clause that can be deleted while
//! everything verifies says nothing. So this command replaces clauses by `true`, one at a time and all of a function together,
//! verifies, and prints which survive: parts of the definitions in `trusted/`, what devices and samplers must ensure and may
//! require, what public functions ensure, and what the theorems and corollaries do.
//!
//! Verus takes seconds before it proves anything, so many deletions are tried at once: one is dead if an obligation fails
//! that depends on no other of them (`reach.rs`). The rest is tried in smaller groups, and in the end alone. What is
//! dead is noted beside the receipt with the obligation that failed, so a run that was stopped goes on where it was, and a change of the
//! core makes only what depends on it undecided.
//!
//! It never tries what is *added* to a clause: `mutants/` has such weakenings. Read next: `clauses.rs`, `verify.rs`, `mutants.rs`.

mod clauses;
mod reach;

use crate::mutants::Place;
use crate::root;
use crate::verify::{self, Failure, Outcome, VERUS, installed};
use anyhow::{Result, bail, ensure};
use clauses::Deletion;
use reach::Reach;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{fmt, fs, thread};

/// Modules that test the statement: those in which most clauses die, and those whose verification takes longer.
const QUICK: [&str; 6] = ["suite", "suite_words", "suite_legal", "suite_effects", "suite_premises", "users"];
const SLOW: [&str; 3] = ["witness", "symbolic", "trace"];
/// How many deletions are tried at a time at most, and in which modules; the last passes verify the whole core, which takes longest.
const PASSES: [(usize, &[&str]); 5] = [(32, &QUICK), (8, &SLOW), (1, &QUICK), (8, &[]), (1, &[])];
const SOURCES: &str = "crates/vosti-core/src";
/// Which deletions are dead: on each line a deletion, the file and the function of the obligation that failed, and a hash of all that the
/// obligation depends on. A line with another hash than the sources' says nothing.
const NOTES: &str = "crates/vosti-core/proof-statement.tsv";

#[derive(clap::Args)]
pub struct Options {
    /// Only clauses whose place (`file: function`) contains one of these words; all if none is given
    places: Vec<String>,
    /// Print the clauses instead of trying them
    #[arg(long)]
    list: bool,
    /// How many groups of clauses to try at a time; one for each processor if not given
    #[arg(long)]
    jobs: Option<usize>,
}

/// The part of the proof receipt that says how far the statement was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    made_by: String,
    deletions: usize,
    /// How many of the deletions make an obligation fail, by the notes.
    dead: usize,
    /// The clauses that can be deleted unseen; `docs/proof-tour.md` gives the reason of each.
    survivors: Vec<String>,
}

impl Tried {
    /// What the notes say of these sources, and the survivors that a run named.
    pub fn of_these_sources(survivors: Vec<String>) -> Result<Tried> {
        let folder = root().join(SOURCES);
        let all = clauses::deletions(&folder)?;
        let dead = Notes::open(&root().join(NOTES), &all, &Reach::new(&folder)?)?.count();
        ensure!(dead + survivors.len() <= all.len(), "the receipt has more dead clauses than there are");
        Ok(Tried { made_by: "cargo xtask verify-statement".into(), deletions: all.len(), dead, survivors })
    }

    pub fn survivors(self) -> Vec<String> {
        self.survivors
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dead, survivors) = (self.dead, self.survivors.len());
        let left = self.deletions - dead - survivors;
        write!(f, "{} deletions, {dead} dead, {survivors} survived, {left} not decided", self.deletions)
    }
}

fn place(deletion: &Deletion) -> String {
    format!("{}: {}", deletion.file, deletion.function)
}

/// Tries every deletion, or those of the named places; the error names what survived. The receipt says how far it came.
pub fn run(options: &Options) -> Result<()> {
    let folder = root().join(SOURCES);
    let all = clauses::deletions(&folder)?;
    let wanted = |deletion: &&Deletion| {
        options.places.is_empty() || options.places.iter().any(|word| place(deletion).contains(word))
    };
    let chosen: Vec<&Deletion> = all.iter().filter(wanted).collect();
    ensure!(!chosen.is_empty(), "no clause stands at such a place");
    let line = |deletion: &Deletion| {
        let text = clauses::code(&folder.join(&deletion.file))?;
        Ok::<_, anyhow::Error>(format!("{}: {}", place(deletion), deletion.words(&text)))
    };
    if options.list {
        for deletion in &chosen {
            println!("{}", line(deletion)?);
        }
        println!("{} deletions", chosen.len());
        return Ok(());
    }
    ensure!(installed()?, "this needs Verus {VERUS} on PATH");
    let jobs =
        options.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).clamp(1, chosen.len());
    let places = (0..jobs).map(|job| Place::new(job, true)).collect::<Result<Vec<_>>>()?;
    let reach = Reach::new(&folder)?;
    let notes = Notes::open(&root().join(NOTES), &all, &reach)?;
    let trial = Trial { reach, notes, places, folder: folder.clone() };
    let survivors = trial.survivors(&chosen)?.into_iter().map(line).collect::<Result<Vec<_>>>()?;
    println!("{} deletions tried, {} survived", chosen.len(), survivors.len());
    verify::note_tried(if chosen.len() == all.len() { survivors.clone() } else { vec![] })?;
    ensure!(survivors.is_empty(), "these clauses can be deleted unseen:\n{}", survivors.join("\n"));
    Ok(())
}

/// What is needed to try deletions.
struct Trial {
    folder: PathBuf,
    reach: Reach,
    notes: Notes,
    places: Vec<Place>,
}

impl Trial {
    /// Those of the deletions that no obligation notices.
    fn survivors<'a>(&self, chosen: &[&'a Deletion]) -> Result<Vec<&'a Deletion>> {
        let start = Instant::now();
        let mut left: Vec<&Deletion> = chosen.iter().filter(|deletion| !self.notes.has(deletion)).copied().collect();
        println!("{} deletions, of which {} are noted as dead", chosen.len(), chosen.len() - left.len());
        for (size, modules) in PASSES {
            let groups = groups(&left, size, &self.reach);
            let what = if modules.is_empty() { "the whole core".into() } else { modules.join(", ") };
            println!("{} deletions in {} groups: {what}", left.len(), groups.len());
            let queue = Mutex::new((groups.iter().enumerate(), Ok(())));
            thread::scope(|scope| {
                for place in &self.places {
                    scope.spawn(|| {
                        loop {
                            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).0.next();
                            let Some((i, group)) = next else { return };
                            let said = self.attempt(group, place, modules);
                            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                            let minutes = start.elapsed().as_secs_f64() / 60.0;
                            match said {
                                Ok(said) => println!("{minutes:.0} min, group {} of {}: {said}", i + 1, groups.len()),
                                Err(error) => return queue.1 = Err(error),
                            }
                        }
                    });
                }
            });
            queue.into_inner().unwrap_or_else(PoisonError::into_inner).1?;
            left.retain(|deletion| !self.notes.has(deletion));
        }
        Ok(left)
    }

    /// Deletes these clauses at once, verifies, notes which are dead, and says how many.
    fn attempt(&self, group: &[&Deletion], place: &Place, modules: &[&str]) -> Result<String> {
        let mut ranges = BTreeMap::<&str, Vec<_>>::new();
        for deletion in group {
            ranges.entry(&deletion.file).or_default().extend(deletion.ranges.iter().cloned());
        }
        let text = |(file, mut ranges): (&str, Vec<_>)| {
            let text = clauses::code(&self.folder.join(file))?;
            Ok((Path::new(SOURCES).join(file), clauses::without(&text, &mut ranges)))
        };
        let edits = ranges.into_iter().map(text).collect::<Result<Vec<_>>>()?;
        let modules: Vec<String> = modules.iter().map(|module| format!("proof::{module}")).collect();
        let only: Vec<&str> = modules.iter().flat_map(|module| ["--verify-only-module", module]).collect();
        let (dead, how) = place.edited(&edits, |copy| {
            let (failures, how) = match verify::verify(copy, place.target(), &only)? {
                Outcome::Verified { failures, .. } => (failures, String::new()),
                Outcome::GaveUp { failures } => (failures, ", and the solver gave up somewhere".into()),
                Outcome::Broken(text) => {
                    let error = text.lines().skip_while(|line| !line.starts_with("error")).take(2);
                    return Ok((
                        vec![],
                        format!(", because they do not compile: {}", error.collect::<Vec<_>>().join(" ")),
                    ));
                }
            };
            Ok((self.dead(group, &failures, copy)?, how))
        })?;
        self.notes.add(&dead, &self.reach)?;
        verify::note_tried(vec![])?;
        Ok(format!("{} of {} dead{how}", dead.len(), group.len()))
    }

    /// Those of the deletions of which an obligation that failed depends on no other, each with that obligation.
    fn dead<'a>(&self, group: &[&'a Deletion], failures: &[Failure], copy: &Path) -> Result<Vec<Dead<'a>>> {
        let mut obligations = BTreeSet::new();
        for failure in failures {
            let (path, line) = failure.place();
            let Ok(file) = Path::new(path).strip_prefix(SOURCES) else { bail!("a failure at {path}") };
            let function = reach::function_at(&fs::read_to_string(copy.join(path))?, line);
            obligations.extend(function.map(|function| (file.to_string_lossy().into_owned(), function)));
        }
        let mut dead = Vec::<Dead>::new();
        for (file, function) in obligations {
            let names = self.reach.of(&file, &function);
            let mut reached = group.iter().filter(|deletion| names.contains(&deletion.function));
            if let (Some(deletion), None) = (reached.next(), reached.next())
                && !dead.iter().any(|(other, ..)| other == deletion)
            {
                dead.push((*deletion, file, function));
            }
        }
        Ok(dead)
    }
}

/// A deletion, and the file and the function of an obligation that fails with it.
type Dead<'a> = (&'a Deletion, String, String);

/// Groups of at most this size. The proof that depends on little but a deletion's function depends on no other one of its group.
fn groups<'a>(all: &[&'a Deletion], size: usize, reach: &Reach) -> Vec<Vec<&'a Deletion>> {
    let tests = reach.proofs(|file| QUICK.iter().chain(&SLOW).any(|suite| file == format!("proof/{suite}.rs")));
    let nothing = HashSet::new();
    let test_of = |deletion: &&'a Deletion| {
        let speaks =
            |test: &&(String, HashSet<String>)| test.0 != deletion.function && test.1.contains(&deletion.function);
        let test = tests.iter().filter(speaks).map(|test| &test.1).min_by_key(|names| names.len());
        (*deletion, test.unwrap_or(&nothing))
    };
    let mut all: Vec<_> = all.iter().map(test_of).collect();
    all.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let mut out: Vec<Vec<(&Deletion, &HashSet<String>)>> = Vec::new();
    for (deletion, names) in all {
        let fits = |group: &&mut Vec<(&Deletion, &HashSet<String>)>| {
            let apart = |(other, theirs): &(&Deletion, &HashSet<String>)| {
                !names.contains(&other.function)
                    && !theirs.contains(&deletion.function)
                    && other.function != deletion.function
            };
            group.len() < size && group.iter().all(apart)
        };
        match out.iter_mut().find(fits) {
            Some(group) => group.push((deletion, names)),
            None => out.push(vec![(deletion, names)]),
        }
    }
    out.into_iter().map(|group| group.into_iter().map(|(deletion, _)| deletion).collect()).collect()
}

/// The notes that hold: of each dead deletion its line behind its name.
struct Notes {
    path: PathBuf,
    dead: Mutex<BTreeMap<String, String>>,
}

impl Notes {
    fn open(path: &Path, all: &[Deletion], reach: &Reach) -> Result<Notes> {
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        let known: HashSet<String> = all.iter().map(Notes::key).collect();
        let mut evidence = HashMap::new();
        let mut holds = |line: &str| {
            let (key, note) = line.split_once('\t')?;
            let [file, function, hash] = note.split('\t').collect::<Vec<_>>()[..] else { return None };
            let of = || reach.evidence(file, function);
            let now = evidence.entry((file.to_string(), function.to_string())).or_insert_with(of);
            (now == hash && known.contains(key)).then(|| (key.to_string(), note.to_string()))
        };
        let dead = text.lines().filter_map(&mut holds).collect();
        Ok(Notes { path: path.into(), dead: Mutex::new(dead) })
    }

    fn key(deletion: &Deletion) -> String {
        format!("{} {}", place(deletion), deletion.nth)
    }

    fn has(&self, deletion: &Deletion) -> bool {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&Notes::key(deletion))
    }

    fn count(&self) -> usize {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Writes these down too, and forgets what no longer holds.
    fn add(&self, found: &[Dead], reach: &Reach) -> Result<()> {
        let mut dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        for (deletion, file, function) in found {
            dead.insert(Notes::key(deletion), format!("{file}\t{function}\t{}", reach.evidence(file, function)));
        }
        let lines: String = dead.iter().map(|(key, note)| format!("{key}\t{note}\n")).collect();
        Ok(fs::write(&self.path, lines)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target_folder;

    #[test]
    fn a_note_holds_for_what_it_was_made_of() {
        let folder = target_folder().join("statement-test");
        let (core, notes) = (folder.join("core"), folder.join("notes"));
        let write = |spec: &str, proof: &str| {
            let _ = fs::remove_dir_all(&core);
            fs::create_dir_all(core.join("trusted")).unwrap();
            fs::create_dir_all(core.join("proof")).unwrap();
            let spec = format!("{spec}pub open(crate) spec fn f() -> bool {{\n    &&& a()\n    &&& b()\n}}\n");
            fs::write(core.join("trusted/spec.rs"), spec).unwrap();
            fs::write(core.join("proof/suite.rs"), format!("proof fn lemma()\n    ensures f(),\n{{\n}}\n{proof}"))
                .unwrap();
            let all = clauses::deletions(&core).unwrap();
            (all, Reach::new(&core).unwrap())
        };
        let open = |(all, reach): &(Vec<Deletion>, Reach)| Notes::open(&notes, all, reach).unwrap().count();
        let _ = fs::remove_dir_all(&folder);
        let first = write("", "");
        let dead: Vec<Dead> = vec![(&first.0[1], "proof/suite.rs".into(), "lemma".into())];
        Notes::open(&notes, &first.0, &first.1).unwrap().add(&dead, &first.1).unwrap();
        assert_eq!((first.0.len(), open(&first)), (3, 1));
        // Comments and other proofs do not matter to it.
        assert_eq!(open(&write("// Words.\n\n", "// More words: a() is for f().\n")), 1);
        assert_eq!(open(&write("", "proof fn other()\n    ensures f(),\n{\n}\n")), 1);
        let changed = write("pub open(crate) spec fn a() -> bool {\n    true\n}\n", "");
        assert_eq!(open(&changed), 0);
    }

    #[test]
    fn deletions_are_tried_in_groups_not_two_of_one_function() {
        let folder = root().join(SOURCES);
        let (all, reach) = (clauses::deletions(&folder).unwrap(), Reach::new(&folder).unwrap());
        let all: Vec<&Deletion> = all.iter().collect();
        for size in [32, 1] {
            let groups = groups(&all, size, &reach);
            assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), all.len());
            for group in &groups {
                let functions: HashSet<&str> = group.iter().map(|deletion| deletion.function.as_str()).collect();
                assert!(functions.len() == group.len() && group.len() <= size);
            }
        }
        let count = groups(&all, 32, &reach).len();
        assert!(count < all.len() / 4, "{count} groups");
    }
}
