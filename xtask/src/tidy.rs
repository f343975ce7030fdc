//! `cargo xtask tidy`: the tree's own rules, each with its reason.
//!
//! The rules see only the files that git tracks, no build outputs and no scratch files.

pub mod links;
mod pages;

use crate::root;
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// A tracked text file: path from the root, and content.
pub struct File {
    pub path: String,
    pub text: String,
}

type Rule = fn(&[File]) -> Vec<String>;

const RULES: &[Rule] = &[
    modules_say_what_they_are,
    files_are_short,
    no_device_knows_a_kernel,
    only_admission_admits,
    trust_stands_in_the_seam,
    trusted_files_are_listed,
    no_path_of_a_machine,
    nothing_is_left_undone,
    crates_depend_downwards,
    generated_files_say_by_what,
    broken_kernels_are_patches,
    tests_do_not_skip_by_themselves,
    commands_print_without_panics,
    examples_are_tested,
    links::links_lead_somewhere,
    links::the_book_has_every_page,
    pages::cited_files_exist,
    pages::counts_are_the_trees,
];

/// Applies every rule and prints each breach.
pub fn run() -> Result<()> {
    let breaches = breaches(&tracked()?);
    breaches.iter().for_each(|breach| println!("{breach}"));
    ensure!(breaches.is_empty(), "{} breaches of the tree's rules", breaches.len());
    println!("tidy");
    Ok(())
}

fn breaches(files: &[File]) -> Vec<String> {
    RULES.iter().flat_map(|rule| rule(files)).collect()
}

pub fn tracked() -> Result<Vec<File>> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output()?;
    ensure!(listed.status.success(), "git ls-files failed: tidy needs a git checkout");
    let names = String::from_utf8(listed.stdout)?;
    let read = |path: &str| fs::read_to_string(root().join(path)).ok().map(|text| File { path: path.into(), text });
    Ok(names.split('\0').filter(|path| !path.is_empty()).filter_map(read).collect())
}

fn rust(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".rs"))
}

/// A file's lines without their comments, numbered from 1, up to the tests at its end.
fn code(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let lines = file.text.lines().enumerate();
    let lines = lines.take_while(|(_, line)| line.trim() != "#[cfg(test)]");
    lines.map(|(i, line)| (i + 1, line.split("//").next().unwrap_or("")))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// A reader who opens a file learns first what it is for.
fn modules_say_what_they_are(files: &[File]) -> Vec<String> {
    let silent = rust(files).filter(|file| !file.text.trim_start().starts_with("//!"));
    silent.map(|file| format!("{}: begins with no //! that says what it is", file.path)).collect()
}

/// Sources below crates/*/src that only tests use.
const FOR_TESTS: [&str; 2] = ["crates/vosti-test-tools/", "crates/vosti-simd/src/isa.rs"];

/// The printing macros panic if their reader has left or the disk is full. Tests and this tree's own commands may use them.
fn commands_print_without_panics(files: &[File]) -> Vec<String> {
    let product = |file: &&File| {
        let path = &file.path;
        path.starts_with("crates/") && path.contains("/src/") && !FOR_TESTS.iter().any(|tests| path.starts_with(tests))
    };
    let macros = ["print", "println", "eprint", "eprintln"].map(|name| format!("{name}!("));
    let breach = |file: &File, number: usize, line: &str| {
        let within = |name: &String| {
            line.match_indices(name.as_str()).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric()))
        };
        macros.iter().any(within).then(|| format!("{}:{number}: prints with a macro that panics", file.path))
    };
    let sources = rust(files).filter(product).filter(|file| !file.path.ends_with("tests.rs"));
    sources.flat_map(|file| code(file).filter_map(move |(number, line)| breach(file, number, line))).collect()
}

/// A long file is hard to keep in mind, so it is split: at most 600 lines, and 900 for a proof.
fn files_are_short(files: &[File]) -> Vec<String> {
    let too_long = rust(files).filter_map(|file| {
        let lines_max = if file.path.contains("/proof/") { 900 } else { 600 };
        let lines = file.text.lines().count();
        (lines > lines_max).then(|| format!("{}: {lines} lines, at most {lines_max}", file.path))
    });
    too_long.collect()
}

