//! Walks through grammars with a small vocabulary: the output satisfies the grammar, whatever the logits are.

mod thoughts;

use super::tools::{Choice, Function, Piece, Reader, Tools};
use super::*;

const STOP: Token = 256;

/// The tokens of marks.
const CALL: Token = 269;
const CLOSE: Token = 270;

/// Every byte, a stop token, a few longer tokens that cross the borders of JSON's parts, and those of marks.
fn words() -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    words[0xff].clear();
    words.push(Vec::new());
    let longer =
        ["{\"", "\": ", "\", \"", "\"}", "}}", "true", " the", "<tool", "_call>", "\n{\"name\": ", "12", "\u{e9}"];
    words.extend(longer.into_iter().chain(["<tool_call>", "</think>"]).map(|word| word.as_bytes().to_vec()));
    words
}

fn fresh() -> Grammars {
    Grammars::of_words(words(), vec![STOP]).expect("a vocabulary")
}

fn grammars() -> &'static Grammars {
    static GRAMMARS: std::sync::OnceLock<Grammars> = std::sync::OnceLock::new();
    GRAMMARS.get_or_init(fresh)
}

/// Pseudo-random logits: a function of (seed, step).
fn logits(seed: u64, step: usize) -> Vec<f32> {
    let of = |token: u64| {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (step as u64) << 32 ^ token;
        for _ in 0..3 {
            x ^= x >> 29;
            x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        }
        (x >> 40) as f32
    };
    (0..words().len() as u64).map(of).collect()
}

/// The most likely token after the mask, until the constraint is complete or says stop. Gives tokens and text.
fn walk(constraint: &mut dyn Constraint, seed: u64) -> (Vec<Token>, String) {
    let (words, mut tokens, mut bytes) = (words(), Vec::new(), Vec::new());
    for step in 0..2000 {
        let mut row = logits(seed, step);
        constraint.mask(&mut row);
        let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).expect("a vocabulary");
        assert!(row[best].is_finite(), "nothing is allowed after {:?}", String::from_utf8_lossy(&bytes));
        tokens.push(best as Token);
        bytes.extend_from_slice(&words[best]);
        if constraint.accept(best as Token) || best as Token == STOP {
            return (tokens, String::from_utf8(bytes).expect("UTF-8"));
        }
    }
    panic!("no end after {:?}", String::from_utf8_lossy(&bytes));
}

fn text(grammar: &Grammar, seed: u64) -> String {
    walk(&mut *grammars().compile(grammar).expect("a grammar")(), seed).1
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 8 },
            "age": { "type": "integer", "minimum": 0, "maximum": 150 },
            "kind": { "enum": ["cat", "dog"] },
            "tags": { "type": "array", "items": { "type": "boolean" }, "maxItems": 3 }
        },
        "required": ["name", "age", "kind", "tags"],
        "additionalProperties": false
    })
}

#[test]
fn whatever_the_logits_say_the_answer_fits_the_schema() {
    for seed in 0..20 {
        let text = text(&Grammar::JsonSchema(person()), seed);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(value["name"].as_str().expect("a string").chars().count() <= 8, "{text}");
        assert!(value["age"].as_u64().expect("a number") <= 150, "{text}");
        assert!(["cat", "dog"].contains(&value["kind"].as_str().expect("a string")), "{text}");
        assert!(value["tags"].as_array().expect("a list").len() <= 3, "{text}");
        assert_eq!(value.as_object().expect("an object").len(), 4, "{text}");
        assert!(!text.contains('\n') && !text.contains(":  "), "{text}");
    }
}

#[test]
fn a_json_object_is_one() {
    let grammar = Grammar::JsonObject;
    let mut constraint = grammars().compile(&grammar).expect("a grammar")();
    let mut row = vec![0.0; words().len()];
    constraint.mask(&mut row);
    let allowed: Vec<usize> = (0..row.len()).filter(|t| row[*t].is_finite()).collect();
    assert_eq!(allowed, [usize::from(b'{'), 257], "an object begins with a brace");
}

