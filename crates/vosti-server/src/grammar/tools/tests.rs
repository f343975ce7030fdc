//! Names are checked, conversations fitted to templates, calls read back wherever an answer is cut.

use super::*;
use proptest::prelude::*;
use std::path::Path;
use vosti_model::ChatTemplate;
use vosti_model::prompt::Marks;

fn function(name: &str) -> Function {
    Function { name: name.into(), description: None, parameters: None, strict: false }
}

#[test]
fn tools_that_make_no_sense_are_refused_by_name() {
    let new = |functions, choice| Tools::new(functions, choice, true);
    assert_eq!(new(vec![], Choice::Auto), Err(ToolsError::None));
    assert_eq!(new(vec![function("a"); 129], Choice::Auto), Err(ToolsError::TooMany(129)));
    assert_eq!(new(vec![function("a b")], Choice::Auto), Err(ToolsError::Name { index: 0, name: "a b".into() }));
    let twice = new(vec![function("a"), function("a")], Choice::Auto);
    assert_eq!(twice, Err(ToolsError::Twice { index: 1, name: "a".into() }));
    assert_eq!(new(vec![function("a")], Choice::Named("b".into())), Err(ToolsError::Unknown("b".into())));
    let odd = Function { parameters: Some(Value::from("x")), ..function("a") };
    assert_eq!(new(vec![odd], Choice::Auto), Err(ToolsError::Parameters { index: 0 }));
}

/// What an answer holds.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    text: String,
    calls: Vec<(String, String)>,
}

/// Reads parts of an answer, and puts together what comes out, as a client does.
fn told<'a>(tools: &Tools, parts: impl IntoIterator<Item = &'a str>) -> (Told, bool) {
    let (mut reader, mut told) = (Reader::new(tools).expect("a row"), Told::default());
    let mut pieces: Vec<Piece> = parts.into_iter().flat_map(|part| reader.push(part, None)).collect();
    pieces.extend(reader.finish());
    for piece in pieces {
        match piece {
            Piece::Thought(_) => panic!("a thought"),
            Piece::Text(text) => told.text += &text,
            Piece::Call { name } => told.calls.push((name, String::new())),
            Piece::Arguments(json) => told.calls.last_mut().expect("a call has begun").1 += &json,
        }
    }
    (told, reader.called())
}

/// The text of an answer in a form; without a mark if it calls nothing.
fn written_as(literals: &format::Literals, whole: &Told) -> String {
    let mut answer = whole.text.clone();
    for (index, (name, arguments)) in whole.calls.iter().enumerate() {
        let begin = format!("{}{}", literals.mark, literals.head);
        answer += if index == 0 { &begin } else { literals.next.expect("one call only") };
        answer += &format!("{name}{}{arguments}", literals.middle);
    }
    answer + if whole.calls.is_empty() { "" } else { literals.tail }
}

/// How a template with the form of these tools has tools, if it is as most.
fn form(format: Format) -> Option<Form> {
    Some(Form::from(format))
}

/// JSON with what could be taken for the form's own text.
fn arguments() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        ".{0,6}",
        Just("</tool_call>".to_string()),
        Just("}\n</tool_call>\n<tool_call>\n{\"name\": \"".to_string()),
        Just("[TOOL_CALLS][ARGS]}]".to_string()),
        Just("\\\"}]{[\\".to_string()),
    ];
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    let value = leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(".{0,3}", inner, 0..3).prop_map(|members| json!(members)),
        ]
    });
    prop::collection::btree_map("[a-z\"]{1,3}", value, 0..3).prop_map(|members| json!(members).to_string())
}

const FORMATS: [Format; 7] = [
    Format::Hermes,
    Format::Llama,
    Format::MistralSpaced,
    Format::MistralList,
    Format::MistralArgs,
    Format::Granite,
    Format::Phi,
];