/// Sources that may not name a kernel.
const DEVICES: &[&str] =
    &["crates/vosti-simd/src/", "crates/vosti-wiring/src/", "crates/vosti-cpu/src/", "crates/vosti-cuda/src/"];

/// A device that chose code by a kernel's name could pass every test without executing the IR that is proved.
fn no_device_knows_a_kernel(files: &[File]) -> Vec<String> {
    let kernel = |file: &File| {
        let stem = file.path.strip_prefix("kernels/")?.strip_suffix(".py")?;
        (!stem.contains('/') && file.text.contains("# /// contract")).then(|| stem.to_string())
    };
    let kernels: BTreeSet<String> = files.iter().filter_map(kernel).collect();
    let mut breaches = Vec::new();
    if kernels.is_empty() {
        breaches.push("kernels/: no kernel with a contract was found, so this rule checks nothing".into());
    }
    // Tests may name kernels.
    let device =
        |file: &&File| DEVICES.iter().any(|folder| file.path.starts_with(folder)) && !file.path.ends_with("/tests.rs");
    for file in rust(files).filter(device) {
        for (line, code) in code(file) {
            for word in words(code).filter(|word| kernels.contains(*word)) {
                breaches.push(format!("{}:{line}: a device names the kernel {word}", file.path));
            }
        }
    }
    breaches
}

/// A device takes an `Admitted`. Whoever made one without a proof could run any text, so only admission makes them, and tests.
fn only_admission_admits(files: &[File]) -> Vec<String> {
    const MAKERS: &[&str] = &["Admitted::new(", "Admitted::unproved(", ".with_text("];
    let may = |path: &str| {
        let test = ["/tests/", "/examples/", "/benches/"].iter().any(|folder| path.contains(folder));
        test || path.starts_with("crates/vosti-admission/") || path == "kernels/src/admitted.rs"
    };
    let mut breaches = Vec::new();
    for file in rust(files).filter(|file| file.path.starts_with("crates/") || file.path.starts_with("kernels/")) {
        for (line, code) in code(file) {
            let made = MAKERS.iter().find(|maker| code.contains(**maker));
            if let Some(maker) = made.filter(|_| !may(&file.path)) {
                breaches.push(format!("{}:{line}: {maker} is for crates/vosti-admission and tests", file.path));
            }
        }
    }
    breaches
}

/// An assumption outside of the seam escapes the audit. Words of the first list may occur in the seam only, those of the second
/// nowhere.
fn trust_stands_in_the_seam(files: &[File]) -> Vec<String> {
    const SEAM_ONLY: &[&str] = &["assume", "assume_specification", "external_body"];
    const NOWHERE: &[&str] = &[
        "external",
        "external_fn_specification",
        "external_type_specification",
        "external_trait_specification",
        "external_derive",
        "axiom",
        "uninterp",
        "exec_allows_no_decreases_clause",
        "assume_termination",
        "may_not_terminate",
        "verus_keep_ghost",
        "verus_keep_ghost_body",
        "verus_only",
        "unsafe",
        "infinity",
    ];
    let mut breaches = Vec::new();
    for file in rust(files).filter(|file| file.path.starts_with("crates/vosti-core/src/")) {
        let seam = file.path.ends_with("/trusted/seam.rs");
        for (line, code) in code(file) {
            // `Core::admit` is an operation; the verifier's admit takes nothing.
            if code.contains("admit()") {
                breaches.push(format!("{}:{line}: admit() proves anything", file.path));
            }
            for word in words(code) {
                if NOWHERE.contains(&word) || (SEAM_ONLY.contains(&word) && !seam) {
                    breaches.push(format!("{}:{line}: {word} is trust outside the seam", file.path));
                }
            }
        }
    }
    breaches
}

