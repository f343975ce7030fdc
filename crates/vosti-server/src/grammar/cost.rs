//! Refuses grammars whose compilation may take minutes or all memory, before it begins.
//!
//! llguidance limits its work by fuel, and takes fuel between steps. One step has no limit: where expressions must match one
//! text together (`allOf` in a schema, `&` in Lark), it multiplies their possibilities. A divisor (`multipleOf`) costs a state
//! for each remainder, in fuel of its own each time; patterns of one object's property names are compared in pairs. So these
//! three are counted here. The limits depend on the grammar alone, never on a clock: an equal request is refused everywhere.

use super::{Grammar, GrammarError};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The product of the sizes of expressions that must match one text together.
const TOGETHER_MAX: u64 = 1 << 20;
/// The sum of a grammar's divisors, without their decimal points.
const DIVISORS_MAX: u64 = 100_000;
/// Digits behind a divisor's decimal point.
const DECIMALS_MAX: u32 = 8;
/// Patterns for the names of one object's properties.
const PATTERNS_MAX: usize = 100;
/// A stand-in for the size of a `format`'s expression.
const FORMAT: u64 = 4;

/// Refuses a grammar that may cost too much.
pub fn check(grammar: &Grammar) -> Result<(), GrammarError> {
    match grammar {
        Grammar::JsonObject | Grammar::Regex(_) | Grammar::Choice(_) => Ok(()),
        Grammar::JsonSchema(schema) => Schema::of(schema).check(),
        Grammar::Lark(text) => lark(text),
        Grammar::Tools(tools) => tools.schemas().chain(tools.text().cloned()).try_for_each(|grammar| check(&grammar)),
        Grammar::AfterThoughts { grammar, .. } => check(grammar),
    }
}

fn refused<T>(why: String) -> Result<T, GrammarError> {
    Err(GrammarError::Refused(why))
}

fn check_together(together: u64, what: &str) -> Result<(), GrammarError> {
    if together <= TOGETHER_MAX {
        return Ok(());
    }
    refused(format!("too many or too long expressions must match one text together: use fewer {what}, or shorter ones"))
}

/// How many possibilities an expression of this length has at once, roughly and at most.
fn size(expression: &str) -> u64 {
    2 + expression.len() as u64 / 8
}

/// Any `&` counts, in texts and comments too: each is one more expression, and none is longer than all of the grammar.
fn lark(text: &str) -> Result<(), GrammarError> {
    let ands = text.matches('&').count() as u32;
    if ands > 0 {
        check_together(size(text).saturating_pow(ands + 1), "&")?;
    }
    for (at, _) in text.match_indices("%json") {
        // If the text is not JSON, the parser refuses it.
        let schema = serde_json::Deserializer::from_str(&text[at + "%json".len()..]).into_iter::<Value>().next();
        if let Some(Ok(schema)) = schema {
            Schema::of(&schema).check()?;
        }
    }
    Ok(())
}

/// A walk through a schema.
struct Schema<'a> {
    root: &'a Value,
    /// [`Schema::together`] by place; a place that is being walked through has 1, so references may be circular.
    known: HashMap<*const Value, u64>,
    divisors: u64,
}

impl<'a> Schema<'a> {
    fn of(root: &'a Value) -> Self {
        Self { root, known: HashMap::new(), divisors: 0 }
    }

    fn check(mut self) -> Result<(), GrammarError> {
        let together = self.together(self.root)?;
        check_together(together, "patterns in allOf")?;
        if self.divisors > DIVISORS_MAX {
            let sum = self.divisors;
            return refused(format!(
                "the sum of its multipleOf is {sum}, and the limit is {DIVISORS_MAX}: use smaller ones"
            ));
        }
        Ok(())
    }

