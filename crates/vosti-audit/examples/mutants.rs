//! Changes kernels of a file at random and runs each change beside its normal form, on the plain interpreter.
//!
//! `cargo run --release -p vosti-audit --example mutants -- SEED COUNT [FILE.py]`; the file is `tests/kernels/proved.py` if none is named, and
//! its contracts stand beside it. `VOSTI_PYTHON` names a Python with Triton. Exit code 1 and the changes if two runs differ.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vosti_audit::{Request, twins};

fn main() -> ExitCode {
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(seed), Some(count)) = (number(1), number(2)) else {
        eprintln!("usage: mutants SEED COUNT [FILE.py]");
        return ExitCode::from(2);
    };
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/proved.py");
    let path = std::env::args().nth(3).map_or(own, PathBuf::from);
    let python = PathBuf::from(std::env::var_os("VOSTI_PYTHON").unwrap_or("python3".into()));
    match twins(&python, &Request { path, ..Request::default() }, seed, count) {
        Ok(twins) => {
            twins.differ.iter().for_each(|how| println!("{how}"));
            twins.counts.iter().for_each(|(kind, number)| println!("{number:8}  {kind}"));
            if twins.differ.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