/// Folders that hold trusted files. Whatever else is in one says why it needs no audit.
const TRUSTED: &[&str] = &[
    "crates/vosti-core/src/trusted/",
    "crates/vosti-verify/src/",
    "crates/vosti-tile/src/",
    "crates/vosti-admission/src/",
    "crates/vosti-wiring/src/",
    "crates/vosti-contract/src/",
    "kernels/src/",
];

/// A file that the list of trusted ones forgets escapes the audit.
fn trusted_files_are_listed(files: &[File]) -> Vec<String> {
    const LIST: &str = "crates/vosti-verify/src/trusted.rs";
    let listed = files.iter().find(|file| file.path == LIST).map_or("", |file| &file.text);
    let beside = files.iter().filter(|file| TRUSTED.iter().any(|folder| file.path.starts_with(folder)));
    let forgotten = beside.filter(|file| !listed.contains(&format!("\"{}\"", file.path)));
    let forgotten = forgotten.map(|file| format!("{}: trusted, or why not? {LIST} must say", file.path));
    let empty = TRUSTED.iter().filter(|folder| files.iter().all(|file| !file.path.starts_with(**folder)));
    forgotten.chain(empty.map(|folder| format!("{folder}: no file, so its rule checks nothing"))).collect()
}

/// A checkout must work in any folder, so no file names a folder of one machine.
fn no_path_of_a_machine(files: &[File]) -> Vec<String> {
    // In two pieces, so that this file does not break its own rule.
    let places = [["/ro", "ot/"], ["/wo", "rk/"], ["/ho", "me/"]].map(|halves| halves.concat());
    let mut breaches = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with(".lock")) {
        for (i, line) in file.text.lines().enumerate() {
            if let Some(place) = places.iter().find(|place| line.contains(place.as_str())) {
                breaches.push(format!("{}:{}: names a machine's path, {place}", file.path, i + 1));
            }
        }
    }
    breaches
}

/// Unfinished work belongs in an issue: a user must not meet it as a panic.
fn nothing_is_left_undone(files: &[File]) -> Vec<String> {
    let marks =
        [["todo", "!("], ["unimplemented", "!("], ["dbg", "!("], ["#[ign", "ore"]].map(|halves| halves.concat());
    let mut breaches = Vec::new();
    for file in rust(files) {
        for (i, line) in file.text.lines().enumerate() {
            if let Some(mark) = marks.iter().find(|mark| line.contains(mark.as_str())) {
                breaches.push(format!("{}:{}: {mark} is left", file.path, i + 1));
            }
        }
    }
    breaches
}

/// The allowed dependencies: each crate may depend only on the crates of the workspace in its list.
const DIRECTIONS: &[(&str, &[&str])] = &[
    ("crates/vosti-core", &[]),
    ("crates/vosti-child", &[]),
    ("crates/vosti-contract", &["vosti-core"]),
    ("kernels", &["vosti-contract", "vosti-core"]),
    ("crates/vosti-tile", &["vosti-core"]),
    ("crates/vosti-verify", &["vosti-contract", "vosti-kernels", "vosti-tile"]),
    ("crates/vosti-wiring", &["vosti-contract", "vosti-core", "vosti-kernels", "vosti-tile"]),
    ("crates/vosti-simd", &["vosti-kernels", "vosti-tile"]),
    (
        "crates/vosti-cpu",
        &["vosti-contract", "vosti-core", "vosti-kernels", "vosti-simd", "vosti-tile", "vosti-wiring"],
    ),
    ("crates/vosti-ptx", &["vosti-contract", "vosti-kernels", "vosti-tile"]),
    (
        "crates/vosti-audit",
        &["vosti-child", "vosti-contract", "vosti-kernels", "vosti-ptx", "vosti-tile", "vosti-verify"],
    ),
    (
        "crates/vosti-cubin",
        &["vosti-child", "vosti-contract", "vosti-kernels", "vosti-ptx", "vosti-tile", "vosti-wiring"],
    ),
    (
        "crates/vosti-cuda",
        &["vosti-contract", "vosti-core", "vosti-cubin", "vosti-kernels", "vosti-tile", "vosti-wiring"],
    ),
    ("crates/vosti-model", &["vosti-contract", "vosti-core", "vosti-kernels"]),
    (
        "crates/vosti-admission",
        &["vosti-contract", "vosti-core", "vosti-cubin", "vosti-kernels", "vosti-model", "vosti-tile", "vosti-verify"],
    ),
    ("crates/vosti-engine", &["vosti-core"]),
    ("crates/vosti-check", &["vosti-core", "vosti-engine"]),
    ("crates/vosti-server", &["vosti-core", "vosti-model", "vosti-engine"]),
];

