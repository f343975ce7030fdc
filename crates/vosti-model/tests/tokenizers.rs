//! Tokenizers give the reference's tokens (made by goldens/text.py), and text comes back. Those of the two real models are
//! compared in `crates/vosti/tests/goldens.rs`, which fetches their files.

use std::path::Path;

use vosti_model::gguf::Metadata;
use vosti_model::{Detokenizer, TensorFiles, Tokenizer};

type Cases = Vec<(String, Vec<u32>)>;

fn check(tokenizer: &Tokenizer, cases: &str) {
    let cases: Cases = serde_json::from_str(cases).unwrap();
    assert!(cases.len() > 300);
    for (text, tokens) in &cases {
        assert_eq!(&tokenizer.encode(text, false).unwrap(), tokens, "{text:?}");
        let mut stream = Detokenizer::new(tokenizer);
        let mut streamed: String = tokens.iter().map(|t| stream.push(*t)).collect();
        streamed.push_str(&stream.finish());
        assert_eq!(streamed, tokenizer.decode(tokens), "{text:?}");
    }
}

fn gguf(path: &Path) -> Tokenizer {
    let files = TensorFiles::open_gguf(path).unwrap();
    Tokenizer::from_gguf(files.metadata().unwrap()).unwrap()
}

#[test]
fn gemma4s_tokenizer_rebuilt_from_gguf_gives_the_references_tokens() {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/text");
    let tiny = gguf(&text.join("tiny-gemma4.gguf"));
    check(&tiny, include_str!("text/tokens-tiny-gemma4.json"));
    let chat = tiny.encode("<|turn>Hi\n\n\u{1F9E9}<turn|>", true).unwrap();
    assert_eq!(chat[0], 2, "begins with <bos>, though the file says no");
    assert_eq!(tiny.decode(&chat), "Hi\n\n\u{1F9E9}", "a character outside the vocabulary comes back from its bytes");
    assert_eq!(tiny.eos().collect::<Vec<_>>(), [1, 5], "<eos> and <turn|>");
}

#[test]
fn a_tokenizer_json_gives_its_librarys_tokens_and_names_its_ends() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/text/tiny-tokenizer");
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    check(&tokenizer, include_str!("text/tiny-tokenizer/tokens.json"));
    assert_eq!(tokenizer.bos(), tokenizer.token_id("<|begin_of_text|>"));
    assert_eq!(tokenizer.eos().collect::<Vec<_>>(), [tokenizer.token_id("<|eot_id|>").unwrap()]);
    for text in ["naïve 日本 🙂", "  a\r\n\tb", "\u{0}\u{7f}"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text, false).unwrap()), text);
    }
}

#[test]
fn a_character_split_over_tokens_is_held_until_it_is_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/text/tiny-tokenizer");
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    let byte = |name: &str| tokenizer.token_id(name).unwrap();
    // U+1F642 is F0 9F 99 82; GPT-2 writes those bytes as these characters.
    let mut stream = Detokenizer::new(&tokenizer);
    let pushed: Vec<String> = ["ð", "Ł", "Ļ", "Ĥ", "A"].iter().map(|n| stream.push(byte(n))).collect();
    assert_eq!(pushed, ["", "", "", "🙂", "A"]);
    let mut stream = Detokenizer::new(&tokenizer);
    assert_eq!(stream.push(byte("ð")), "");
    assert_eq!(stream.push(byte("A")), "\u{fffd}A");
    stream.push(byte("ð"));
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn a_hostile_tokenizer_json_is_an_error_and_not_a_panic() {
    let json = |model: &str| {
        let text = format!(r#"{{"version":"1.0","decoder":{{"type":"ByteLevel"}},"model":{model}}}"#);
        serde_json::from_str(&text).unwrap()
    };
    let null = serde_json::Value::Null;
    for model in [
        r#"{"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a","b"]]}"#,
        r#"{"type":"BPE","vocab":{"a":0},"merges":[["aaaa","a"]]}"#,
        r#"{"type":"BPE","vocab":{"a":4000000000},"merges":[]}"#,
        r#"{"type":"BPE","vocab":{},"merges":[]}"#,
        r#"{"type":"WordPiece","vocab":{}}"#,
        r#"{"type":"BPE","vocab":{"a":0},"merges":[3]}"#,
        "3",
    ] {
        assert!(Tokenizer::from_json(json(model), &null, &[]).is_err(), "{model}");
    }
}

/// A tokenizer of Llama 2's form, with further control tokens from id 264 on.
fn llama2(further: &[&str], settings: &serde_json::Value) -> Tokenizer {
    let mut vocab = serde_json::json!({"<unk>": 0, "<s>": 1, "</s>": 2});
    (0..256).for_each(|byte| vocab[format!("<0x{byte:02X}>")] = (3 + byte).into());
    for (i, piece) in ["\u{2581}", "H", "i", "\u{2581}H", "\u{2581}Hi"].iter().enumerate() {
        vocab[*piece] = (259 + i).into();
    }
    let special = |id: u32, content: &str| serde_json::json!({"id": id, "content": content, "special": true, "lstrip": false, "rstrip": false, "normalized": false, "single_word": false});
    let mut added = vec![special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")];
    added.extend(further.iter().enumerate().map(|(i, name)| special(264 + i as u32, name)));
    let json = serde_json::json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
            "merges": [["\u{2581}", "H"], ["\u{2581}H", "i"]]},
    });
    Tokenizer::from_json(json, settings, &[]).unwrap()
}