    /// An upper bound of the product of the sizes of the expressions that one text of this schema's values must match.
    fn together(&mut self, schema: &'a Value) -> Result<u64, GrammarError> {
        let Some(fields) = schema.as_object() else { return Ok(1) };
        if let Some(known) = self.known.get(&std::ptr::from_ref(schema)) {
            return Ok(*known);
        }
        self.known.insert(schema, 1);
        let (mut product, mut own, mut parts) = (1_u64, 1_u64, 1_u64);
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("allOf", Value::Array(all)) => {
                    for schema in all {
                        product = product.saturating_mul(self.together(schema)?);
                    }
                }
                ("anyOf" | "oneOf", Value::Array(any)) => product = product.saturating_mul(self.largest(any)?),
                ("$ref", Value::String(reference)) => product = product.saturating_mul(self.referred(reference)?),
                ("pattern", Value::String(pattern)) => own = own.saturating_mul(size(pattern)),
                ("format", Value::String(_)) => own = own.saturating_mul(FORMAT),
                ("multipleOf", Value::Number(number)) => {
                    own = own.saturating_mul(self.divisor(number.as_f64().unwrap_or(0.0))?);
                }
                ("patternProperties", Value::Object(patterns)) => {
                    check_names(patterns)?;
                    parts = parts.max(self.largest(patterns.values())?);
                }
                ("properties", Value::Object(properties)) => parts = parts.max(self.largest(properties.values())?),
                // Only references lead there.
                ("$defs" | "definitions", _) | ("enum" | "const" | "default" | "examples" | "x-guidance", _) => {}
                (_, Value::Array(parts_here)) => parts = parts.max(self.largest(parts_here)?),
                (_, value) => parts = parts.max(self.together(value)?),
            }
        }
        let together = product.saturating_mul(own.max(parts));
        self.known.insert(schema, together);
        Ok(together)
    }

    fn largest(&mut self, schemas: impl IntoIterator<Item = &'a Value>) -> Result<u64, GrammarError> {
        schemas.into_iter().try_fold(1, |largest, schema| Ok(self.together(schema)?.max(largest)))
    }

    /// The bound for a reference: that of the place that it names, or, if no place has the name, that of the whole schema.
    fn referred(&mut self, reference: &str) -> Result<u64, GrammarError> {
        match reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) {
            Some(schema) => self.together(schema),
            None => Ok(all(self.root)),
        }
    }

    /// The remainders of a divisor, which llguidance takes for an integer and a power of ten.
    fn divisor(&mut self, number: f64) -> Result<u64, GrammarError> {
        let (mut divisor, mut decimals) = (number.abs(), 0);
        while divisor.fract() != 0.0 && decimals <= DECIMALS_MAX {
            divisor *= 10.0;
            decimals += 1;
        }
        if decimals > DECIMALS_MAX {
            return refused(format!("multipleOf {number} has more than {DECIMALS_MAX} decimals"));
        }
        self.divisors = self.divisors.saturating_add(divisor as u64);
        // Alone it may have any decimals; the common multiple of two must be small.
        Ok((divisor as u64).saturating_mul(10_u64.pow(decimals)).clamp(1, TOGETHER_MAX))
    }
}

/// Patterns of names, of which any two must have nothing in common.
fn check_names(patterns: &Map<String, Value>) -> Result<(), GrammarError> {
    if patterns.len() > PATTERNS_MAX {
        let message = format!("an object has {} patternProperties, and the limit is {PATTERNS_MAX}", patterns.len());
        return refused(message);
    }
    let mut sizes: Vec<u64> = patterns.keys().map(|pattern| size(pattern)).collect();
    sizes.sort_unstable();
    let two = sizes.iter().rev().take(2).product();
    check_together(two, "patternProperties")
}