fn answers() -> impl Strategy<Value = (Format, bool, Told)> {
    let text = prop_oneof![Just(String::new()), "[a-zé <\\n\\[{\"]{0,12}", "(<tool_cal|\\[TOOL_|\\{\"name| \n){0,2}"];
    let call = ("[a-z_-]{1,8}", arguments());
    let calls = prop::collection::vec(call, 0..4);
    (prop::sample::select(FORMATS.to_vec()), any::<bool>(), text, calls).prop_map(|(format, auto, text, calls)| {
        let literals = format.literals().expect("a row");
        let (mut text, mut calls) = (text.replace(literals.mark, ""), calls);
        if !auto || (!literals.anywhere && !calls.is_empty()) {
            text.clear();
        }
        calls.truncate(if literals.next.is_some() { 4 } else { 1 });
        if !auto && calls.is_empty() {
            calls.push(("f".into(), "{}".into()));
        }
        // Text that ends as a mark begins would read otherwise with the mark behind it.
        if !calls.is_empty() {
            text.push_str(if text.is_empty() { "" } else { "." });
        }
        (format, auto, Told { text, calls })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Every form, every cut of the answer's end, and every way of cutting what comes into parts.
    #[test]
    fn a_cut_answer_is_a_beginning_of_the_whole_one_and_nothing_comes_twice(
        (format, auto, mut whole) in answers(), held in any::<bool>(), part in 1usize..9,
    ) {
        let choice = if auto { Choice::Auto } else { Choice::Required };
        let mut names: Vec<&str> = whole.calls.iter().map(|(name, _)| name.as_str()).chain(["f"]).collect();
        names.sort_unstable();
        names.dedup();
        let functions = names.into_iter().map(function).collect();
        let tools = Tools { format, ..Tools::new(functions, choice, true).expect("tools") };
        let literals = format.literals().expect("a row");
        // Where text is held, no call follows it, and it may hold the mark.
        let tools = if held { tools.or(Grammar::JsonObject) } else { tools };
        if held && auto && !whole.calls.is_empty() {
            whole.text.clear();
        } else if held && auto && literals.anywhere {
            whole.text = format!("{{ {}{}", whole.text, literals.mark);
        } else if held && auto {
            whole.text = format!("{}{}", literals.mark, whole.text);
        }
        // Where calls and text are both JSON, only a call's whole opening is no text.
        let mark = match (&tools.openings()[..], whole.calls.first()) {
            ([], _) | (_, None) => literals.mark.to_string(),
            (_, Some((name, _))) => format!("{}{name}{}", literals.mark, literals.middle),
        };
        let answer = written_as(literals, &whole);
        let letters: Vec<char> = answer.chars().collect();
        for cut in 0..=letters.len() {
            let given: String = letters[..cut].iter().collect();
            let parts: Vec<String> = letters[..cut].chunks(part).map(|part| part.iter().collect()).collect();
            let (read, called) = told(&tools, [given.as_str()]);
            prop_assert_eq!(&told(&tools, parts.iter().map(String::as_str)).0, &read, "in parts of {}", part);
            // Text: of the answer's own text, then at most the beginning of a mark.
            let rest = read.text.strip_prefix(&whole.text).unwrap_or("");
            let own = whole.text.starts_with(&read.text);
            prop_assert!(own || (auto && rest.len() < mark.len() && mark.starts_with(rest)), "{:?}", read);
            prop_assert!(auto || read.text.is_empty(), "{:?}", read);
            prop_assert!(rest.is_empty() || read.calls.is_empty(), "{:?}", read);
            // Calls: all but the last are the whole answer's, and the last is a beginning of it.
            prop_assert!(read.calls.len() <= whole.calls.len());
            for (index, ((name, json), (want, all))) in read.calls.iter().zip(&whole.calls).enumerate() {
                let last = index + 1 == read.calls.len();
                let fits = if last { all.starts_with(json.as_str()) } else { all == json };
                prop_assert!(name == want && fits, "{:?}", read);
            }
            let complete = !read.calls.is_empty() && read.calls[..] == whole.calls[..read.calls.len()];
            prop_assert!(!called || complete, "{:?}", read);
        }
        let (read, called) = told(&tools, [answer.as_str()]);
        prop_assert_eq!(called, !whole.calls.is_empty());
        prop_assert_eq!(read, whole);
    }
}

#[test]
fn a_call_cut_in_its_closing_tag_is_a_call_and_not_text() {
    let tools = Tools::new(vec![function("get")], Choice::Auto, true).expect("tools");
    let one = "I look.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"tag\": \"</tool_call>\"}}\n</tool";
    let call = ("get".to_string(), "{\"tag\": \"</tool_call>\"}".to_string());
    assert_eq!(told(&tools, [one]), (Told { text: "I look.".into(), calls: vec![call.clone()] }, true));
    let two = format!("{one}_call>\n<tool_call>\n{{\"name\": \"get\", \"argum");
    assert_eq!(told(&tools, [two.as_str()]), (Told { text: "I look.".into(), calls: vec![call] }, false));
}

#[test]
fn text_without_a_call_comes_whole() {
    let tools = Tools::new(vec![function("get")], Choice::Auto, true).expect("tools");
    for text in ["a < b <tool", "é \n\n", "x</tool_call>"] {
        assert_eq!(told(&tools, [text]).0, Told { text: text.into(), calls: vec![] }, "{text:?}");
    }
}

#[test]
fn a_template_without_tools_is_told_of_them_in_the_system_message() {
    let tools = Tools::new(vec![function("get")], Choice::Auto, true).expect("valid");
    let user = json!({ "role": "user", "content": "hi" });
    let system = json!({ "role": "system", "content": "Be brief." });
    let fitted = rendering(&[system, user.clone()], Some(&tools), None, |_| Marks::default());
    assert_eq!(fitted.tools, None);
    let text = fitted.messages[0]["content"].as_str().expect("text");
    assert!(text.starts_with("Be brief.") && text.contains("\"name\":\"get\""), "{text}");
    let fitted = rendering(&[user], Some(&tools), None, |_| Marks::default());
    assert_eq!(fitted.messages[0]["role"], "system");
    assert_eq!(fitted.messages[1]["role"], "user");
}

#[test]
fn earlier_calls_and_results_reach_any_template() {
    let call = json!({ "id": "1", "type": "function", "function": { "name": "get", "arguments": "{\"a\": 1}" } });
    let messages = [
        json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
        json!({ "role": "tool", "tool_call_id": "1", "content": "42" }),
    ];
    let plain = rendering(&messages, None, None, |_| Marks::default()).messages;
    assert_eq!(plain[0]["content"], "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>");
    assert_eq!(plain[1]["content"], "<tool_response>\n42\n</tool_response>");
    let knows = rendering(&messages, None, form(Format::Hermes), |_| Marks::default()).messages;
    assert_eq!(knows[0]["tool_calls"][0]["function"]["arguments"], json!({ "a": 1 }));
    assert_eq!(knows[1], messages[1]);
}

#[test]
fn a_template_says_how_its_model_calls() {
    for (template, format) in [
        ("'<tool_call>\\n{\"name\": \"'", Some(Format::Hermes)),
        (
            "{{- '{\"name\": \"' + tool_call.name + '\", ' }}{{- '\"parameters\": ' }} {{- \"<|python_tag|>\" }}",
            Some(Format::Llama),
        ),
        ("{{- \"[TOOL_CALLS] [\" }}", Some(Format::MistralSpaced)),
        ("{{- \"[TOOL_CALLS][\" }}", Some(Format::MistralList)),
        ("{{- '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}", Some(Format::MistralArgs)),
        ("'<tool_call>\\n<function=' + name", Some(Format::QwenTags)),
        ("<tool_call>{{ name }}\n<arg_key>{{ k }}</arg_key>\n<arg_value>", Some(Format::GlmLines)),
        ("<tool_call>{{ name }}<arg_key>{{ k }}</arg_key><arg_value>", Some(Format::GlmTags)),
        ("{%- set begin = '<minimax:tool_call>' -%}", Some(Format::MinimaxTags)),
        ("respond only with <|tool_call|> followed by a JSON list", Some(Format::Granite)),
        (PHI_4_MINI, Some(Format::Phi)),
        ("{{- \"<|tool_call_start|>[\" + name }}", Some(Format::Python)),
        ("{{- '<|tool_call>call:' + name }}", Some(Format::Gemma)),
        ("{{ messages }}", None),
    ] {
        assert_eq!(Format::of_text(template), format, "{template}");
    }
}

/// Of `microsoft/Phi-4-mini-instruct`: functions stand in the system message, and calls in no message.
const PHI_4_MINI: &str = "{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and \
     message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + \
     '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}\
     {% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}";

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source.into(), String::new(), String::new()).expect("a template")
}

