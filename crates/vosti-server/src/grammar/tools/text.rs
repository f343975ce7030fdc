//! The grammar of a text that stands as it is, up to the literal that ends it: what a schema says of its length, its pattern and
//! its format.
//!
//! A pattern is written as an expression for the whole text. Where that cannot be done, a strict function is refused, and of another
//! the pattern is not looked at.

use serde_json::Value;

use super::escaped;
use crate::grammar::{GrammarError, slashed};

/// The rule `name`: a text of this schema, and `end`.
pub fn rule(name: &str, schema: &Value, end: &str, strict: bool) -> Result<String, GrammarError> {
    let least = schema["minLength"].as_u64().unwrap_or(0);
    let most = schema["maxLength"].as_u64().map(|most| most.to_string()).unwrap_or_default();
    let length = match (least, most.as_str()) {
        (0, "") => None,
        _ => Some(format!("(?s:.{{{least},{most}}})")),
    };
    let pattern = match schema["pattern"].as_str() {
        None => None,
        Some(pattern) => said(whole(pattern), "pattern", pattern, strict)?,
    };
    let format = match schema["format"].as_str() {
        None => None,
        Some(format) => said(of_format(format).map(str::to_string), "format", format, strict)?,
    };
    let mut all: Vec<String> = [length, pattern, format].into_iter().flatten().map(|one| format!("/{one}/")).collect();
    if all.is_empty() {
        all.push("/(?s:.*)/".into());
    } else {
        // The first end ends the text, however short it is.
        all.push(format!("~/(?s:.*){}(?s:.*)/", escaped(end)));
    }
    Ok(format!("{name}[suffix={}]: {}\n", Value::from(end), all.join(" & ")))
}

/// An expression, or an error if a strict function has one that cannot be written.
fn said(written: Option<String>, what: &str, own: &str, strict: bool) -> Result<Option<String>, GrammarError> {
    if written.is_none() && strict {
        let why = format!("the {what} {own:?} cannot be held in this model's form of calls: leave it out, or strict");
        return Err(GrammarError::Refused(why));
    }
    Ok(written)
}

/// A pattern, which a part of the text matches, as an expression that all of it matches. None if it has anchors elsewhere than at its
/// ends, or choices beside an anchor.
fn whole(pattern: &str) -> Option<String> {
    let (mut depth, mut class, mut escape, mut choices) = (0usize, false, false, false);
    let (mut anchors, mut begins, mut ends) = (0, false, false);
    for (at, letter) in pattern.char_indices() {
        if std::mem::take(&mut escape) {
            // Edges of words have no place in an expression for a whole text.
            if letter == 'b' || letter == 'B' {
                return None;
            }
            continue;
        }
        match letter {
            '\\' => escape = true,
            '[' if !class => class = true,
            ']' if class => class = false,
            _ if class => {}
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            '|' if depth == 0 => choices = true,
            '^' => (anchors, begins) = (anchors + 1, begins || at == 0),
            '$' => (anchors, ends) = (anchors + 1, ends || at + 1 == pattern.len()),
            _ => {}
        }
    }
    if anchors != usize::from(begins) + usize::from(ends) || (anchors > 0 && choices) {
        return None;
    }
    let within = &pattern[usize::from(begins)..pattern.len() - usize::from(ends)];
    let any = |anchored: bool| if anchored { "" } else { "(?s:.*)" };
    Some(format!("{}({}){}", any(begins), slashed(within), any(ends)))
}

/// The texts of a format of JSON Schema.
fn of_format(format: &str) -> Option<&'static str> {
    Some(match format {
        "date" => r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
        "time" => r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])",
        "date-time" => concat!(
            r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[tT]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]",
            r"(\.[0-9]+)?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
        ),
        "uuid" => r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
        "ipv4" => r"((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])",
        "email" => r"[A-Za-z0-9._%+-]+@([A-Za-z0-9-]+\.)+[A-Za-z]{2,}",
        "uri" => r"[a-zA-Z][a-zA-Z0-9+.-]*:[^\s<>]+",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_written_for_the_whole_text_or_not_at_all() {
        for (pattern, written) in [
            ("^[a-z]+$", Some("([a-z]+)")),
            ("a/b", Some("(?s:.*)(a\\/b)(?s:.*)")),
            ("^a", Some("(a)(?s:.*)")),
            ("a|b", Some("(?s:.*)(a|b)(?s:.*)")),
            ("[$^]", Some("(?s:.*)([$^])(?s:.*)")),
            ("\\$$", Some("(?s:.*)(\\$)")),
            ("^a|b$", None),
            ("(^a)", None),
            ("\\bword", None),
        ] {
            assert_eq!(whole(pattern).as_deref(), written, "{pattern}");
        }
    }
}
