//! Names are checked, conversations fitted to templates, calls read back whatever way they are cut.

use super::*;

fn function(name: &str) -> Function {
    Function { name: name.into(), description: None, parameters: None }
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

const ANSWER: &str = "I look.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"tag\": \"</tool_call>\"}}\n</tool_call>\n\
                      <tool_call>\n{\"name\": \"put\", \"arguments\": {}}\n</tool_call>";

fn pieces() -> Vec<Piece> {
    let call = |name: &str, arguments: &str| Piece::Call(Call { name: name.into(), arguments: arguments.into() });
    vec![Piece::Text("I look.".into()), call("get", "{\"tag\": \"</tool_call>\"}"), call("put", "{}")]
}

/// Text beside text becomes one.
fn join(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
            (_, piece) => joined.push(piece),
        }
    }
    joined
}

#[test]
fn calls_are_read_the_same_however_the_answer_is_cut() {
    for cut in 1..=ANSWER.len() {
        let mut reader = Reader::default();
        let mut found = Vec::new();
        for part in ANSWER.as_bytes().chunks(cut) {
            found.extend(reader.push(std::str::from_utf8(part).expect("the answer is ASCII")));
        }
        found.extend(reader.finish());
        assert_eq!(join(found), pieces(), "cut every {cut} bytes");
        assert_eq!(reader.calls(), 2);
    }
}

#[test]
fn text_without_a_call_comes_whole_and_a_call_cut_short_stays_text() {
    for text in ["a < b <tool", "<tool_call>\n{\"name\": \"g", "é \n\n", "x</tool_call>"] {
        let mut reader = Reader::default();
        let mut found = reader.push(text);
        found.extend(reader.finish());
        assert_eq!(join(found), [Piece::Text(text.into())], "{text:?}");
    }
}

#[test]
fn a_template_without_tools_is_told_of_them_in_the_system_message() {
    let tools = Tools::new(vec![function("get")], Choice::Auto, true).expect("valid");
    let user = json!({ "role": "user", "content": "hi" });
    let system = json!({ "role": "system", "content": "Be brief." });
    let fitted = rendering(&[system, user.clone()], Some(&tools), "{{ messages }}");
    assert_eq!(fitted.tools, None);
    let text = fitted.messages[0]["content"].as_str().expect("text");
    assert!(text.starts_with("Be brief.") && text.contains("\"name\":\"get\""), "{text}");
    let fitted = rendering(&[user], Some(&tools), "{{ messages }}");
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
    let plain = rendering(&messages, None, "{{ messages }}").messages;
    assert_eq!(plain[0]["content"], "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>");
    assert_eq!(plain[1]["content"], "<tool_response>\n42\n</tool_response>");
    let knows = rendering(&messages, None, "... <tool_call> ...").messages;
    assert_eq!(knows[0]["tool_calls"][0]["function"]["arguments"], json!({ "a": 1 }));
    assert_eq!(knows[1], messages[1]);
}
