//! Wrong input ends with one line that says what is wrong, exit code 2, and no panic.

use std::process::Command;

/// Runs the binary and returns its exit code and its error lines.
fn vosti(arguments: &[&str]) -> (i32, Vec<String>) {
    let result = Command::new(env!("CARGO_BIN_EXE_vosti")).args(arguments).output().expect("the binary starts");
    let text = String::from_utf8_lossy(&result.stderr).into_owned();
    (result.status.code().unwrap_or(-1), text.lines().filter(|line| !line.is_empty()).map(String::from).collect())
}

fn refused(arguments: &[&str], says: &str) {
    let (code, lines) = vosti(arguments);
    assert_eq!(code, 2, "vosti {arguments:?}: {lines:?}");
    let error: Vec<_> = lines.iter().filter(|line| line.starts_with("vosti: ")).collect();
    assert_eq!(error.len(), 1, "{lines:?}");
    assert!(error[0].contains(says), "{says:?} is not in {lines:?}");
    assert!(!lines.iter().any(|line| line.contains("panicked")), "{lines:?}");
}

#[test]
fn a_model_that_is_not_there() {
    refused(&["generate", "x", "--model", "/nowhere/model.gguf"], "/nowhere/model.gguf");
    refused(&["generate", "x", "--model", "no-such-model"], "no-such-model");
}

#[test]
fn a_file_that_is_no_model() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in [("empty.gguf", &b""[..]), ("text.gguf", b"hello, world"), ("cut.gguf", b"GGUF\x03\0\0\0")] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        refused(&["generate", "x", "--model", path.to_str().expect("a path")], name);
    }
}

#[test]
fn flags_that_make_no_sense() {
    refused(&["generate", "x", "--kv-memory", "lots"], "512M");
    refused(&["generate", "x", "--no-such-flag"], "--no-such-flag");
    refused(&["no-such-command"], "no-such-command");
}
