//! JSON as Python writes it: `NaN`, `Infinity` and `-Infinity` stand where a number may.
//!
//! Configurations have them, such as the `time_step_limit` of models with a state. Here they become texts, so that a field which must
//! be a number is refused by its name, and any other field is not in the way.

use std::borrow::Cow;

use serde_json::Value;

/// The words that JSON does not have.
const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];

/// Parses a text. Error: it is no JSON, with the words or without them.
pub fn parse(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text).or_else(|error| match quoted(text) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(text) => serde_json::from_slice(&text),
    })
}

/// The text with those words in quotes that stand outside of texts.
fn quoted(text: &[u8]) -> Cow<'_, [u8]> {
    let (mut out, mut copied, mut at) = (Vec::new(), 0, 0);
    let mut inside = false;
    while at < text.len() {
        match text[at] {
            b'"' => inside = !inside,
            b'\\' if inside => at += 1,
            _ if inside => {}
            _ => {
                if let Some(word) = WORDS.iter().find(|word| text[at..].starts_with(word)) {
                    out.extend([&text[copied..at], b"\"", word, b"\""].concat());
                    at += word.len();
                    copied = at;
                    continue;
                }
            }
        }
        at += 1;
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned([&out, &text[copied..]].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_that_python_writes_are_texts_and_texts_stay() {
        let read = |text: &str| parse(text.as_bytes()).ok();
        let limits = read(r#"{"time_step_limit": [0.0, Infinity], "a": NaN, "b":-Infinity}"#).unwrap();
        assert_eq!(limits, json!({"time_step_limit": [0.0, "Infinity"], "a": "NaN", "b": "-Infinity"}));
        let text = r#"{"say \" NaN": "Infinity, \\", "x": [NaN]}"#;
        assert_eq!(read(text).unwrap(), json!({"say \" NaN": "Infinity, \\", "x": ["NaN"]}));
        for broken in ["", "{", "NaNs", "[Infinity", r#"{"a": Inf}"#, r#"{"a": "\"#, r#"{NaN "a": 1}"#] {
            assert_eq!(read(broken), None, "{broken}");
        }
    }

    /// The place in the message is the one in the file, if the file has none of the words.
    #[test]
    fn a_text_that_is_no_json_has_its_own_error() {
        let text = b"{\"a\": 1,\n }";
        assert_eq!(
            parse(text).unwrap_err().to_string(),
            serde_json::from_slice::<Value>(text).unwrap_err().to_string()
        );
    }
}
