//! The official `openai` package against `vosti serve`, and the receipt that it got, replayed.

mod serve;

use serve::{Server, script, succeeds};
use std::process::Command;
use vosti_test_tools::python;

fn vosti(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_vosti")).args(arguments).output().expect("the binary starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap_or(-1), text)
}

#[test]
fn the_official_client_gets_what_the_api_promises_and_its_receipt_can_be_replayed() {
    let Some(python) = python("openai") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let receipt = folder.path().join("receipt.json");
    {
        let server = Server::start(&["--api-key", "k"]);
        let mut client = Command::new(python);
        succeeds(client.arg(script("openai_client.py")).args([&server.url, "k"]).arg(&receipt));
    }
    replays(receipt.to_str().expect("a path"));
}

/// Alone and under load the bits are the receipt's; a receipt with one other link or of another deployment is noticed.
fn replays(path: &str) {
    for arguments in [&["replay", path][..], &["replay", "--under-load", path]] {
        let (code, text) = vosti(arguments);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("identical"), "{text}");
    }
    let text = std::fs::read_to_string(path).expect("written by the client");
    let receipt: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let changed = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut receipt = receipt.clone();
        change(&mut receipt);
        std::fs::write(path, receipt.to_string()).expect("written");
        vosti(&["replay", path])
    };
    let (code, text) = changed(&|receipt| receipt["links"][2] = "00000000".into());
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("at token 2"), "{text}");
    let (code, text) = changed(&|receipt| receipt["seed"] = 8.into());
    assert_eq!(code, 1, "another seed: {text}");
    let (code, text) = changed(&|receipt| receipt["fingerprint"] = "vosti-0".into());
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("vosti-0"), "{text}");
    let (code, text) = changed(&|receipt| *receipt = serde_json::Value::Null);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("not a receipt") && !text.contains("panicked"), "{text}");
}
