//! What each fuzz target does with its input, and `tests/hostile_files.rs` with damaged files. Each function says whether the
//! input got past its parser.

use std::path::Path;
use vosti_model::dequantise::GgmlType;
use vosti_model::gguf::Metadata;
use vosti_model::{ChatOptions, ChatTemplate, Target, TensorFiles, Tokenizer, families, plan};

const TEXT: &str = "Hello, naïve 日本 🙂 42\n";

/// A GGUF file of any bytes gives a model and a tokenizer, or errors.
pub fn gguf(data: &[u8]) -> bool {
    let Ok(metadata) = Metadata::parse("fuzz.gguf", data) else { return false };
    if let Ok(decoder) = families::from_gguf(&metadata) {
        plan(&decoder, &Target::named("cpu").with_choices(), Some(8)).ok();
    }
    if let Ok(tokenizer) = Tokenizer::from_gguf(&metadata) {
        encodes(&tokenizer);
    }
    true
}

/// Bytes taken as whole blocks of the type with a code expand to finite numbers, or some block is named.
pub fn blocks(code: u32, data: &[u8]) -> bool {
    let Some(kind) = GgmlType::from_code(code) else { return false };
    let whole = data.len() / kind.block_bytes();
    let bytes = &data[..whole * kind.block_bytes()];
    let mut out = vec![0.0; whole * kind.block_elements()];
    kind.expand(bytes, &mut out);
    let refused = kind.first_not_finite(bytes);
    assert!(kind.format().is_none() || refused.is_some() || out.iter().all(|value| value.is_finite()));
    whole > 0 && refused.is_none()
}

/// A config.json of any bytes gives a plan that the core accepts, or an error.
pub fn config(data: &[u8]) -> bool {
    let Ok(config) = vosti_model::json::parse(data) else { return false };
    let Ok(decoder) = families::from_config("config.json", &config) else { return false };
    let plan = plan(&decoder, &Target::named("cpu").with_choices(), Some(8));
    plan.is_ok_and(|plan| {
        assert!(plan.program.check().is_ok());
        true
    })
}

/// A tokenizer.json of any bytes gives a tokenizer that encodes, or an error.
pub fn tokenizer(data: &[u8]) -> bool {
    let Ok(json) = serde_json::from_slice(data) else { return false };
    Tokenizer::from_json(json, &serde_json::Value::Null, &[]).is_ok_and(|tokenizer| encodes(&tokenizer))
}

fn encodes(tokenizer: &Tokenizer) -> bool {
    tokenizer.encode(TEXT, true).is_ok_and(|tokens| !tokenizer.decode(&tokens).is_empty())
}

/// A chat template of any text renders or gives an error, and ends.
pub fn chat(source: String) -> bool {
    let messages = serde_json::json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]);
    ChatTemplate::new(source, "<s>".into(), "</s>".into())
        .is_ok_and(|template| template.render(&messages, &ChatOptions::default()).is_ok())
}

/// A model.safetensors of any bytes, written to `folder`, gives tensors inside the file, or an error.
pub fn safetensors(data: &[u8], folder: &Path, tensor: &str) -> bool {
    std::fs::write(folder.join("model.safetensors"), data).expect("room for a temporary file");
    let Ok(files) = TensorFiles::open_folder(folder) else { return false };
    files.tensor(tensor).is_ok_and(|tensor| {
        assert_eq!(tensor.bytes.len(), tensor.shape.iter().product::<usize>() * tensor.kind.block_bytes());
        true
    })
}
