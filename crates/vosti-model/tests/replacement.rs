//! Other tensors in the layout of a folder's files.

use std::path::{Path, PathBuf};
use vosti_model::{Model, ModelError, Replacement, TensorFiles};

fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/llama")
}

/// The name of a tensor of these files without its prefix.
fn bare(name: &str) -> &str {
    name.strip_prefix("model.").unwrap_or(name)
}

/// A replacement with the folder's own tensors after `change`.
fn replaced(change: impl Fn(&str, &mut Vec<u8>)) -> Replacement {
    let files = TensorFiles::open_folder(&tiny()).unwrap();
    let mut replacement = Model::replacement(&tiny()).unwrap();
    for tensor in replacement.wanted() {
        let mut bytes = files.tensor(bare(&tensor.name)).unwrap().bytes.to_vec();
        change(&tensor.name, &mut bytes);
        replacement.put(&tensor.name, &bytes).unwrap();
    }
    replacement
}

#[test]
fn the_same_tensors_give_the_same_file_to_the_byte() {
    let file = std::fs::read(tiny().join("model.safetensors")).unwrap();
    let files = replaced(|_, _| ()).whole().unwrap();
    assert!(files.held("model.safetensors").unwrap() == file);
    assert!(files.held("config.json").is_none());
}

#[test]
fn another_tensor_changes_its_own_bytes_alone() {
    let (norm, before) = ("model.norm.weight", TensorFiles::open_folder(&tiny()).unwrap());
    let change =
        |name: &str, bytes: &mut Vec<u8>| bytes.iter_mut().filter(|_| name == norm).for_each(|byte| *byte ^= 1);
    let model = Model::open(&tiny()).unwrap().with(replaced(change)).unwrap();
    for tensor in Model::replacement(&tiny()).unwrap().wanted() {
        let of = |files: &TensorFiles| files.tensor(bare(&tensor.name)).unwrap().bytes.to_vec();
        assert_eq!(of(&model.files) == of(&before), tensor.name != norm, "{}", tensor.name);
    }
    // Pages of bytes that are in no file are not released.
    let bytes = model.files.tensor("norm.weight").unwrap().bytes;
    let kept = bytes.to_vec();
    model.files.give_back(bytes, bytes);
    assert_eq!(bytes, kept);
}

#[test]
fn a_missing_extra_or_short_tensor_is_named() {
    let mut replacement = Model::replacement(&tiny()).unwrap();
    let said = |error: ModelError| error.to_string();
    let extra = said(replacement.put("model.tail.weight", &[0; 2]).unwrap_err());
    assert_eq!(extra, "tensor `model.tail.weight` is not in the model's files");
    let short = said(replacement.put("model.norm.weight", &[0; 2]).unwrap_err());
    assert_eq!(short, "tensor `model.norm.weight` has 2 bytes, not 128");
    let missing = said(replacement.whole().err().unwrap());
    assert_eq!(missing, "tensor `model.embed_tokens.weight` is missing");
}