/// A conversation with a function, a call and its result, as a template has it.
fn conversation(template: &ChatTemplate) -> String {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let description = Some("The weather of a city".to_string());
    let get = Function { parameters: Some(parameters), description, ..function("get_weather") };
    let call = json!({ "name": "get_weather", "arguments": "{\"city\": \"Rome\", \"near\": true}" });
    let messages = [
        json!({ "role": "user", "content": "Rome?" }),
        json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "123456789", "type": "function", "function": call }] }),
        json!({ "role": "tool", "tool_call_id": "123456789", "content": "sunny" }),
    ];
    let tools = Tools::new(vec![get], Choice::Auto, true).expect("tools");
    let fitted = rendering(&messages, Some(&tools), Form::of(template), |_| Marks::default());
    let render = |fitted: Rendering| {
        let options = vosti_model::ChatOptions { tools: fitted.tools, ..Default::default() };
        template.render(&fitted.messages, &options).map(|prompt| prompt.text().into_owned())
    };
    let text = render(fitted.clone()).or_else(|_| render(joined(fitted)));
    text.unwrap_or_else(|error| format!("refused: {error}"))
}

#[test]
fn phi_4_minis_template_gets_functions_in_the_system_message_and_calls_as_text() {
    let phi = template(PHI_4_MINI);
    assert_eq!(Form::of(&phi), Some(Form { format: Format::Phi, writes_calls: false, in_system: true }));
    let text = conversation(&phi);
    let begin = "<|system|>You are a helpful assistant with some tools.<|tool|>[{\"";
    assert!(text.starts_with(begin), "{text}");
    let call = "<|assistant|><|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"near\": true}}]\
        <|/tool_call|><|end|>";
    assert!(text.contains(call), "{text}");
}

