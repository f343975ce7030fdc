//! See `targets::gguf` and `targets::blocks`.
#![no_main]

#[allow(dead_code)]
#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::gguf(data);
    if let [code, blocks @ ..] = data {
        targets::blocks((*code).into(), blocks);
    }
});
