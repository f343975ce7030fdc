//! Triton's assembler, for PTX that no compiler made.

use std::process::Command;
use vosti_cubin::Arch;

/// Checks that Triton's assembler assembles the text for every target, without a stack and without spills.
pub fn assembles(ptx: &str) {
    let Some(python) = vosti_test_tools::python(vosti_cubin::toolchain::REQUIREMENT) else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.ptx");
    std::fs::write(&source, ptx.trim_end_matches('\0')).unwrap();
    let script = "import triton, os; print(os.path.dirname(triton.__file__))";
    let triton = Command::new(python).args(["-c", script]).output().unwrap();
    let bin = format!("{}/backends/nvidia/bin", String::from_utf8(triton.stdout).unwrap().trim());
    for arch in Arch::ALL {
        let assembler = if arch.number() >= 100 { "ptxas-blackwell" } else { "ptxas" };
        let mut run = Command::new(format!("{bin}/{assembler}"));
        run.arg("-v").arg(format!("-arch=sm_{}", arch.number()));
        let out = run.arg("-o").arg(folder.path().join("cubin")).arg(&source).output().unwrap();
        let log = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && log.contains("0 bytes stack frame, 0 bytes spill"), "{arch}: {log}");
    }
}
