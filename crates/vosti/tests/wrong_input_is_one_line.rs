//! Wrong input ends with one line that says what is wrong, exit code 2, and no panic.

use std::path::Path;
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

/// A whole model of a few kilobytes: a tiny Llama of 512 positions and a tokenizer that knows two letters.
fn tiny(folder: &Path) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/tests/tiny/llama");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(from.join(name), folder.join(name)).expect("copied");
    }
    let tokenizer = r#"{"version": "1.0", "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": false}, "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}"#;
    std::fs::write(folder.join("tokenizer.json"), tokenizer).expect("written");
    folder.to_str().expect("a path").into()
}

#[test]
fn a_file_that_ends_early() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/tests/text/tiny-gemma4.gguf");
    let bytes = std::fs::read(whole).expect("read");
    let path = folder.path().join("half.gguf");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("written");
    refused(&["generate", "a", "--model", path.to_str().expect("a path")], "half.gguf is damaged");

    let model = tiny(folder.path());
    let tensors = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&tensors).expect("read");
    std::fs::write(&tensors, &bytes[..bytes.len() - 1]).expect("written");
    refused(&["generate", "a", "--model", &model], "model.safetensors");
}

#[test]
fn a_folder_that_lacks_something() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path());
    std::fs::remove_file(folder.path().join("tokenizer.json")).expect("removed");
    refused(&["generate", "a", "--model", &model], "tokenizer.json: No such file");
    std::fs::remove_file(folder.path().join("config.json")).expect("removed");
    refused(&["generate", "a", "--model", &model], "it has no config.json");
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "mamba"}"#).expect("written");
    refused(&["generate", "a", "--model", &model], "unsupported architecture `mamba`");
}

#[test]
fn a_prompt_that_is_too_long_or_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path());
    let generate = |prompt: &str, more: &[&str], says: &str| {
        refused(&[&["generate", prompt, "--model", &model, "--temperature", "0"], more].concat(), says)
    };
    generate(&"a".repeat(600), &[], "600 tokens and the model's context is 512");
    generate(&"a".repeat(100), &["--kv-pages", "1"], "the KV pool holds at most 64");
    generate(&"a".repeat(100), &["--context", "64"], "the model's context is 64");
    generate("", &[], "the prompt is empty");
    generate("a", &["--logit-bias", "256=1"], "the vocabulary ends at 255");
    generate("a", &["--top-p", "2"], "top_p is 2");
}

#[test]
fn a_check_that_has_nothing_left_to_compare() {
    let folder = tempfile::tempdir().expect("a folder");
    refused(&["check", "--max-prompt", "0", "--model", &tiny(folder.path())], "raise --max-prompt");
}

#[test]
fn flags_that_make_no_sense() {
    refused(&["generate", "x", "--kv-memory", "lots"], "512M");
    refused(&["generate", "x", "--no-such-flag"], "--no-such-flag");
    refused(&["generate", "x", "--context", "0"], "0 is not in 16..");
    refused(&["bench", "--batch", "4,0"], "`0` is not a whole number of at least 1");
    refused(&["check", "--profile", "fast"], "quick, paper");
    refused(&["no-such-command"], "no-such-command");
}
