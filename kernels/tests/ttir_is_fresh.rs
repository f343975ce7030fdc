//! The checked-in TTIR is the text that its sources give.

use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use vosti_kernels::{Spec, kernel, parse_stem, request, ttir_by_stem, ttir_stems};

fn specs() -> Vec<Spec> {
    ttir_stems().into_iter().map(|stem| parse_stem(stem).unwrap_or_else(|| panic!("{stem}"))).collect()
}

/// Needs no Triton: each file's header has the hash of the sources that it was made from.
#[test]
fn no_kernel_changed_after_its_ttir_was_made() {
    for spec in specs() {
        let digest = Sha256::digest(kernel(&spec.kernel).unwrap().made_from());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = ttir_by_stem(&spec.to_string()).unwrap();
        assert!(text.contains(&format!("source-sha256 {hex}")), "{spec} is stale: run `cargo xtask ttir`");
    }
}

#[test]
fn triton_gives_the_checked_in_text() {
    let Some(python) = vosti_test_tools::python("triton==3.6.0") else { return };
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
