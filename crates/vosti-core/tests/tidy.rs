//! Trust may stand only in the contracts of `seam.rs`. The verifier's own `--no-cheating` says the same; this test also works
//! on machines without the verifier, and bans what that flag lets pass.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

fn all() -> Vec<(PathBuf, String)> {
    let mut files = vec![];
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    files.sort();
    files.into_iter().map(|f| (f.clone(), fs::read_to_string(f).unwrap())).collect()
}

/// What escapes the verifier, or makes it believe: nowhere in the core, the seam included.
const BANNED: &[&str] = &[
    "assume(",
    "assume_", // assume_specification, assume_termination
    "admit()",
    "external", // all its kinds: _body, _fn_specification, _type_specification, _trait_specification, ...
    "uninterp",
    "axiom",
    "exec_allows_no_decreases",
    "may_not_terminate",
    "rlimit",
    "proof_from_false",
    "unreached",
    "unsafe",
    "verus_keep_ghost", // a twin of the code for the verifier
    "verus_only",
    "cfg(verus",
    "cfg_attr(verus",
    "cfg!(",
    "verus::trusted",
    "include!(", // code that no rule here reads
    "macro_rules!",
    "#[path",
    "/*",
];

/// The banned words of a file, with their lines. Only a line that begins as a comment is one.
fn banned(text: &str) -> Vec<(usize, &'static str)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    // An ordinary comment behind code may say anything.
    let code = |line: &'_ str| line.split(" // ").next().unwrap_or("").to_string();
    lines
        .flat_map(|(i, line)| {
            let line = code(line);
            BANNED.iter().filter(move |word| line.contains(**word)).map(move |word| (i + 1, *word))
        })
        .collect()
}

fn code(line: &str) -> &str {
    line.split("//").next().unwrap()
}

#[test]
fn nothing_is_assumed_and_nothing_escapes_the_verifier() {
    for (file, text) in all() {
        assert_eq!(banned(&text), [], "{}", file.display());
    }
}

#[test]
fn every_escape_is_seen() {
    let escapes = [
        "    proof { assume(false); }",
        "#[verifier::external_body]",
        "#[verifier(external)]",
        "#[verifier::external_type_specification]",
        "pub assume_specification[ Vec::len ]",
        "pub uninterp spec fn f() -> int;",
        "pub broadcast axiom fn a()",
        "#[verifier::exec_allows_no_decreases_clause]",
        "#[verifier::assume_termination]",
        "#[cfg(not(verus_keep_ghost))]",
        "#[cfg(any(test, verus_keep_ghost_body))]",
        "    unsafe { x.get_unchecked(0) }",
        "#[verifier::rlimit(infinity)]",
        "admit();",
        "include!(\"more.rs\");",
        "let url = \"http://x\"; unsafe {}",
    ];
    for escape in escapes {
        assert!(!banned(escape).is_empty(), "`{escape}` passes");
    }
    assert_eq!(
        banned("    // nothing is assumed, no external code\n    core.admit(prompt); // unsafe to forget\n"),
        []
    );
}

/// Without this line the verifier says that all is well and verifies nothing.
#[test]
fn the_crate_asks_to_be_verified() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let (_, section) = manifest.split_once("[package.metadata.verus]").expect("the verifier's section");
    assert_eq!(section.trim().lines().next(), Some("verify = true"));
    assert!(!manifest.contains("[features]") && !manifest.contains("build ="), "one version of the code, and no other");
}

#[test]
fn everything_stands_inside_verus() {
    for (file, text) in all() {
        if ["lib.rs", "mod.rs"].iter().any(|n| file.ends_with(n)) {
            let stray = text.lines().find(|l| l.contains("fn ") || l.starts_with("impl"));
            assert_eq!(stray, None, "{}: declarations only", file.display());
            continue;
        }
        let (before, rest) = text.split_once("verus! {").unwrap_or_else(|| panic!("{}: no verus!", file.display()));
        let (_, after) = rest.rsplit_once("} // verus!").unwrap();
        assert!(after.trim().is_empty(), "{}: code after verus!", file.display());
        for line in before.lines() {
            let plain = ["use ", "mod ", "//!", "#!"].iter().any(|p| line.starts_with(p)) || line.trim().is_empty();
            assert!(plain, "{}: `{line}` stands outside verus!", file.display());
        }
    }
}

/// A public function's name with its file and line, and the lines of its signature.
fn public() -> Vec<(String, Vec<String>)> {
    let mut out = vec![];
    for (file, text) in all() {
        let lines: Vec<_> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let line = line.trim_start();
            if !line.starts_with("pub fn ") && !line.starts_with("pub exec fn ") {
                continue;
            }
            let signature = lines[i..].iter().map(|l| code(l).trim()).take_while(|l| *l != "{").collect::<Vec<_>>();
            let signature = match signature.iter().position(|l| l.ends_with('{')) {
                Some(end) => &signature[..=end],
                None => &signature[..],
            };
            let name = format!("{}:{}: {line}", file.file_name().unwrap().display(), i + 1);
            out.push((name, signature.iter().map(|l| l.to_string()).collect()));
        }
    }
    assert!(out.len() > 60);
    out
}

/// A precondition of a public function is checked for nobody: its callers are plain Rust.
#[test]
fn no_public_function_has_a_precondition() {
    for (name, signature) in public() {
        assert!(!signature.iter().any(|l| l.contains("requires")), "{name}");
    }
}

/// A public function without a contract may do anything. Advice to users is words, of which nothing can be ensured.
#[test]
fn every_public_function_ensures_something() {
    for (name, signature) in public().into_iter().filter(|(name, _)| !name.contains("pub fn advice(")) {
        assert!(signature.iter().any(|l| l.starts_with("ensures ") || l == "ensures"), "{name}");
    }
}

/// What must be read lies together: it holds no proof, and no word that only a proof defines.
#[test]
fn what_is_trusted_stands_apart_from_proofs() {
    let trusted: Vec<_> =
        all().into_iter().filter(|(f, _)| f.components().any(|c| c.as_os_str() == "trusted")).collect();
    assert!(trusted.len() >= 8);
    for (file, text) in trusted {
        for line in text.lines().map(code) {
            let apart = !line.contains("proof fn") && !line.contains("crate::proof");
            assert!(apart, "{}: `{line}`", file.display());
        }
    }
}

#[test]
fn files_fit_a_reader() {
    for (file, text) in all() {
        let limit = if file.components().any(|c| c.as_os_str() == "proof") { 900 } else { 600 };
        let lines = text.lines().count();
        assert!(lines <= limit, "{} has {lines} lines", file.display());
        assert!(text.starts_with("//!"), "{} does not say what it is", file.display());
    }
    let spec = all().into_iter().find(|(f, _)| f.ends_with("spec.rs")).unwrap().1;
    assert!(spec.lines().count() <= 150 && !spec.contains("use crate"), "spec.rs is short and knows no engine");
}
