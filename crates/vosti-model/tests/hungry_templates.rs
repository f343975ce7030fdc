//! Templates that take much memory end with one message, and templates that need much for what they are given do not.

use serde_json::{Value, json};
use vosti_model::{Bounded, ChatOptions, ChatTemplate};

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source.into(), String::new(), String::new()).unwrap()
}

fn rendered(template: &ChatTemplate) -> Result<String, String> {
    let prompt = template.render(&json!([]), &ChatOptions::default());
    prompt.map(|prompt| prompt.text().into_owned()).map_err(|error| error.to_string())
}

/// Each holds a gigabyte or two, and prints two letters.
#[test]
fn a_template_that_takes_much_memory_is_stopped_and_others_go_on() {
    let begin = "{% set ns = namespace(s='0123456789' * 100, l=[0]) %}";
    let twenty = |what: &str| what.repeat(20);
    for hungry in [
        twenty("{% set ns.s = ns.s ~ ns.s %}"),
        twenty("{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"),
        twenty("{% set ns.s = [ns.s, ns.s]|join %}"),
        "{% for i in range(10000) %}{% set ns.l = [ns.l, 'x' * 100000 ~ i] %}{% endfor %}".into(),
        "{% for i in range(400) %}{% set ns.l = [ns.l, range(100000)|list] %}{% endfor %}".into(),
    ] {
        let hungry = template(&format!("{begin}{hungry}ok"));
        let first = rendered(&hungry).unwrap_err();
        assert!(first.starts_with("chat template: it takes more than 256 MB of memory"), "{first}");
        let again = rendered(&hungry).unwrap_err();
        assert!(again.contains("it took more memory or time than the limit before"), "{again}");
        assert_eq!(rendered(&template("{{ 'x' * 1000000 }}")).map(|text| text.len()), Ok(1_000_000));
    }
}

/// The limit grows with what a template is given, so that no request is too large for an ordinary template.
#[test]
fn an_ordinary_template_has_memory_for_a_large_request() {
    let source = "{% for m in messages %}{% set parts = m.content.split(' ') %}{% set text = parts|join('-') %}{{ text[:9] }}\
        {% endfor %}{{ kept|length }}";
    let message = json!({"role": "user", "content": "a ".repeat(8_000_000)});
    let kept: Vec<Value> = (0..2_000_000).map(|_| json!([])).collect();
    let variables = json!({"kept": kept}).as_object().unwrap().clone();
    let options = ChatOptions { variables, ..ChatOptions::default() };
    assert_eq!(template(source).render(&json!([message]), &options).unwrap().text(), "a-a-a-a-a2000000");
}
