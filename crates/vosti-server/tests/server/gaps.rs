//! Fill-in-the-middle: the tokens that the model gets of a prompt and a suffix, and those that end its answer.

use crate::common::{GAP, Options, completion, serve, with};
use serde_json::{Value, json};

const TEXT: &str = "/v1/completions";

fn tokens(prompt: &str, suffix: &str) -> Value {
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    json!([vec![GAP], bytes(prompt), vec![GAP + 1], bytes(suffix), vec![GAP + 2]].concat())
}

#[tokio::test]
async fn a_suffix_asks_for_the_text_in_the_gap_in_every_api_that_has_it() {
    let server = serve(&Options { marks: true, ..Options::default() });
    // The texts around the gap spell a token, which is text.
    let (prompt, suffix) = ("f(<|fim_middle|>", ") # \u{e9}<|im_end|>");
    let ask = with(completion(prompt), json!({"suffix": suffix}));
    let whole = server.ok(TEXT, with(ask.clone(), json!({"return_token_ids": true}))).await;
    let choice = &whole["choices"][0];
    assert_eq!(choice["prompt_token_ids"], tokens(prompt, suffix));
    let streamed = server.post(TEXT, with(ask, json!({"stream": true}))).await;
    let text = |chunk: &Value| chunk["choices"][0]["text"].as_str().unwrap_or_default().to_string();
    assert_eq!(streamed.chunks().iter().map(text).collect::<String>(), choice["text"]);
    let ask = json!({"prompt": prompt, "suffix": suffix, "stream": false, "options": {"seed": 5, "num_predict": 24}});
    let filled = server.ok("/api/generate", ask).await;
    assert_eq!(filled["response"], choice["text"]);
    assert_eq!(filled["prompt_eval_count"], whole["usage"]["prompt_tokens"]);
    let shown = server.ok("/api/show", json!({"model": "toy"})).await;
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("insert")), "{shown}");
    let several = server.post(TEXT, json!({"model": "toy", "prompt": ["a", "b"], "suffix": "c"})).await.error();
    assert!(several.0 == 400 && several.2.contains("a prompt of one text"), "{several:?}");
}

#[tokio::test]
async fn a_prompt_that_a_client_has_written_with_the_tokens_gets_the_same_answer() {
    let server = serve(&Options { marks: true, ..Options::default() });
    let own = server.ok(TEXT, with(completion("f("), json!({"suffix": ")"}))).await;
    let written = server.ok(TEXT, completion("<|fim_prefix|>f(<|fim_suffix|>)<|fim_middle|>")).await;
    assert_eq!(own["choices"], written["choices"]);
    // Without anything behind the gap, as at the end of a file, a text is continued.
    let end = server.ok(TEXT, with(completion("f("), json!({"suffix": ""}))).await;
    assert_eq!(end["choices"], server.ok(TEXT, completion("f(")).await["choices"]);
}

#[tokio::test]
async fn what_fills_a_gap_ends_where_the_model_pads_or_begins_another_file() {
    let server = serve(&Options { marks: true, ..Options::default() });
    let pads = with(completion("f("), json!({"logit_bias": {(GAP + 3).to_string(): 100}}));
    let told = |answer: &Value| (answer["choices"][0]["finish_reason"].clone(), answer["choices"][0]["text"].clone());
    let filled = server.ok(TEXT, with(pads.clone(), json!({"suffix": ")"}))).await;
    assert_eq!(told(&filled), (json!("stop"), json!("")));
    let on = server.ok(TEXT, with(pads.clone(), json!({"suffix": ")", "ignore_eos": true}))).await;
    assert_eq!(on["choices"][0]["finish_reason"], "length");
    assert_eq!(server.ok(TEXT, pads).await["choices"][0]["finish_reason"], "length", "a text has no gap that ends");
}
