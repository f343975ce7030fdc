//! Pages of a model's file count as this process's memory only while their rows are being packed.

#![cfg(target_os = "linux")]

use std::path::Path;
use vosti_kernels::Act;
use vosti_model::{Target, TensorFiles, WeightSource, Weights, families, plan};

/// Kilobytes of a file's mapping that count as this process's memory.
fn resident(file: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(file.to_str().unwrap()));
    let line = lines.find_map(|line| line.strip_prefix("Rss:")).expect("the file is mapped");
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

#[test]
fn pages_of_a_weight_are_given_back_when_its_rows_were_read() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/llama");
    let file = folder.path().canonicalize().unwrap().join("model.safetensors");
    std::fs::copy(tiny.join("model.safetensors"), &file).unwrap();
    let files = TensorFiles::open_folder(file.parent().unwrap()).unwrap();
    let config = serde_json::from_slice(&std::fs::read(tiny.join("config.json")).unwrap()).unwrap();
    let plan = plan(&families::from_config("config.json", &config).unwrap(), &Target::named("cpu"), None).unwrap();
    let weights = Weights::new(&files, &plan, Act::Bf16);
    let first: u64 = files.tensor("embed_tokens.weight").unwrap().bytes.iter().map(|byte| u64::from(*byte)).sum();
    assert!(first > 0 && resident(&file) > 0, "what was read without a weight stays");
    let embed = weights.load("embed").unwrap();
    assert_eq!(resident(&file), 0);
    // And comes back.
    assert_eq!(weights.load("embed").unwrap(), embed);
}
