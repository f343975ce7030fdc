//! A GGUF file of any bytes gives a model or an error. Bounded run: `tests/hostile_files.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vosti_kernels::Act;
use vosti_model::gguf::Metadata;
use vosti_model::{PlanOptions, Tokenizer, families, plan};

fuzz_target!(|data: &[u8]| {
    let Ok(metadata) = Metadata::parse("fuzz.gguf", data) else { return };
    if let Ok(decoder) = families::from_gguf(&metadata) {
        plan(&decoder, &PlanOptions { target: "cpu", act: Act::Bf16, context: Some(8) }).ok();
    }
    Tokenizer::from_gguf(&metadata).ok();
});