fn tools(choice: Choice, parallel: bool) -> Grammar {
    let function = |name: &str, parameters: Option<Value>| Function {
        name: name.into(),
        description: None,
        parameters,
        strict: false,
    };
    let functions = vec![function("get", Some(person())), function("now", None)];
    Grammar::Tools(Tools::new(functions, choice, parallel).expect("tools"))
}

/// Names and arguments.
fn calls(grammar: &Grammar, text: &str) -> Vec<(String, Value)> {
    let Grammar::Tools(tools) = grammar else { panic!("no tools") };
    let mut calls: Vec<(String, String)> = Vec::new();
    for piece in Reader::new(tools).expect("a row").push(text, None) {
        match piece {
            Piece::Call { name } => calls.push((name, String::new())),
            Piece::Arguments(json) => calls.last_mut().expect("a call has begun").1 += &json,
            Piece::Text(text) | Piece::Thought(text) => panic!("no call: {text}"),
        }
    }
    calls.into_iter().map(|(name, json)| (name, serde_json::from_str(&json).expect("JSON"))).collect()
}

/// `tools` as a chat template of each form would have them.
fn in_every_form(choice: &Choice, parallel: bool) -> Vec<Grammar> {
    let templates = [
        "",
        "<|python_tag|> \"parameters\": ",
        "[TOOL_CALLS] [",
        "[TOOL_CALLS][",
        "[TOOL_CALLS] [ARGS]",
        "<tool_call><function=",
        "<tool_call><arg_key></arg_key>\n<arg_value>",
        "<tool_call><arg_key></arg_key><arg_value>",
        MINIMAX,
        "<|tool_call|>",
        "<|tool|><|/tool|>",
        "<|tool_call_start|>",
        "<|tool_call>",
    ];
    let of = |template: &&str| match tools(choice.clone(), parallel) {
        Grammar::Tools(tools) => Grammar::Tools(tools.in_form(tools::format::Format::of_text(template))),
        grammar => grammar,
    };
    templates.iter().map(of).collect()
}

#[test]
fn a_required_tool_is_called_with_arguments_that_fit_in_every_form() {
    for grammar in in_every_form(&Choice::Required, false) {
        for seed in 0..6 {
            let text = text(&grammar, seed);
            let calls = calls(&grammar, &text);
            assert_eq!(calls.len(), 1, "{text}");
            let (name, arguments) = &calls[0];
            match name.as_str() {
                "get" => assert!(arguments["age"].as_u64().is_some_and(|age| age <= 150), "{text}"),
                name => assert_eq!((name, arguments), ("now", &json!({})), "{text}"),
            }
        }
    }
}

#[test]
fn several_calls_come_in_every_form_that_has_them() {
    for grammar in in_every_form(&Choice::Required, true) {
        let most = (0..20).map(|seed| calls(&grammar, &text(&grammar, seed)).len()).max();
        let one =
            matches!(&grammar, Grammar::Tools(tools) if serde_json::to_value(tools).unwrap()["format"] == "llama");
        assert_eq!(most > Some(1), !one, "{grammar:?}");
    }
}

/// A function whose arguments need each part of a schema, in the form that a template's text asks for.
fn in_form_of(template: &str, strict: bool, parameters: Value) -> Grammar {
    let function = Function { name: "get".into(), description: None, parameters: Some(parameters), strict };
    let tools = Tools::new(vec![function], Choice::Required, false).expect("tools");
    Grammar::Tools(tools.in_form(tools::format::Format::of_text(template)))
}

const PYTHON: &str = "<|tool_call_start|>";
const GEMMA: &str = "<|tool_call>";
const QWEN: &str = "<tool_call><function=";
const GLM: &str = "<tool_call><arg_key></arg_key><arg_value>";
const MINIMAX: &str = "<minimax:tool_call>";