#[test]
fn a_tokenizer_json_of_llama_2s_form_has_a_space_in_front_and_bytes_for_the_rest() {
    let settings = serde_json::json!({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true});
    let nameless = serde_json::json!({"eos_token": "</s>", "add_bos_token": true});
    let warnings = llama2(&[], &nameless).warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("add_bos_token"), "{warnings:?}");
    let tokenizer = llama2(&[], &settings);
    assert!(tokenizer.warnings().is_empty());
    assert_eq!(tokenizer.encode("Hi é", true).unwrap(), [1, 263, 259, 3 + 0xc3, 3 + 0xa9]);
    assert_eq!(tokenizer.encode("Hi</s>Hi", false).unwrap(), [263, 2, 263]);
    assert_eq!(tokenizer.decode(&[1, 263, 259, 3 + 0xc3, 3 + 0xa9, 2]), " Hi é");
    assert_eq!(tokenizer.eos().collect::<Vec<_>>(), [2]);
}

/// A GGUF file's metadata with these ids under further keys.
fn with_ids(file: &str, ids: &[(&str, u32)]) -> Metadata {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/text").join(file);
    let bytes = std::fs::read(path).unwrap();
    // Magic, version and the number of tensors, then the number of keys.
    let (start, count, rest) = (&bytes[..16], u64::from_le_bytes(bytes[16..24].try_into().unwrap()), &bytes[24..]);
    let entry = |(key, id): &(&str, u32)| {
        let (key, u32s_type) = (format!("tokenizer.ggml.{key}_token_id"), 4_u32);
        [&(key.len() as u64).to_le_bytes()[..], key.as_bytes(), &u32s_type.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let keys: Vec<u8> = ids.iter().flat_map(entry).collect();
    let count = count + ids.len() as u64;
    Metadata::parse(file, &[start, &count.to_le_bytes(), &keys, rest].concat()).unwrap()
}

#[test]
fn a_gguf_file_names_the_tokens_around_a_gap_under_two_sets_of_keys() {
    let of = |ids: &[(&str, u32)]| Tokenizer::from_gguf(&with_ids("tiny-gemma4.gguf", ids));
    let plain = of(&[]).unwrap();
    assert_eq!(plain.encode_gap("Hi", "you", true).unwrap(), None);
    let (before, after) = (plain.encode("Hi", false).unwrap(), plain.encode("you", false).unwrap());
    let written = [vec![2, 21], before, vec![23], after, vec![22]].concat();
    for keys in [["fim_pre", "fim_mid", "fim_suf", "fim_pad"], ["prefix", "middle", "suffix", "fim_sep"]] {
        let tokenizer = of(&[(keys[0], 21), (keys[1], 22), (keys[2], 23), (keys[3], 24)]).unwrap();
        assert_eq!(tokenizer.encode_gap("Hi", "you", true).unwrap().unwrap(), written, "{keys:?}");
        assert!([21, 22, 23, 24].iter().all(|token| tokenizer.gap_ends().contains(token)), "{keys:?}");
        let wrong = of(&[(keys[0], 1 << 30)]).err().expect("outside the vocabulary").to_string();
        assert!(wrong.contains(keys[0]) && wrong.contains("outside the vocabulary"), "{wrong}");
    }
}

#[test]
fn a_gap_has_the_vocabularys_tokens_in_the_order_of_its_makers() {
    let gap = |names: &[&str], more: serde_json::Value| {
        let mut settings = serde_json::json!({"bos_token": "<s>", "eos_token": "</s>"});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let tokenizer = llama2(names, &settings);
        (tokenizer.encode_gap("Hi", "Hi", true).unwrap().unwrap(), tokenizer.gap_ends().to_vec())
    };
    // The text that goes on after the gap begins without a space: `H`, `i` and not `\u{2581}Hi`. That texts begin with a token
    // may stand in `tokenizer.json` alone.
    let code_llamas = ["\u{2581}<PRE>", "\u{2581}<MID>", "\u{2581}<SUF>", "\u{2581}<EOT>"];
    for add_bos in [serde_json::json!({}), serde_json::json!({"add_bos_token": true})] {
        let (tokens, ends) = gap(&code_llamas, add_bos);
        assert_eq!(tokens, [1, 264, 263, 266, 260, 261, 265]);
        assert!(ends.contains(&267), "Code Llama ends what fills a gap by its own token: {ends:?}");
    }
    let plain = serde_json::json!({});
    assert_eq!(gap(&["[PREFIX]", "[MIDDLE]", "[SUFFIX]"], plain).0, [1, 266, 260, 261, 264, 263], "Codestral's");
    let granite = ["<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>"];
    assert_eq!(gap(&granite, serde_json::json!({})).0, [1, 264, 263, 266, 260, 261, 265]);
}

#[test]
fn control_tokens_that_mark_calls_and_thoughts_have_text_and_others_have_none() {
    let special = |id: u32, content: &str| serde_json::json!({"id": id, "content": content, "special": true, "lstrip": false, "rstrip": false, "normalized": false, "single_word": false});
    let of = |names: &[&str]| {
        let added: Vec<_> = names.iter().enumerate().map(|(id, name)| special(1 + id as u32, name)).collect();
        let json = serde_json::json!({"version": "1.0", "added_tokens": added, "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}});
        Tokenizer::from_json(json, &serde_json::Value::Null, &[]).unwrap()
    };
    let mistral = of(&["[TOOL_CALLS]", "[INST]", "<|end|>"]);
    assert_eq!(mistral.decode(&[1, 0, 2, 3]), "[TOOL_CALLS]a");
    assert_eq!(mistral.eos().collect::<Vec<_>>(), [3]);
    // Where messages have channels, their end is not the answer's.
    let harmony = of(&["<|channel|>", "<|end|>", "<|return|>"]);
    assert_eq!(harmony.decode(&[1, 0, 2, 3]), "<|channel|>a<|end|>");
    assert_eq!(harmony.eos().collect::<Vec<_>>(), [3]);
}
