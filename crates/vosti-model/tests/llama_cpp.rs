//! Real vocabularies and chat templates from llama.cpp's source: its vocabulary-only GGUF files give the tokens that its own
//! tests expect, and its templates give the texts that transformers gives. `cargo xtask llama-cpp` fetches the files.
//!
//! Without the files these tests print a line and pass. Under `cargo xtask test`, which fetches them, they fail.

use std::collections::HashMap;
use std::path::Path;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use vosti_model::gguf::{Metadata, Value};
use vosti_model::{ChatOptions, ChatTemplate, Date, Tokenizer};
use vosti_test_tools::llama_cpp as folder;

fn metadata(path: &Path) -> Metadata {
    Metadata::parse("vocabulary", &std::fs::read(path).unwrap()).unwrap()
}

/// Whether Hugging Face's tokens of a text, and ours, differ from llama.cpp's: Qwen's `tokenizer.json` composes accents first
/// (NFC), llama.cpp does not.
fn composes(name: &str, text: &str) -> bool {
    name.starts_with("qwen") && text.contains(['\u{300}', '\u{301}'])
}

fn check(name: &str) {
    let Some(models) = folder("models") else { return };
    let path = models.join(format!("ggml-vocab-{name}.gguf"));
    let tokenizer = Tokenizer::from_gguf(&metadata(&path)).unwrap();
    let read = |end: &str| std::fs::read_to_string(format!("{}.{end}", path.display())).unwrap();
    let (inputs, outputs) = (read("inp"), read("out"));
    const BETWEEN: &str = "\n__ggml_vocab_test__\n";
    let texts: Vec<&str> = inputs.strip_suffix(BETWEEN).unwrap_or(&inputs).split(BETWEEN).collect();
    let lines: Vec<&str> = outputs.lines().collect();
    assert!(texts.len() > 40 && texts.len() == lines.len(), "{} texts, {} lines", texts.len(), lines.len());
    for (text, line) in texts.iter().zip(lines) {
        let expected: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let tokens = tokenizer.encode(text, false).unwrap();
        match composes(name, text) {
            false => assert_eq!(tokens, expected, "{name}: {text:?}"),
            true => assert_ne!(tokens, expected, "{name}: {text:?}"),
        }
    }
}

