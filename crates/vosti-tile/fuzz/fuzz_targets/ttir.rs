//! TTIR of any text lifts or gives an error. Bounded run: `tests/lifting_refuses_what_it_does_not_know.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vosti_tile::lift;

fuzz_target!(|text: &str| {
    if let Ok(kernel) = lift(text) {
        let _ = kernel.to_string();
    }
});