#[test]
fn arguments_that_are_no_json_fit_their_schema_whatever_the_logits_say() {
    let tree = json!({ "type": "object", "$defs": { "Node": { "type": "object", "properties": {
        "left": { "anyOf": [{ "$ref": "#/$defs/Node" }, { "type": "null" }] }, "of": { "enum": ["a", 7, null] } },
        "required": ["left", "of"], "additionalProperties": false } },
        "properties": { "node": { "$ref": "#/$defs/Node" }, "words": { "type": "array", "items": { "type": "string", "maxLength": 3 },
        "minItems": 1, "maxItems": 2 }, "late": { "type": "boolean" }, "day": { "type": "string", "format": "date" } },
        "required": ["words", "late"] });
    for template in [PYTHON, GEMMA, QWEN, GLM, MINIMAX] {
        let grammar = in_form_of(template, true, tree.clone());
        for seed in 0..12 {
            let text = text(&grammar, seed);
            let calls = calls(&grammar, &text);
            let [(name, arguments)] = &calls[..] else { panic!("one call: {text}") };
            let words = arguments["words"].as_array().expect("a list");
            assert!(name == "get" && arguments["late"].is_boolean() && matches!(words.len(), 1..=2), "{text}");
            assert!(words.iter().all(|word| word.as_str().is_some_and(|word| word.chars().count() <= 3)), "{text}");
            assert!(
                arguments.get("node").is_none_or(|node| node.get("left").is_some() && node.get("of").is_some()),
                "{text}"
            );
            let date = |day: &Value| day.as_str().is_some_and(|day| day.len() == 10 && day.as_bytes()[4] == b'-');
            assert!(arguments.get("day").is_none_or(date), "{text}");
        }
    }
}

#[test]
fn calls_come_as_the_makers_of_lfm2_gemma_4_and_minimax_m2_write_them() {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" }, "days": { "type": "integer" },
        "near": { "type": "boolean" } }, "required": ["city"] });
    let of = |template| in_form_of(template, false, schema.clone());
    let (lfm, gemma, minimax) = (of(PYTHON), of(GEMMA), of(MINIMAX));
    for (grammar, text, arguments) in [
        (
            &lfm,
            "<|tool_call_start|>[get(city=\"Ro\\\"me, (IT)\", days=3)]<|tool_call_end|>",
            json!({ "city": "Ro\"me, (IT)", "days": 3 }),
        ),
        (
            &lfm,
            "<|tool_call_start|>[get(city=\"Rome\", near=True)]<|tool_call_end|>",
            json!({ "city": "Rome", "near": true }),
        ),
        (
            &gemma,
            "<|tool_call>call:get{city:<|\"|>Ro\"me, {IT}<|\"|>,days:3}<tool_call|>",
            json!({ "city": "Ro\"me, {IT}", "days": 3 }),
        ),
        (
            &gemma,
            "<|tool_call>call:get{city:<|\"|>Rome<|\"|>,near:true}<tool_call|>",
            json!({ "city": "Rome", "near": true }),
        ),
        (
            &minimax,
            "<minimax:tool_call>\n<invoke name=\"get\">\n<parameter name=\"city\">Ro\"me</invoke>\n</parameter>\n\
             <parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>",
            json!({ "city": "Ro\"me</invoke>\n", "days": 3 }),
        ),
    ] {
        assert!(allows(grammar, text), "{text}");
        assert_eq!(calls(grammar, text), [("get".to_string(), arguments)]);
    }
    for (grammar, text) in [
        (&lfm, "<|tool_call_start|>[get(days=3)]<|tool_call_end|>"),
        (&lfm, "<|tool_call_start|>[get(city=3)]<|tool_call_end|>"),
        (&lfm, "<|tool_call_start|>[put(city=\"Rome\")]<|tool_call_end|>"),
        (&gemma, "<|tool_call>call:get{days:3}<tool_call|>"),
        (&gemma, "<|tool_call>call:get{city:\"Rome\"}<tool_call|>"),
        (&minimax, "<minimax:tool_call>\n<invoke name=\"get\">\n</invoke>\n</minimax:tool_call>"),
        (
            &minimax,
            "<minimax:tool_call>\n<invoke name=\"put\">\n<parameter name=\"city\">a</parameter>\n</invoke>\n</minimax:tool_call>",
        ),
    ] {
        assert!(!allows(grammar, text), "{text}");
    }
}