/// ARCHITECTURE.md lists crates in layers: a crate depends only on crates above it. `anyhow` is for binaries.
fn crates_depend_downwards(files: &[File]) -> Vec<String> {
    let mut breaches = Vec::new();
    for (folder, allowed) in DIRECTIONS {
        let path = format!("{folder}/Cargo.toml");
        let Some(file) = files.iter().find(|file| file.path == path) else {
            breaches.push(format!("{path}: is not there"));
            continue;
        };
        // Tests may depend on any crate.
        let library = file.text.split("[dev-dependencies]").next().unwrap_or("");
        for name in library.lines().filter_map(|line| line.split(['=', '.', ' ']).next()) {
            let ours = name.starts_with("vosti-") && !allowed.contains(&name);
            if ours || name == "anyhow" {
                breaches.push(format!("{path}: must not depend on {name}"));
            }
        }
    }
    breaches
}

/// A generated file must say which command makes it, or someone edits it by hand.
fn generated_files_say_by_what(files: &[File]) -> Vec<String> {
    let generated = files.iter().filter(|file| file.path.ends_with(".ttir"));
    let silent = generated.filter(|file| !file.text.lines().take(5).any(|line| line.contains("cargo xtask ")));
    silent.map(|file| format!("{}: does not say by what command it was made", file.path)).collect()
}

/// The file tests read patches: no test would refuse a broken kernel in a file of its own.
fn broken_kernels_are_patches(files: &[File]) -> Vec<String> {
    let broken = files.iter().filter(|file| file.path.starts_with("filetests/broken/"));
    let other = broken.filter(|file| !file.path.ends_with(".patch"));
    other
        .map(|file| format!("{}: make it a section of its sibling's patch (docs/add-a-kernel.md)", file.path))
        .collect()
}

/// A test that skips itself passes in CI too; with `vosti_test_tools::have` it fails there.
fn tests_do_not_skip_by_themselves(files: &[File]) -> Vec<String> {
    // In two pieces, so that this file does not break its own rule.
    let mark = ["\"skip", "ped: "].concat();
    let tests = rust(files).filter(|file| !file.path.starts_with("crates/vosti-test-tools/"));
    let skipping = tests.filter(|file| file.text.contains(&mark));
    skipping.map(|file| format!("{}: skips a test without vosti_test_tools::have", file.path)).collect()
}

/// Looking for examples in the documentation of all crates takes rustdoc a minute, so crates without any say `doctest = false`.
fn examples_are_tested(files: &[File]) -> Vec<String> {
    let manifests =
        files.iter().filter(|file| file.path.ends_with("Cargo.toml") && file.text.contains("doctest = false"));
    let untested = |manifest: &File| {
        let sources = format!("{}src/", manifest.path.strip_suffix("Cargo.toml")?);
        let example = rust(files).find(|file| file.path.starts_with(&sources) && has_example(&file.text))?;
        Some(format!(
            "{}: an example that is not tested, because {} says `doctest = false`",
            example.path, manifest.path
        ))
    };
    manifests.filter_map(untested).collect()
}

