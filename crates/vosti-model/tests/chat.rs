//! Chat templates render as transformers renders them (made by goldens/text.py).

use serde_json::Value;
use vosti_model::{ChatOptions, ChatTemplate, Date};

#[test]
fn every_template_gives_the_text_that_transformers_gives() {
    let golden: Value = serde_json::from_str(include_str!("text/chat.json")).unwrap();
    let date = Date::parse(golden["date"].as_str().unwrap()).unwrap();
    let mut rendered = 0;
    for case in golden["cases"].as_array().unwrap() {
        let template = case["template"].as_str().unwrap();
        let chat = case["chat"].as_str().unwrap();
        let source = golden["templates"][template].as_str().unwrap();
        let compiled = ChatTemplate::new(source.into(), "<s>".into(), "</s>".into()).unwrap();
        let options = ChatOptions {
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            date,
            tools: Some(case["tools"].clone()).filter(|t| !t.is_null()),
            variables: case["variables"].as_object().unwrap().clone(),
        };
        let got = compiled.render(&golden["chats"][chat], &options);
        match case["text"].as_str() {
            Some(expected) => {
                assert_eq!(got.unwrap_or_else(|e| panic!("{template}/{chat}: {e}")), expected, "{template}/{chat}");
                rendered += 1;
            }
            None => assert!(got.is_err(), "{template}/{chat} should fail: {}", case["error"]),
        }
    }
    assert!(rendered >= 20, "only {rendered} cases render");
}

#[test]
fn a_template_sees_the_pinned_date_and_never_the_clock() {
    let template = ChatTemplate::new("{{ strftime_now('%d %b %Y') }}".into(), String::new(), String::new()).unwrap();
    let text = template.render(&Value::Array(vec![]), &ChatOptions::default()).unwrap();
    assert_eq!(text, "26 Jul 2024");
}

#[test]
fn weekdays_and_leap_years_are_the_calendars() {
    let date = |text: &str| Date::parse(text);
    let template =
        ChatTemplate::new("{{ strftime_now('%A %-d %B %y') }}".into(), String::new(), String::new()).unwrap();
    let render =
        |d: Date| template.render(&Value::Array(vec![]), &ChatOptions { date: d, ..Default::default() }).unwrap();
    assert_eq!(render(date("2024-02-29").unwrap()), "Thursday 29 February 24");
    assert_eq!(render(date("2000-01-01").unwrap()), "Saturday 1 January 00");
    assert!(date("2023-02-29").is_none() && date("1900-02-29").is_none() && date("2024-13-01").is_none());
}

#[test]
fn what_is_iterable_is_what_jinja_says() {
    let source = "{% for v in [none, 1, 'a', [], {}, missing] %}{{ v is iterable }} {% endfor %}";
    let template = ChatTemplate::new(source.into(), String::new(), String::new()).unwrap();
    let text = template.render(&Value::Array(vec![]), &ChatOptions::default()).unwrap();
    assert_eq!(text, "False False True True True True ");
}

#[test]
fn a_template_that_never_ends_is_stopped() {
    let source = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}";
    let template = ChatTemplate::new(source.into(), String::new(), String::new()).unwrap();
    assert!(template.render(&Value::Array(vec![]), &ChatOptions::default()).is_err());
}

#[test]
fn a_template_that_does_not_parse_is_refused_with_its_line() {
    let error = ChatTemplate::new("\n{% if %}".into(), String::new(), String::new()).err().unwrap().to_string();
    assert!(error.contains("line 2"), "{error}");
}

#[test]
fn what_transformers_marks_as_generated_is_printed_like_the_rest() {
    let source =
        "a {%- generation -%} b {{ ['é🙂'] | tojson(ensure_ascii=True) }} {%- endgeneration %} c{% generation %}";
    let source = format!("{source}d{{% endgeneration %}}{{% raw %}}{{{{ generation }}}}{{% endraw %}}");
    let template = ChatTemplate::new(source, String::new(), String::new()).unwrap();
    let text = template.render(&Value::Array(vec![]), &ChatOptions::default()).unwrap();
    assert_eq!(text, r#"ab ["\u00e9\ud83d\ude42"] cd{{ generation }}"#);
}
