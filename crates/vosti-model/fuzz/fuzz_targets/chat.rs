//! See `targets::chat`.
#![no_main]

#[allow(dead_code)]
#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|source: String| {
    targets::chat(source);
});