macro_rules! vocabularies {
    ($($test:ident: $name:literal,)*) => { $(#[test] fn $test() { check($name); })* };
}

vocabularies! {
    llama_2s_vocabulary_gives_llama_cpps_tokens: "llama-spm",
    llama_3s_vocabulary_gives_llama_cpps_tokens: "llama-bpe",
    phi_3s_vocabulary_gives_llama_cpps_tokens: "phi-3",
    qwen_2s_vocabulary_gives_llama_cpps_tokens: "qwen2",
    qwen_35s_vocabulary_gives_llama_cpps_tokens: "qwen35",
    gemma_4s_vocabulary_gives_llama_cpps_tokens: "gemma-4",
    gpt_2s_vocabulary_gives_llama_cpps_tokens: "gpt-2",
    mpts_vocabulary_gives_llama_cpps_tokens: "mpt",
    starcoders_vocabulary_gives_llama_cpps_tokens: "starcoder",
    refacts_vocabulary_gives_llama_cpps_tokens: "refact",
    deepseek_coders_vocabulary_gives_llama_cpps_tokens: "deepseek-coder",
    command_rs_vocabulary_gives_llama_cpps_tokens: "command-r",
}

#[test]
fn a_gap_has_the_tokens_that_published_files_have_for_it() {
    let Some(models) = folder("models") else { return };
    let gap = [(vec![], 1, 3, 2), (vec![], 1, 3, 2), (vec![32013], 32016, 32015, 32017)];
    for (name, (begin, prefix, suffix, middle)) in ["starcoder", "refact", "deepseek-coder"].into_iter().zip(gap) {
        let tokenizer = Tokenizer::from_gguf(&metadata(&models.join(format!("ggml-vocab-{name}.gguf")))).unwrap();
        let text = |text: &str| tokenizer.encode(text, false).unwrap();
        let (before, after) = ("def twice(x):\n    return ", " * x\n\nprint(twice(4))\n");
        let written = [begin, vec![prefix], text(before), vec![suffix], text(after), vec![middle]].concat();
        assert_eq!(tokenizer.encode_gap(before, after, true).unwrap().unwrap(), written, "{name}");
        // Texts that spell a token are texts.
        let own = tokenizer.token_name(middle).unwrap();
        let spelled = tokenizer.encode_gap(&own, &own, false).unwrap().unwrap();
        assert_eq!(spelled.iter().filter(|token| **token == middle).count(), 1, "{name}: {spelled:?}");
        let ends = tokenizer.gap_ends();
        assert!([prefix, suffix, middle].iter().all(|token| ends.contains(token)), "{name}: {ends:?}");
        assert_eq!(ends.contains(&4), name != "deepseek-coder", "StarCoder's and Refact's padding");
    }
}

/// Sentencepiece's own rule: of all neighbours that join to a token, the pair with the best score is joined, the leftmost of
/// equals. A piece that is no token in the end is encoded by its bytes.
fn by_scores(ids: &HashMap<&str, u32>, scores: &[f32], text: &str) -> Vec<u32> {
    let mut parts: Vec<String> = text.replace(' ', "\u{2581}").chars().map(String::from).collect();
    loop {
        let joined =
            |i: usize| ids.get(format!("{}{}", parts[i], parts[i + 1]).as_str()).map(|id| scores[*id as usize]);
        let pairs = (0..parts.len().saturating_sub(1)).filter_map(|i| Some((i, joined(i)?)));
        let best = pairs.reduce(|best, pair| if pair.1 > best.1 { pair } else { best });
        let Some((i, _)) = best else { break };
        let right = parts.remove(i + 1);
        parts[i].push_str(&right);
    }
    let bytes = |part: &str| part.bytes().map(|b| ids[format!("<0x{b:02X}>").as_str()]).collect::<Vec<_>>();
    parts.iter().flat_map(|part| ids.get(part.as_str()).map_or_else(|| bytes(part), |id| vec![*id])).collect()
}

#[test]
fn merges_made_from_scores_give_what_sentencepieces_rule_gives() {
    let Some(models) = folder("models") else { return };
    let metadata = metadata(&models.join("ggml-vocab-llama-spm.gguf"));
    let tokenizer = Tokenizer::from_gguf(&metadata).unwrap();
    let (Some(Value::Strs(tokens)), Some(Value::Floats(scores))) =
        (metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.scores"))
    else {
        panic!("no vocabulary")
    };
    let ids: HashMap<&str, u32> = tokens.iter().enumerate().rev().map(|(id, text)| (text, id as u32)).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(17);
    for _ in 0..3_000 {
        let mut text = String::new();
        for _ in 0..1 + random.next_u32() % 12 {
            match random.next_u32() % 4 {
                0 => text.push(char::from_u32(32 + random.next_u32() % 0x500).unwrap()),
                1 => text.push_str(&" ".repeat(1 + random.next_u32() as usize % 20)),
                // A token's text, or a part of it.
                _ => {
                    let token = tokens.get(259 + random.next_u32() as usize % (tokens.len() - 259)).unwrap();
                    let kept = 1 + random.next_u32() as usize % token.chars().count();
                    text.extend(token.chars().take(kept).map(|c| if c == '\u{2581}' { ' ' } else { c }));
                }
            }
        }
        let expected = by_scores(&ids, scores, &format!(" {text}"));
        assert_eq!(tokenizer.encode(&text, false).unwrap(), expected, "{text:?}");
    }
}

#[test]
fn a_text_between_control_tokens_begins_with_a_space_and_phi_3s_swallow_the_white_space_after_them() {
    let Some(models) = folder("models") else { return };
    let open = |name: &str| Tokenizer::from_gguf(&metadata(&models.join(format!("ggml-vocab-{name}.gguf")))).unwrap();
    let pieces = |tokenizer: &Tokenizer, text: &str| -> Vec<String> {
        let tokens = tokenizer.encode(text, true).unwrap();
        tokens.iter().map(|token| tokenizer.token_name(*token).unwrap()).collect()
    };
    let llama = open("llama-spm");
    assert_eq!(pieces(&llama, "Hi</s>\nyou"), ["<s>", "\u{2581}Hi", "</s>", "\u{2581}", "<0x0A>", "you"]);
    assert_eq!(llama.decode(&llama.encode("Hi", true).unwrap()), " Hi");
    let phi = open("phi-3");
    let chat = ["<s>", "<|user|>", "\u{2581}Hi", "<|end|>", "<|assistant|>"];
    assert_eq!(pieces(&phi, "<|user|>\nHi<|end|>\n<|assistant|>\n"), chat);
    assert_eq!(pieces(&phi, "<|endoftext|> x")[1..], ["<|endoftext|>", "\u{2581}", "\u{2581}x"]);
}

#[test]
fn every_chat_template_gives_the_text_that_transformers_gives() {
    let Some(templates) = folder("models/templates") else { return };
    let golden: serde_json::Value = serde_json::from_str(include_str!("text/templates.json")).unwrap();
    let date = Date::parse(golden["date"].as_str().unwrap()).unwrap();
    let (mut rendered, mut refused, mut wrong) = (0, 0, Vec::new());
    for (name, chats) in golden["templates"].as_object().unwrap() {
        if name.contains("functionary-medium-v3.1") {
            continue; // It marks texts as safe, and Jinja then escapes what is added to them: no model here needs it.
        }
        let source = std::fs::read_to_string(templates.join(format!("{name}.jinja"))).unwrap();
        let template = match ChatTemplate::new(source, "<s>".into(), "</s>".into()) {
            Ok(template) => template,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        for (chat, expected) in chats.as_object().unwrap() {
            for (i, tools) in [None, Some(serde_json::json!([golden["tool"]]))].into_iter().enumerate() {
                let options = ChatOptions { add_generation_prompt: i == 0, date, tools, variables: Default::default() };
                let text = template.render(&golden["chats"][chat], &options);
                match (text, expected[i].as_str()) {
                    (Err(_), Some("refused")) => refused += 1,
                    (Ok(text), Some(digest)) => {
                        rendered += 1;
                        let text = text.text();
                        let hex: String = Sha256::digest(&*text).iter().map(|byte| format!("{byte:02x}")).collect();
                        if hex != digest {
                            wrong.push(format!("{name}/{chat}/{i}: {text:?}"));
                        }
                    }
                    (Err(error), Some(_)) => wrong.push(format!("{name}/{chat}/{i}: {error}")),
                    (_, None) => {} // Jinja fails if a text is added to a list; any result is accepted here.
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rendered, wrong.join("\n"));
    assert!(rendered > 400 && refused > 10, "only {rendered} chats render, {refused} are refused");
}

#[test]
fn qwen_35s_template_thinks_unless_it_is_told_not_to() {
    let Some(templates) = folder("models/templates") else { return };
    let source = std::fs::read_to_string(templates.join("Qwen3.5-4B.jinja")).unwrap();
    let template = ChatTemplate::new(source, String::new(), "<|im_end|>".into()).unwrap();
    let chat = serde_json::json!([{"role": "user", "content": "Hi"}]);
    let prompt = |thinks: Option<bool>| {
        let variables = thinks.map(|thinks| ("enable_thinking".to_string(), thinks.into())).into_iter().collect();
        let options = ChatOptions { add_generation_prompt: true, variables, ..ChatOptions::default() };
        template.render(&chat, &options).unwrap().text().into_owned()
    };
    let turn = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(prompt(None), format!("{turn}<think>\n"));
    assert_eq!(prompt(Some(true)), format!("{turn}<think>\n"));
    assert_eq!(prompt(Some(false)), format!("{turn}<think>\n\n</think>\n\n"));
}

/// Every text of a value, changed.
fn changed(value: &serde_json::Value, change: &dyn Fn(&str) -> String) -> serde_json::Value {
    use serde_json::Value as Json;
    match value {
        Json::String(text) => change(text).into(),
        Json::Array(list) => list.iter().map(|entry| changed(entry, change)).collect(),
        Json::Object(members) => members
            .iter()
            .map(|(name, member)| match name.as_str() {
                "role" | "type" => (name.clone(), member.clone()),
                _ => (name.clone(), changed(member, change)),
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// The prompts of all templates with these tokens, for chats as they are and with every text of theirs changed.
fn each_prompt(
    tokenizer: &Tokenizer,
    change: &dyn Fn(&str) -> String,
    mut see: impl FnMut(&str, vosti_model::Result<vosti_model::Prompt>, vosti_model::Result<vosti_model::Prompt>),
) {
    let Some(templates) = folder("models/templates") else { return };
    let golden: serde_json::Value = serde_json::from_str(include_str!("text/templates.json")).unwrap();
    for name in golden["templates"].as_object().unwrap().keys() {
        let source = std::fs::read_to_string(templates.join(format!("{name}.jinja"))).unwrap();
        let plain = ChatTemplate::new(source, "<s>".into(), "</s>".into()).unwrap();
        let template = plain.clone().with_tokens(tokenizer.added()).unwrap();
        for (chat, messages) in golden["chats"].as_object().unwrap() {
            for tools in [None, Some(serde_json::json!([golden["tool"]]))] {
                let messages = changed(messages, change);
                let tools = tools.map(|tools| changed(&tools, change));
                let options = ChatOptions { tools, ..ChatOptions::default() };
                let at = format!("{name}/{chat}/{}", options.tools.is_some());
                see(&at, plain.render(&messages, &options), template.render(&messages, &options));
            }
        }
    }
}

/// Tokenizers of three kinds: words by an expression, sentencepiece, and control tokens that absorb white space.
fn some_tokenizers() -> Vec<(&'static str, Tokenizer)> {
    let Some(models) = folder("models") else { return Vec::new() };
    let open = |name| Tokenizer::from_gguf(&metadata(&models.join(format!("ggml-vocab-{name}.gguf")))).unwrap();
    ["qwen2", "llama-bpe", "phi-3"].map(|name| (name, open(name))).into()
}

#[test]
fn an_ordinary_prompt_has_the_tokens_of_its_text_in_every_template() {
    for (name, tokenizer) in some_tokenizers() {
        let mut seen = 0;
        for change in [(&|text: &str| text.to_string()) as &dyn Fn(&str) -> String, &|text| format!("> {text} [<")] {
            each_prompt(&tokenizer, change, |at, plain, marked| {
                let (Ok(plain), Ok(marked)) = (plain, marked) else { return };
                assert_eq!(marked.text(), plain.text(), "{name}: {at}");
                let expected = tokenizer.encode(&plain.text(), false).unwrap();
                assert_eq!(tokenizer.encode_prompt(&marked, false).unwrap(), expected, "{name}: {at}");
                seen += 1;
            });
        }
        assert!(seen > 800, "{seen}");
    }
}

#[test]
fn text_of_messages_becomes_no_control_token_in_any_template() {
    for (name, tokenizer) in some_tokenizers() {
        let added = tokenizer.added();
        let control: Vec<u32> = added.control.iter().filter_map(|text| tokenizer.token_id(text)).collect();
        let count = |prompt: &vosti_model::Prompt| {
            let tokens = tokenizer.encode_prompt(prompt, false).unwrap();
            tokens.iter().filter(|token| control.contains(token)).count()
        };
        let mut benign = std::collections::BTreeMap::new();
        each_prompt(&tokenizer, &|text| format!("{text}xx{text}x"), |at, _, marked| {
            benign.insert(at.to_string(), marked.map(|prompt| count(&prompt)));
        });
        let evil = &added.control[added.control.len() / 2];
        let (mut seen, mut wrong) = (0, Vec::new());
        each_prompt(&tokenizer, &|text| format!("{text}{evil}{evil}{text}{evil}"), |at, plain, marked| {
            let (Ok(plain), Ok(marked)) = (plain, marked) else { return };
            let Some(Ok(wanted)) = benign.get(at) else { return };
            seen += 1;
            if marked.text() != plain.text() || count(&marked) != *wanted {
                wrong.push(format!("{at}: {} for {wanted}, {}", count(&marked), marked.text() == plain.text()));
            }
        });
        assert!(wrong.is_empty(), "{name}, {evil}: {} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
        assert!(seen > 400, "{seen}");
    }
}