/// Whatever a template does with tools, the model learns of the function, of the call and of its result.
#[test]
fn every_published_template_shows_functions_calls_and_results() {
    let Some(folder) = vosti_test_tools::llama_cpp("models/templates") else { return };
    let (mut seen, mut hidden) = (0, Vec::new());
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    // Firefunction's template takes its functions and the time under names of its own, and fails without them.
    let takes = |path: &Path| path.extension().is_some_and(|kind| kind == "jinja") && !path.ends_with(FIREFUNCTION);
    for path in files.filter(|path| takes(path)) {
        let source = std::fs::read_to_string(&path).expect("a template");
        let Ok(template) = ChatTemplate::new(source, String::new(), String::new()) else { continue };
        let text = conversation(&template);
        let mut missing: Vec<&str> =
            ["city", "Rome?", "sunny"].into_iter().filter(|word| !text.contains(word)).collect();
        if text.matches("get_weather").count() < 2 {
            missing.push("get_weather");
        }
        seen += 1;
        if !missing.is_empty() {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let why = if text.starts_with("refused") { text } else { missing.join(", ") };
            hidden.push(format!("{name}: {why}"));
        }
    }
    hidden.sort();
    assert!(hidden.is_empty(), "{hidden:?}");
    assert!(seen > 50, "{seen} templates");
}

const FIREFUNCTION: &str = "fireworks-ai-llama-3-firefunction-v2.jinja";

/// As Llama 3.2's template: its text names no token of calls.
#[test]
fn the_form_of_calls_is_the_one_that_a_template_writes() {
    let of = |source: &str| Form::of(&template(source)).map(|form| form.format);
    let writes = |call: &str| {
        format!(
            "{{{{ tools|tojson }}}}{{% for m in messages %}}{{{{ m.content }}}}{{% for c in m.tool_calls or [] %}}{call}{{% endfor %}}{{% endfor %}}"
        )
    };
    let llama = "{{ '{\"name\": \"' + c.function.name + '\", ' }}{{ '\"parameters\": ' }}{{ c.function.arguments|tojson }}{{ '}' }}";
    assert_eq!(of(&writes(llama)), Some(Format::Llama));
    let args = "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments|tojson }}";
    assert_eq!(of(&writes(args)), Some(Format::MistralArgs));
    // What it writes counts, and not what its text speaks of.
    assert_eq!(of(&format!("{{# <tool_call> #}}{}", writes(llama))), Some(Format::Llama));
    assert_eq!(of("{{ messages[0].content }}"), None);
}