/// In tags, and between Gemma's quotes, a text stands without JSON's: its pattern and format count all the same.
#[test]
fn patterns_and_formats_hold_where_texts_stand_as_they_are() {
    let schema = |what: &str, of: &str| {
        json!({ "type": "object", "properties": { "x": { "type": "string", what: of } }, "required": ["x"],
            "additionalProperties": false })
    };
    let call = |template: &str, text: &str| match template {
        QWEN => format!("<tool_call>\n<function=get>\n<parameter=x>\n{text}\n</parameter>\n</function>\n</tool_call>"),
        MINIMAX => {
            format!(
                "{MINIMAX}\n<invoke name=\"get\">\n<parameter name=\"x\">{text}</parameter>\n</invoke>\n</minimax:tool_call>"
            )
        }
        GLM => format!("<tool_call>get<arg_key>x</arg_key><arg_value>{text}</arg_value></tool_call>"),
        _ => format!("<|tool_call>call:get{{x:<|\"|>{text}<|\"|>}}<tool_call|>"),
    };
    for template in [QWEN, GLM, MINIMAX, GEMMA] {
        for strict in [true, false] {
            for (what, of, good, bad) in [
                ("pattern", "^[a-c]{2}/[0-9]+$", "ab/12", "abc/12"),
                ("pattern", "b+", "abba", "cac"),
                ("format", "date", "2026-11-28", "2026-13-01"),
                ("format", "uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ] {
                let grammar = in_form_of(template, strict, schema(what, of));
                assert!(allows(&grammar, &call(template, good)), "{template} {of}: {good}");
                assert!(!allows(&grammar, &call(template, bad)), "{template} {of}: {bad}");
            }
        }
        let odd = |strict| in_form_of(template, strict, schema("pattern", "^a|b$"));
        let refused = grammars().compile(&odd(true)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("^a|b$"), "{refused}");
        assert!(grammars().compile(&odd(false)).is_ok());
    }
}

#[test]
fn a_named_tool_and_no_other_is_called() {
    for seed in 0..12 {
        let text = text(&tools(Choice::Named("now".into()), true), seed);
        assert_eq!(text, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
    }
}

/// Whether these bytes, one token each, go through the grammar and may end there.
fn allows(grammar: &Grammar, text: &str) -> bool {
    allows_tokens(grammar, &spelled(text))
}

fn spelled(text: &str) -> Vec<Token> {
    text.bytes().map(Token::from).collect()
}

fn allows_tokens(grammar: &Grammar, tokens: &[Token]) -> bool {
    let mut constraint = grammars().compile(grammar).expect("a grammar")();
    let mut complete = false;
    for token in tokens {
        let mut row = vec![0.0; words().len()];
        constraint.mask(&mut row);
        if complete || !row[*token as usize].is_finite() {
            return false;
        }
        complete = constraint.accept(*token);
    }
    let mut row = vec![0.0; words().len()];
    constraint.mask(&mut row);
    complete || row[STOP as usize].is_finite()
}

#[test]
fn under_auto_any_text_may_come_and_a_call_must_be_well_formed() {
    let grammar = tools(Choice::Auto, true);
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    for good in ["Hello.", "a <tool> {", "", call, &format!("One moment. {call}"), &format!("{call}\n{call}")] {
        assert!(allows(&grammar, good), "{good:?}");
    }
    for bad in ["<tool_call>", "<tool_call>\n{\"name\": \"else\"", &format!("{call} and more"), &format!("x{call}y")] {
        assert!(!allows(&grammar, bad), "{bad:?}");
    }
    assert!(!allows(&tools(Choice::Auto, false), &format!("{call}\n{call}")));
}

/// Text that the grammar of an answer without calls allows, and text that it does not.
fn held_texts() -> [(Grammar, [&'static str; 2], [&'static str; 3]); 4] {
    let number = json!({ "type": "object", "properties": { "n": { "enum": [1, 2] } }, "required": ["n"],
        "additionalProperties": false });
    [
        (Grammar::JsonSchema(number), ["{\"n\": 1}", "{\"n\": 2}"], ["{\"n\": 3}", "Hi.", ""]),
        (Grammar::JsonObject, ["{}", "{\"a\": \"<tool_call>[TOOL_CALLS]\"}"], ["[]", "Hi. {}", ""]),
        (Grammar::Regex("[a-c<\\[{]{1,3}".into()), ["ab", "<{"], ["x", "abca", ""]),
        (Grammar::Choice(vec!["yes".into(), "{\"no\"".into()]), ["yes", "{\"no\""], ["yes.", "no", ""]),
    ]
}

#[test]
fn beside_tools_text_is_held_and_calls_are_allowed_in_every_form() {
    for choice in [Choice::Auto, Choice::Required] {
        for grammar in in_every_form(&choice, true) {
            let Grammar::Tools(tools) = &grammar else { panic!("no tools") };
            let call = (0..9).map(|seed| text(&in_required_form(tools), seed)).next().expect("a call");
            for (held, good, bad) in held_texts() {
                let open = matches!(held, Grammar::JsonObject);
                let both = Grammar::Tools(tools.clone().or(held.clone()));
                if choice == Choice::Auto && open && call.starts_with('{') {
                    let error = grammars().compile(&both).err().expect("refused").to_string();
                    assert!(error.contains("set tool_choice"), "{error}");
                    continue;
                }
                for both in [both.clone(), both.clone().after(Some(Thinking::May), None)] {
                    assert!(allows(&both, &call), "{both:?}: {call}");
                    let free = choice == Choice::Auto;
                    assert!(good.iter().all(|text| allows(&both, text) == free), "{both:?}");
                    assert!(!bad.iter().any(|text| allows(&both, text)), "{both:?}");
                    assert!(!allows(&both, &format!("Hm. {call}")), "text before a call is an answer that is not held");
                }
            }
        }
    }
    let begins = tools(Choice::Auto, true);
    let Grammar::Tools(begins) = begins else { panic!("no tools") };
    let both = begins.or(Grammar::Choice(vec!["<tool_call> me".into()]));
    assert!(grammars().compile(&Grammar::Tools(both)).is_err(), "no text may begin as a call does");
}

/// The same functions in the same form, of which one must be called.
fn in_required_form(tools: &Tools) -> Grammar {
    let mut written = serde_json::to_value(tools).expect("JSON");
    written["choice"] = json!("required");
    Grammar::Tools(serde_json::from_value(written).expect("tools"))
}

#[test]
fn whatever_the_logits_say_an_answer_beside_tools_is_held_text_or_calls() {
    let held = json!({ "type": "object", "properties": { "of": person() }, "required": ["of"], "additionalProperties": false });
    for grammar in in_every_form(&Choice::Auto, true) {
        let Grammar::Tools(tools) = grammar else { panic!("no tools") };
        let both = tools.or(Grammar::JsonSchema(held.clone()));
        let make = grammars().compile(&Grammar::Tools(both.clone())).expect("a grammar");
        let mut seen = [0, 0];
        for seed in 0..40 {
            let answer = walk(&mut *make(), seed).1;
            let mut reader = Reader::new(&both).expect("a row");
            let mut pieces = reader.push(&answer, None);
            pieces.extend(reader.finish());
            match &pieces[..] {
                [Piece::Text(text)] => {
                    assert_eq!(text, &answer);
                    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
                    assert!(value["of"]["age"].as_u64().expect("a number") <= 150, "{text}");
                }
                pieces => {
                    assert!(reader.called(), "{answer}");
                    assert!(!pieces.iter().any(|piece| matches!(piece, Piece::Text(_))), "{answer}");
                    calls(&Grammar::Tools(both.clone()), &answer);
                }
            }
            seen[usize::from(reader.called())] += 1;
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }
}

#[test]
fn beside_calls_in_json_a_schema_whose_answers_may_begin_as_a_call_does_is_refused() {
    let Some(Grammar::Tools(tools)) = in_every_form(&Choice::Auto, true)
        .into_iter()
        .find(|grammar| serde_json::to_value(grammar).is_ok_and(|grammar| grammar["tools"]["format"] == "llama"))
    else {
        panic!("no form of Llama's")
    };
    let compile = |grammar| grammars().compile(&Grammar::Tools(tools.clone().or(grammar))).err().map(|e| e.to_string());
    let object = |properties: Value, more: Value| {
        let mut schema = json!({ "type": "object", "properties": properties });
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Grammar::JsonSchema(schema)
    };
    let text = json!({ "type": "string" });
    for (schema, fits) in [
        (object(json!({ "name": text, "age": { "type": "integer" } }), json!({ "additionalProperties": false })), true),
        (object(json!({ "answer": text }), json!({ "required": ["answer"] })), true),
        (object(json!({ "answer": text }), json!({})), false),
        (object(json!({ "name": text, "parameters": {} }), json!({})), false),
        (object(json!({ "name": { "enum": ["git"] }, "parameters": {} }), json!({ "required": ["name"] })), true),
        (Grammar::Lark("start: \"{x}\"".into()), false),
    ] {
        let why = compile(schema.clone());
        assert_eq!(why.is_none(), fits, "{schema:?}: {why:?}");
        assert!(why.is_none_or(|why| why.contains("set tool_choice")));
    }
}

#[test]
fn a_schema_that_no_grammar_can_be_made_of_is_refused_with_the_reason() {
    let compile = |schema| grammars().compile(&Grammar::JsonSchema(schema)).err().map(|e| e.to_string());
    let refused = compile(json!({ "type": "object", "if": {} })).expect("refused");
    assert!(refused.starts_with("cannot be turned into a grammar: ") && refused.contains("\"if\""), "{refused}");
    assert!(compile(json!({ "type": "no such type" })).is_some());
    assert!(compile(json!("text")).is_some());
    assert!(compile(json!({ "$ref": "#/$defs/missing" })).is_some());
    assert!(compile(json!({ "type": "string", "pattern": "(" })).is_some());
    let long = json!({ "enum": ["x".repeat(BYTES_MAX)] });
    assert!(compile(long).expect("refused").contains("smaller"));
}

/// As deep as a JSON parser lets anything be.
#[test]
fn a_deep_schema_ends_in_an_answer_or_an_error() {
    let mut schema = json!({ "type": "string" });
    for _ in 0..60 {
        schema = json!({ "type": "object", "properties": { "a": schema } });
    }
    let _ = grammars().compile(&Grammar::JsonSchema(schema));
}

#[test]
fn a_choice_is_the_same_whatever_other_choices_did_before() {
    let grammars = fresh();
    let make = grammars.compile(&Grammar::JsonSchema(person())).expect("a grammar");
    let alone = walk(&mut *make(), 7);
    let others: Vec<_> = (0..10).map(|seed| walk(&mut *make(), seed)).collect();
    assert_eq!(walk(&mut *make(), 7), alone);
    assert_eq!(others[7], alone);
    let again = grammars.compile(&Grammar::JsonSchema(person())).expect("a grammar");
    assert_eq!(walk(&mut *again(), 7), alone);
}

#[test]
fn the_cache_is_bounded_and_keeps_what_is_used() {
    let grammars = fresh();
    let numbered = |n: usize| Grammar::JsonSchema(json!({ "const": n }));
    for n in 0..3 * CACHED_MAX {
        grammars.compile(&numbered(n)).expect("a grammar");
        grammars.compile(&numbered(0)).expect("a grammar");
        assert!(grammars.cache.lock().expect("a lock").len() <= CACHED_MAX);
    }
    let key = blake3::hash(numbered(0).write().expect("a grammar").as_bytes());
    assert!(cached(&grammars.cache, &key).is_some());
}

#[test]
fn a_regular_expression_a_choice_and_a_grammar_are_kept_to() {
    let regex = Grammar::Regex("[a-c]{2}/\\d+\\/x".into());
    let choice = Grammar::Choice(vec!["yes\n".into(), "\"no\"".into()]);
    let lark = Grammar::Lark("start: \"a\" b+\nb: /[xy]/ \".\"".into());
    for (grammar, good, bad) in [
        (&regex, &["ab/1/x", "cc/007/x"][..], &["ab/1", "ab1/x", "dd/1/x", ""][..]),
        (&choice, &["yes\n", "\"no\""], &["yes", "no", ""]),
        (&lark, &["ax.", "ax.y."], &["a", "ax", "b"]),
    ] {
        assert!(good.iter().all(|text| allows(grammar, text)), "{grammar:?}");
        assert!(!bad.iter().any(|text| allows(grammar, text)), "{grammar:?}");
        assert!(good.iter().all(|text| allows(&grammar.clone().after(Some(Thinking::May), None), text)), "{grammar:?}");
        for (thinking, before) in [(Thinking::May, "<think>hm</think>\n\n"), (Thinking::Begun, "\nh<m </think>")] {
            let thoughtful = grammar.clone().after(Some(thinking), None);
            assert!(good.iter().all(|text| allows(&thoughtful, &format!("{before}{text}"))), "{thoughtful:?}");
            assert!(!bad.iter().any(|text| allows(&thoughtful, &format!("{before}{text}"))), "{thoughtful:?}");
        }
    }
    for wrong in [Grammar::Regex("(".into()), Grammar::Choice(vec![]), Grammar::Lark("start: nothing".into())] {
        let error = grammars().compile(&wrong).err().expect("refused").to_string();
        assert!(error.starts_with("cannot be turned into a grammar: "), "{error}");
    }
}

/// llguidance recurses along each of these, and ends the process where the stack does.
#[test]
fn a_long_chain_of_references_or_rules_is_compiled() {
    let lark = |first: &str, step: &dyn Fn(usize) -> String| {
        let steps: Vec<String> = (0..5000).map(step).collect();
        Grammar::Lark(format!("start: {first}0\n{}{first}5000: \"a\"\n", steps.concat()))
    };
    let schema = |count: usize, step: &dyn Fn(&str) -> Value| {
        let named = |i: usize| (format!("d{i}"), step(&format!("#/$defs/d{}", i + 1)));
        let mut definitions: serde_json::Map<_, _> = (0..count).map(named).collect();
        definitions.insert(format!("d{count}"), json!({ "enum": ["a"] }));
        Grammar::JsonSchema(json!({ "$ref": "#/$defs/d0", "$defs": definitions }))
    };
    let object = |next: &str| json!({ "properties": { "x": { "$ref": next } }, "required": ["x"] });
    for grammar in [
        lark("r", &|i| format!("r{i}: \"x\" r{}\n", i + 1)),
        lark("T", &|i| format!("T{i}: \"x\" T{}\n", i + 1)),
        schema(3000, &|next| json!({ "$ref": next })),
        schema(1200, &object),
    ] {
        // The mask is made, and the guide goes on, on the stack of this thread.
        let mut guide = grammars().compile(&grammar).unwrap()();
        for step in 0..100 {
            let mut row = logits(1, step);
            guide.mask(&mut row);
            let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).expect("a vocabulary");
            assert!(row[best].is_finite());
            if guide.accept(best as Token) {
                break;
            }
        }
    }
}
