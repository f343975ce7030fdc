//! A chat template of any text renders or gives an error, and ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vosti_model::{ChatOptions, ChatTemplate};

fuzz_target!(|source: String| {
    let messages = serde_json::json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]);
    if let Ok(template) = ChatTemplate::new(source, "<s>".into(), "</s>".into()) {
        template.render(&messages, &ChatOptions::default()).ok();
    }
});
