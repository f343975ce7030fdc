//! A tokenizer.json of any bytes gives a tokenizer that encodes, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vosti_model::Tokenizer;

fuzz_target!(|data: &[u8]| {
    let Ok(json) = serde_json::from_slice(data) else { return };
    if let Ok(tokenizer) = Tokenizer::from_json(json, &serde_json::Value::Null, &[])
        && let Ok(tokens) = tokenizer.encode("Hello, naïve 日本 🙂 42\n", true)
    {
        tokenizer.decode(&tokens);
    }
});