/// The product of all expressions of a value.
fn all(value: &Value) -> u64 {
    match value {
        Value::Array(entries) => entries.iter().map(all).fold(1, u64::saturating_mul),
        Value::Object(fields) => {
            let of = |(name, value): (&String, &Value)| match value {
                Value::String(pattern) if name == "pattern" => size(pattern),
                Value::String(_) if name == "format" => FORMAT,
                value => all(value),
            };
            fields.iter().map(of).fold(1, u64::saturating_mul)
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn why(grammar: Grammar) -> Option<String> {
        check(&grammar).err().map(|error| error.to_string())
    }

    fn schema(schema: Value) -> Option<String> {
        why(Grammar::JsonSchema(schema))
    }

    fn lark(text: &str) -> Option<String> {
        why(Grammar::Lark(text.into()))
    }

    fn patterns(count: usize) -> Vec<Value> {
        let pattern = |i| format!("^[\\s\\S]*a{i}[\\s\\S]{{{i}}}$");
        (0..count).map(|i| json!({ "type": "string", "pattern": pattern(i) })).collect()
    }

    #[test]
    fn schemas_as_people_write_them_are_taken() {
        let base = json!({ "type": "object", "properties": {
            "id": { "type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$" },
            "mail": { "type": "string", "format": "email" },
            "price": { "type": "number", "multipleOf": 0.01 },
            "parent": { "$ref": "#/$defs/base" } } });
        let named = json!({ "properties": { "name": { "pattern": "^[A-Z][a-z]{1,40}( [A-Z][a-z]{1,40})*$" } } });
        let all =
            json!({ "allOf": [{ "$ref": "#/$defs/base" }, named, { "required": ["id"] }], "$defs": { "base": base } });
        assert_eq!(schema(all), None);
        let many: Map<String, Value> = (0..500).map(|i| (format!("k{i}"), patterns(i + 1)[i].clone())).collect();
        assert_eq!(schema(json!({ "type": "object", "properties": many })), None);
        assert_eq!(lark("start: T\nT: /[a-z]+/ & ~/(?s:.*)end(?s:.*)/"), None);
    }

    #[test]
    fn expressions_that_match_together_are_limited_wherever_they_meet() {
        let many = "too many or too long expressions";
        assert_eq!(schema(json!({ "allOf": patterns(4) })), None);
        let all = json!({ "allOf": patterns(20) });
        assert!(schema(all.clone()).expect("refused").contains(many));
        for nested in [
            json!({ "type": "array", "items": all.clone() }),
            json!({ "anyOf": [{ "type": "null" }, all.clone()] }),
            json!({ "$ref": "#/$defs/a", "$defs": { "a": all.clone() } }),
            json!({ "$id": "http://a/b", "$ref": "http://a/b#/$defs/a", "$defs": { "a": all.clone() } }),
            json!({ "allOf": patterns(20).into_iter().map(|s| json!({ "properties": { "x": s } })).collect::<Vec<_>>() }),
            json!({ "properties": { "x": { "additionalProperties": { "prefixItems": [all.clone()] } } } }),
        ] {
            assert!(schema(nested.clone()).is_some_and(|why| why.contains(many)), "{nested}");
            assert!(lark(&format!("start: \"x\" %json {nested} \"y\"")).is_some(), "{nested}");
        }
        let terms: Vec<String> = (0..9).map(|i| format!("/(?s:.*)a{i}.{{{i}}}/")).collect();
        assert!(lark(&format!("start: T\nT: {}", terms.join(" & "))).expect("refused").contains("use fewer &"));
        let names: Map<String, Value> = (0..101).map(|i| (format!("^{i}_"), json!({}))).collect();
        assert!(schema(json!({ "patternProperties": names })).expect("refused").contains("patternProperties"));
    }

    #[test]
    fn divisors_are_limited() {
        let of = |numbers: &[f64]| {
            let items: Vec<Value> = numbers.iter().map(|n| json!({ "type": "number", "multipleOf": n })).collect();
            schema(json!({ "type": "array", "prefixItems": items }))
        };
        assert_eq!(of(&[0.01, 5.0, 86400.0, 0.00000001]), None);
        assert!(of(&[99_991.0, 99_989.0]).expect("refused").contains("199980"));
        assert!(of(&[0.000_012_345_67]).expect("refused").contains("decimals"));
        let both = json!({ "allOf": [{ "multipleOf": 9973 }, { "multipleOf": 10007 }] });
        assert!(schema(both).is_some());
    }
}