/// Whether documentation has a block of code that is not marked as text.
fn has_example(source: &str) -> bool {
    let documentation =
        source.lines().map(str::trim_start).filter(|line| line.starts_with("///") || line.starts_with("//!"));
    let fences = documentation.filter_map(|line| line.trim_start_matches(['/', '!', ' ']).strip_prefix("```"));
    fences.step_by(2).any(|language| language != "text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let breaches = breaches(&tracked().unwrap());
        assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
    }

    #[test]
    fn each_rule_sees_its_breach() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let kernel = file("kernels/gemm.py", "# /// contract\n");
        let found =
            |rule: Rule, path: &str, text: &str| rule(&[file(path, text), file(&kernel.path, &kernel.text)]).len();
        assert_eq!(found(modules_say_what_they_are, "a.rs", "fn main() {}"), 1);
        assert_eq!(found(files_are_short, "a.rs", &"\n".repeat(651)), 1);
        let cpu = "crates/vosti-cpu/src/a.rs";
        assert_eq!(found(no_device_knows_a_kernel, cpu, "if name == \"gemm\" {}"), 1);
        assert_eq!(found(no_device_knows_a_kernel, cpu, "let x = 1; // a gemm\n#[cfg(test)]\ngemm"), 0);
        assert_eq!(found(only_admission_admits, cpu, "let a = Admitted::unproved(&bindings)?;"), 1);
        assert_eq!(found(only_admission_admits, "crates/vosti-cpu/tests/a.rs", "Admitted::unproved(&bindings)"), 0);
        let core = "crates/vosti-core/src/a.rs";
        assert_eq!(found(trust_stands_in_the_seam, core, "assume(false);"), 1);
        assert_eq!(found(trust_stands_in_the_seam, "crates/vosti-core/src/trusted/seam.rs", "assume(false);"), 0);
        assert_eq!(found(trust_stands_in_the_seam, "crates/vosti-core/src/trusted/seam.rs", "unsafe {}"), 1);
        let listed = file(
            "crates/vosti-verify/src/trusted.rs",
            "(\"kernels/src/a.rs\", \"\"), (\"crates/vosti-verify/src/trusted.rs\"",
        );
        let breaches =
            |files: &[File]| trusted_files_are_listed(files).iter().filter(|b| b.contains("why not")).count();
        let new = |path: &str| breaches(&[file(&listed.path, &listed.text), file(path, "")]);
        assert_eq!(trusted_files_are_listed(&[]).len(), TRUSTED.len(), "each folder is empty");
        assert_eq!((new("kernels/src/a.rs"), new("kernels/src/b.rs"), new("crates/vosti-cpu/src/b.rs")), (0, 1, 0));
        assert_eq!(found(no_path_of_a_machine, "a.md", &["see /ho", "me/me/x"].concat()), 1);
        assert_eq!(found(nothing_is_left_undone, "a.rs", &["todo", "!()"].concat()), 1);
        assert_eq!(found(generated_files_say_by_what, "kernels/ttir/a.ttir", "module {}"), 1);
        assert_eq!(found(broken_kernels_are_patches, "filetests/broken/a.py", ""), 1);
        assert_eq!(found(commands_print_without_panics, "crates/a/src/b.rs", "    eprintln!(\"{x}\");"), 1);
        assert_eq!(found(commands_print_without_panics, "crates/a/src/b.rs", "#[cfg(test)]\nprint!(\"\");"), 0);
        let skips = ["println!(\"skip", "ped: no z3\")"].concat();
        assert_eq!(found(tests_do_not_skip_by_themselves, "crates/a/tests/a.rs", &skips), 1);
        let examples = |text: &str| {
            let manifest = file("crates/a/Cargo.toml", "[lib]\ndoctest = false\n");
            examples_are_tested(&[manifest, file("crates/a/src/b.rs", text)]).len()
        };
        assert_eq!(examples("/// Adds.\n///\n/// ```\n/// assert!(true);\n/// ```\nfn add() {}\n"), 1);
        assert_eq!(examples("//! ```text\n//! a\n//! ```\n\n    /// ```no_run\n    /// main()\n    /// ```\n"), 1);
        assert_eq!(examples("//! ```text\n//! a table\n//! ```\nlet fence = \"```\"; // ```\n"), 0);
        let before = crates_depend_downwards(&[]).len();
        let core = file("crates/vosti-core/Cargo.toml", "[dependencies]\nvosti-engine.workspace = true\n");
        assert_eq!(crates_depend_downwards(&[core]).len(), before, "one file less is missing, one breach more");
    }
}