/// A function with an argument of each kind.
fn tagged(format: Format) -> Tools {
    let parameters = json!({ "type": "object", "$defs": { "Day": { "enum": ["mon", "tue"] } }, "properties": {
        "city": { "type": "string" }, "days": { "type": "integer" }, "at": { "type": ["string", "null"] }, "day": { "$ref": "#/$defs/Day" },
        "parts": { "type": "array", "items": { "type": "string" } }, "id": { "anyOf": [{ "type": "string" }, { "type": "integer" }] } } });
    let functions = vec![Function { parameters: Some(parameters), ..function("get") }, function("now")];
    Tools { format, ..Tools::new(functions, Choice::Auto, true).expect("tools") }
}

#[test]
fn arguments_in_tags_are_read_as_json_wherever_the_answer_is_cut() {
    let given = [
        ("city", "Sa\"o\nPaulo </par <", json!("Sa\"o\nPaulo </par <")),
        ("days", "-3", json!(-3)),
        ("at", "null", json!(null)),
        ("day", "mon", json!("mon")),
        ("parts", "[\"a</arg_value>\", \"b\"]", json!(["a</arg_value>", "b"])),
        ("id", "7", json!(7)),
        ("other", "{\"a\": \"x", json!("{\"a\": \"x")),
    ];
    for format in [Format::QwenTags, Format::GlmLines, Format::GlmTags, Format::MinimaxTags] {
        let form = format.literals().expect("a row");
        let format::Arguments::Tags(tags) = form.arguments else { panic!("tags") };
        let arguments: String =
            given.iter().map(|(name, text, _)| format!("{}{name}{}{text}{}", tags.key, tags.value, tags.end)).collect();
        let next = form.next.expect("several calls");
        let answer = format!(
            "I look.{}{}get{}{arguments}{next}now{}{}",
            form.mark, form.head, form.middle, form.middle, form.tail
        );
        let (whole, called) = told(&tagged(format), [answer.as_str()]);
        let wanted: Value = given
            .iter()
            .map(|(name, _, value)| (name.to_string(), value.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert!(called && whole.text == "I look.", "{whole:?}");
        assert_eq!(whole.calls.len(), 2, "{whole:?}");
        assert_eq!(serde_json::from_str::<Value>(&whole.calls[0].1).expect("JSON"), wanted, "{format:?}");
        assert_eq!(whole.calls[1], ("now".to_string(), "{}".to_string()));
        let letters: Vec<char> = answer.chars().collect();
        for cut in 0..letters.len() {
            let parts: Vec<String> = letters[..cut].iter().map(char::to_string).collect();
            let (read, _) = told(&tagged(format), parts.iter().map(String::as_str));
            for (index, ((name, json), (known, all))) in read.calls.iter().zip(&whole.calls).enumerate() {
                let fits = if index + 1 == read.calls.len() { all.starts_with(json.as_str()) } else { all == json };
                assert!(name == known && fits, "{format:?}: {read:?}");
            }
            assert!(read.calls.is_empty() || read.text == "I look.", "{read:?}");
        }
    }
}

/// The templates of models that call in tags, as far as they write calls.
#[test]
fn a_template_that_writes_tags_has_their_form() {
    let of = |call: &str| {
        let source = format!(
            "{{{{ tools|tojson }}}}{{% for m in messages %}}{{{{ m.content }}}}{{% for c in m.tool_calls or [] %}}{{% set f = c.function %}}{call}{{% endfor %}}{{% endfor %}}"
        );
        Form::of(&template(&source)).map(|form| form.format)
    };
    let each = |text: &str| format!("{{% for k, v in f.arguments|items %}}{text}{{% endfor %}}");
    let qwen = each("{{ '<parameter=' + k + '>\\n' + v + '\\n</parameter>\\n' }}");
    assert_eq!(
        of(&format!(
            "{{{{ '<tool_call>\\n<function=' + f.name + '>\\n' }}}}{qwen}{{{{ '</function>\\n</tool_call>' }}}}"
        )),
        Some(Format::QwenTags)
    );
    let glm = each("<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>");
    assert_eq!(of(&format!("<tool_call>{{{{ f.name }}}}{glm}</tool_call>")), Some(Format::GlmTags));
}

#[test]
fn published_templates_have_the_forms_that_their_models_are_trained_on() {
    let Some(templates) = vosti_test_tools::llama_cpp("models/templates") else { return };
    for (name, form) in [
        ("Qwen-Qwen3-0.6B", Format::Hermes),
        ("meta-llama-Llama-3.1-8B-Instruct", Format::Llama),
        ("Mistral-Small-3.2-24B-Instruct-2506", Format::MistralArgs),
        ("Qwen3-Coder", Format::QwenTags),
        ("Qwen3.5-4B", Format::QwenTags),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", Format::QwenTags),
        ("GLM-4.6", Format::GlmLines),
        ("GLM-4.7-Flash", Format::GlmTags),
        ("MiniMax-M2", Format::MinimaxTags),
        ("ibm-granite-granite-3.3-2B-Instruct", Format::Granite),
        ("ibm-granite-granite-4.0", Format::Hermes),
        ("LFM2-8B-A1B", Format::Python),
        ("LFM2.5-8B-A1B", Format::Python),
        ("google-gemma-4-31B-it", Format::Gemma),
    ] {
        let source = std::fs::read_to_string(templates.join(format!("{name}.jinja"))).expect("a template");
        assert_eq!(Form::of(&template(&source)).map(|form| form.format), Some(form), "{name}");
    }
}

#[test]
fn references_in_a_circle_or_a_long_chain_have_a_kind_and_definitions_are_not_repeated_without_end() {
    let link = |to: usize| json!({ "anyOf": [{ "$ref": format!("#/$defs/{to}") }, { "$ref": "#/$defs/0" }] });
    let mut definitions: serde_json::Map<String, Value> = (0..5000).map(|at| (at.to_string(), link(at + 1))).collect();
    definitions.insert("5000".into(), json!({ "type": "string" }));
    let names = (0..2000).map(|at| (format!("p{at}"), json!({ "type": "array", "items": { "$ref": "#/$defs/0" } })));
    let properties: serde_json::Map<String, Value> = names.chain([("deep".to_string(), link(0))]).collect();
    let schema = json!({ "type": "object", "properties": properties, "$defs": definitions });
    assert_eq!(tags::kinds(&schema)["deep"], tags::Kind::Text);
    let Some(format::Arguments::Tags(tags)) = Format::QwenTags.literals().map(|form| form.arguments) else {
        panic!("tags")
    };
    let rules = tags::rules(&tags, "x", &schema, true).expect("rules").expect("arguments");
    let Some(format::Arguments::Values(notation)) = Format::Gemma.literals().map(|form| form.arguments) else {
        panic!("values")
    };
    let refused = notation.rules("x", &schema, true).expect_err("a chain that is too long");
    assert!(refused.to_string().contains("200 levels"), "{refused}");
    let flat =
        json!({ "type": "object", "properties": schema["properties"], "$defs": { "0": { "$ref": "#/$defs/0" } } });
    let written = notation.rules("x", &flat, true).expect("rules").expect("arguments");
    assert!(written.len() < 2 << 20, "{} bytes", written.len());
    assert!(rules.len() < 2 << 20, "{} bytes", rules.len());
}

#[test]
fn text_that_spells_a_mark_is_text_where_a_token_is_the_mark() {
    let tools = Tools::new(vec![function("f")], Choice::Auto, true).expect("tools");
    assert_eq!(tools.clone().by_token(|mark| (mark == "<tool_call>").then_some(7)).mark, Some(7));
    let mut reader = Reader::new(&tools.by_token(|_| Some(7))).expect("a row");
    let text = |text: &str| vec![Piece::Text(text.into())];
    assert_eq!(reader.push("Write <tool", Some(1)), text("Write <tool"));
    assert_eq!(reader.push("_call> \n", Some(2)), text("_call>"), "white space may stand before a call");
    assert_eq!(reader.push("first. ", Some(3)), text(" \nfirst."));
    assert_eq!(reader.push("<tool_call>", Some(7)), []);
    let pieces = reader.push("\n{\"name\": \"f\", \"arguments\": {\"a\": \"<tool_call>\"}}\n</tool_call>", None);
    assert_eq!(pieces[0], Piece::Call { name: "f".into() });
    assert_eq!(pieces[1], Piece::Arguments("{\"a\": \"<tool_call>\"}".into()));
    assert!(reader.called() && reader.finish().is_empty());
    // No text comes before calls of these: their first word is the mark already.
    for choice in [Choice::Required, Choice::Named("f".into())] {
        let tools = Tools::new(vec![function("f")], choice, true).expect("tools");
        assert_eq!(tools.by_token(|_| Some(7)).mark, None);
    }
}
