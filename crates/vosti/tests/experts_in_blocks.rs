//! Mixtures of experts and per-layer embeddings whose matrices a GGUF file has in blocks are multiplied in integers: close to the file's
//! own numbers, and with the same bits whatever else happens.
//!
//! Files are tiny models in Q8_0. An expert of OLMoE's has 48 columns there, which are no whole blocks, so its second matrix stays in
//! BF16 behind a first one in integers.

#[path = "../../vosti-model/tests/common/gguf.rs"]
mod gguf;
#[path = "common/run.rs"]
#[expect(dead_code, reason = "what other tests use")]
mod run;

use std::path::{Path, PathBuf};
use std::process::Command;

use run::Run;
use safetensors::SafeTensors;
use vosti::deployment::{DeployOptions, Deployment, DeviceConfig};
use vosti_model::Arithmetic;

/// In Q8_0 the tiny Nemotron 3 and LFM2 MoE are as far off in BF16 as in integers (0.14 and 0.10 of the largest logit), so they tell nothing here.
const MIXTURES: [&str; 5] = ["qwen3-moe", "olmoe", "mixtral", "granite-moe", "gpt-oss"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/tests/tiny").join(name)
}

/// A tiny model in Q8_0.
fn file(name: &str, to: &Path) -> PathBuf {
    let folder = folder(name);
    let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    let path = to.join(format!("{name}.gguf"));
    std::fs::write(&path, gguf::write(&folder, &config, true)).unwrap();
    path
}

/// A prompt, and transformers' logits of it in FP32.
fn golden(name: &str) -> (Vec<u32>, Vec<f32>) {
    let bytes = std::fs::read(folder(name).join("golden.safetensors")).unwrap();
    let golden = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| -> Vec<u32> {
        let tensor = golden.tensor(name).unwrap();
        tensor.data().chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    (words("tokens"), words("logits_f32").into_iter().map(f32::from_bits).collect())
}

/// The kernels of a file's experts, and its logits at every position.
fn logits(path: &Path, arithmetic: Arithmetic, tokens: &[u32], chunk: usize) -> (Vec<String>, Vec<f32>) {
    let options =
        DeployOptions { context: Some(256), arithmetic: Some(arithmetic), threads: Some(2), ..Default::default() };
    let deployment = Deployment::load("tiny", path, &options, &vosti_engine::progress::NoProgress).unwrap();
    let plan = deployment.plan().clone();
    let specs = vosti_model::plan::specs(&plan).into_iter().map(|spec| spec.kernel);
    let mut kernels: Vec<String> = specs.filter(|kernel| kernel.starts_with("expert")).collect();
    kernels.dedup();
    let asked = DeviceConfig { pages: Some(8), rows_max: 64, ..Default::default() };
    let mut logits = Vec::new();
    let mut run = Run::of(plan, deployment.device(&asked).unwrap(), chunk);
    run.prompt(tokens, |_, row| logits.extend_from_slice(row));
    (kernels, logits)
}

fn off(got: &[f32], wanted: &[f32]) -> f32 {
    let squares = got.iter().zip(wanted).map(|(g, w)| (g - w).powi(2)).sum::<f32>();
    (squares / wanted.iter().map(|w| w * w).sum::<f32>()).sqrt()
}

#[test]
fn experts_in_integers_are_near_the_files_numbers_in_every_chunk() {
    let to = tempfile::tempdir().unwrap();
    for name in MIXTURES {
        let path = file(name, to.path());
        let (tokens, exact) = golden(name);
        let (kernels, whole) = logits(&path, Arithmetic::Integers16, &tokens, 64);
        let integers: &[&str] = match name {
            "mixtral" | "granite-moe" | "gpt-oss" => &["expert_int_down", "expert_int_glu"],
            _ => &["expert_down", "expert_int_glu"],
        };
        assert_eq!(kernels, integers, "{name}");
        let (_, single) = logits(&path, Arithmetic::Integers16, &tokens, 1);
        assert!(whole.iter().zip(&single).all(|(a, b)| a.to_bits() == b.to_bits()), "{name}: one row at a time");
        let (kernels, floats) = logits(&path, Arithmetic::Bf16, &tokens, 64);
        assert_eq!(kernels, ["expert_down", "expert_glu"], "{name}");
        let (ours, theirs) = (off(&whole, &exact), off(&floats, &exact));
        println!("{name}: integers off by {ours:.4}, BF16 by {theirs:.4}");
        // A row near a tie of two experts may choose the other one: a row of gpt-oss's does so in integers.
        let most = if name == "gpt-oss" { 1.2 } else { 1.1 };
        assert!(ours < 0.05 && ours < most * theirs, "{name}: off by {ours}, in BF16 by {theirs}");
    }
}

/// A layer's own numbers are 16 in E2B's, which are no whole blocks, and 32 in E4B's.
#[test]
fn per_layer_embeddings_in_integers_are_near_the_files_numbers_in_every_chunk() {
    let to = tempfile::tempdir().unwrap();
    for name in ["gemma4-e2b", "gemma4-e4b"] {
        let path = file(name, to.path());
        let (tokens, exact) = golden(name);
        let [whole, single] = [64, 1].map(|chunk| logits(&path, Arithmetic::Integers16, &tokens, chunk).1);
        assert!(whole.iter().zip(&single).all(|(a, b)| a.to_bits() == b.to_bits()), "{name}: one row at a time");
        let floats = logits(&path, Arithmetic::Bf16, &tokens, 64).1;
        let (ours, theirs) = (off(&whole, &exact), off(&floats, &exact));
        println!("{name}: integers off by {ours:.4}, BF16 by {theirs:.4}");
        assert!(ours < 0.05 && ours < 1.1 * theirs, "{name}: off by {ours}, in BF16 by {theirs}");
    }
}

#[test]
fn matrices_in_integers_give_the_same_bits_whatever_else_happens() {
    let to = tempfile::tempdir().unwrap();
    for name in ["olmoe", "granite-moe", "gpt-oss", "nemotron3", "gemma4-e4b"] {
        let path = file(name, to.path());
        let relations = "batch,chunk,prefill-decode,prefix,speculation,machine";
        let run = Command::new(env!("CARGO_BIN_EXE_vosti"))
            .args(["check", "--profile", "quick", "--only", relations, "--model"])
            .arg(&path)
            .output()
            .unwrap();
        let told = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{name}: {told}");
    }
}
