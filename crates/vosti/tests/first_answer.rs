//! README's first command asks a question, and the answer is right whatever the seed is.

use std::process::{Command, Stdio};

const README: &str = include_str!("../../../README.md");
/// The question's answer. Change both together.
const RIGHT: &str = "Tokyo";

/// The first command of README that generates.
fn first_command() -> [&'static str; 2] {
    let question = README.split("generate \"").nth(1).and_then(|rest| rest.split('"').next());
    ["generate", question.expect("README has a command that generates, with its prompt in quotes")]
}

fn vosti(words: &[&str], stdin: Stdio) -> (String, String) {
    let mut vosti = Command::new(env!("CARGO_BIN_EXE_vosti"));
    let output = vosti.args(first_command()).args(words).stdin(stdin).output().expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let error = text(output.stderr);
    assert!(output.status.success(), "{error}");
    (text(output.stdout), error)
}

#[test]
fn the_first_command_of_readme_is_answered_rightly_by_every_seed() {
    let (answers, error) = vosti(&["--choices", "16", "--json", "-n", "24"], Stdio::null());
    assert!(error.contains("sampling     temperature 0.2, top_p 0.9 (its makers')"), "{error}");
    let told: serde_json::Value = serde_json::from_str(&answers).expect("JSON");
    let choices = told["choices"].as_array().expect("a list");
    for choice in choices {
        assert!(choice["text"].as_str().is_some_and(|text| text.contains(RIGHT)), "{choice}");
        assert_eq!(choice["finish_reason"], "stop", "it comes to the model's own end: {choice}");
    }
    assert_eq!(choices.len(), 16);
}

#[test]
fn a_quiet_answer_is_the_answer_alone_and_raw_text_is_continued() {
    let (answer, error) = vosti(&["--quiet", "--temperature", "0"], Stdio::null());
    assert!(answer.starts_with("The capital of Japan is Tokyo"), "it goes on to the model's own end: {answer}");
    // A progress bar may stand there, but no line.
    assert!(!error.contains("fingerprint"), "{error}");
    let question = first_command()[1];
    let (continued, _) = vosti(&["--raw", "--temperature", "0", "-n", "3"], Stdio::null());
    assert!(continued.starts_with(question), "{continued}");
    let (neutral, error) = vosti(&["--generation-config", "openai", "-n", "1"], Stdio::null());
    assert!(error.contains("sampling     temperature 1 (OpenAI's)"), "{error}{neutral}");
}

#[test]
fn a_text_that_is_piped_in_is_added_to_the_prompt() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("text");
    let tokens = |text: Option<&str>| {
        let stdin = text.map_or_else(Stdio::null, |text| {
            std::fs::write(&path, text).expect("written");
            std::fs::File::open(&path).expect("it is there").into()
        });
        let (told, _) = vosti(&["--json", "-n", "1"], stdin);
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        told["prompt_tokens"].as_u64().expect("a number")
    };
    let alone = tokens(None);
    assert_eq!(tokens(Some("\n")), alone, "nothing was piped in");
    assert!(tokens(Some("one two three four five six")) >= alone + 6);
}
