//! The checked-in TTIR is what today's sources give.

use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vosti_kernels::{Spec, kernel, parse_stem, request, ttir_by_stem, ttir_stems};

fn specs() -> Vec<Spec> {
    ttir_stems().into_iter().map(|stem| parse_stem(stem).unwrap_or_else(|| panic!("{stem}"))).collect()
}

/// Needs no Triton: each file's header holds the hash of the source it was made from.
#[test]
fn no_kernel_changed_after_its_ttir_was_made() {
    for spec in specs() {
        let digest = Sha256::digest(kernel(&spec.kernel).unwrap().made_from());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = ttir_by_stem(&spec.to_string()).unwrap();
        assert!(text.contains(&format!("source-sha256 {hex}")), "{spec} is stale: run `cargo xtask ttir`");
    }
}

/// A Python with the pinned Triton: `VOSTI_PYTHON`, what `cargo xtask python` made, or python3.
fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let chosen = std::env::var_os("VOSTI_PYTHON").map(PathBuf::from);
    let candidates = [chosen, Some(target.join("python/bin/python")), Some("python3".into())];
    let check = "import triton; assert triton.__version__ == '3.6.0'";
    let fits = |python: &PathBuf| Command::new(python).args(["-c", check]).output().is_ok_and(|o| o.status.success());
    candidates.into_iter().flatten().find(fits)
}

#[test]
fn triton_gives_the_checked_in_text() {
    let Some(python) = python() else {
        println!("skipped: no Python with Triton 3.6.0; run `cargo xtask python`");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ttir.py");
    let mut child =
        Command::new(python).arg("-B").arg(script).arg(folder.path()).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(request(&specs()).unwrap().as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    for stem in ttir_stems() {
        let fresh = std::fs::read_to_string(folder.path().join(format!("{stem}.ttir"))).unwrap();
        assert!(fresh == ttir_by_stem(stem).unwrap(), "{stem} is stale: run `cargo xtask ttir`");
    }
}
