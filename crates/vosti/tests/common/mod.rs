//! A model that fits a test.

mod bytes;

/// A tiny model with a tokenizer of single bytes.
pub fn tiny(folder: &std::path::Path) {
    let source = format!("{}/../vosti-model/tests/tiny/llama", env!("CARGO_MANIFEST_DIR"));
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(format!("{source}/{file}"), folder.join(file)).unwrap();
    }
    bytes::tokenizer(folder);
}
