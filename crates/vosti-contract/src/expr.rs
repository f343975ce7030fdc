//! Integer expressions of contracts and of `kernels/specialisations.toml`: `cdiv(rows, BM)`, `max(64 / GP, 1)`.
//!
//! Expressions have numbers, names, `+ - * /` and the functions cdiv, min, max, pow2 (next power of two)
//! and above (1 if the first is larger than the second, else 0). A division that is not exact is an error,
//! because a silent rounding could hide a mistake. Parentheses nest at most 64 deep, because the parser is recursive.

use crate::error::ContractError;

/// How deep parentheses may nest.
const DEPTH_MAX: usize = 64;

/// Evaluates `text`; `lookup` gives a name's value. An error if the text does not parse, nests too deep, a name is unknown,
/// or a value is not defined or does not fit 64 bits.
pub fn eval(text: &str, lookup: &dyn Fn(&str) -> Option<i64>) -> Result<i64, ContractError> {
    let mut parser = Parser { text, at: 0, depth: 0, lookup };
    let value = parser.sum()?;
    parser.skip();
    if parser.at < text.len() { parser.fail("an operator or the end") } else { Ok(value) }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// Open parentheses.
    depth: usize,
    lookup: &'t dyn Fn(&str) -> Option<i64>,
}

type Evaluated<T> = Result<T, ContractError>;

impl Parser<'_> {
    fn fail<T>(&self, expected: &str) -> Evaluated<T> {
        Err(ContractError::Expression {
            text: self.text.to_string(),
            why: format!("expected {expected} at column {}", self.at + 1),
        })
    }

    fn undefined<T>(&self, why: String) -> Evaluated<T> {
        Err(ContractError::Expression { text: self.text.to_string(), why })
    }

    fn skip(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, token: char) -> bool {
        self.skip();
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len_utf8();
        }
        found
    }

    fn sum(&mut self) -> Evaluated<i64> {
        let mut left = self.product()?;
        loop {
            let right = if self.eat('+') {
                self.product()?
            } else if self.eat('-') {
                self.product()?.checked_neg().map_or_else(|| self.overflow(), Ok)?
            } else {
                return Ok(left);
            };
            left = left.checked_add(right).map_or_else(|| self.overflow(), Ok)?;
        }
    }

    /// A sum within parentheses.
    fn inner(&mut self) -> Evaluated<i64> {
        if self.depth == DEPTH_MAX {
            return self.undefined(format!("parentheses nest more than {DEPTH_MAX} deep"));
        }
        self.depth += 1;
        let value = self.sum();
        self.depth -= 1;
        value
    }

    fn overflow<T>(&self) -> Evaluated<T> {
        self.undefined("the value does not fit 64 bits".into())
    }

    fn product(&mut self) -> Evaluated<i64> {
        let mut left = self.atom()?;
        loop {
            if self.eat('*') {
                let right = self.atom()?;
                left = left.checked_mul(right).map_or_else(|| self.overflow(), Ok)?;
            } else if self.eat('/') {
                let right = self.atom()?;
                if right <= 0 || left % right != 0 {
                    return self.undefined(format!("{left} is not a multiple of {right}"));
                }
                left /= right;
            } else {
                return Ok(left);
            }
        }
    }

    fn atom(&mut self) -> Evaluated<i64> {
        if self.eat('(') {
            let value = self.inner()?;
            return if self.eat(')') { Ok(value) } else { self.fail("`)`") };
        }
        self.skip();
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let word = &rest[..end];
        if word.is_empty() {
            return self.fail("a number or a name");
        }
        self.at += end;
        if let Ok(number) = word.parse() {
            return Ok(number);
        }
        if self.eat('(') {
            return self.call(word.to_string());
        }
        match (self.lookup)(word) {
            Some(value) => Ok(value),
            None => self.undefined(format!("`{word}` is not known here")),
        }
    }

    fn call(&mut self, function: String) -> Evaluated<i64> {
        let mut arguments = vec![self.inner()?];
        while self.eat(',') {
            arguments.push(self.inner()?);
        }
        if !self.eat(')') {
            return self.fail("`,` or `)`");
        }
        match (function.as_str(), &arguments[..]) {
            ("above", [a, b]) => Ok(i64::from(a > b)),
            ("cdiv", [a, b]) if *a >= 0 && *b > 0 => Ok((*a as u64).div_ceil(*b as u64) as i64),
            ("min", [a, b]) => Ok(*a.min(b)),
            ("max", [a, b]) => Ok(*a.max(b)),
            ("pow2", [a]) if (1..=1 << 40).contains(a) => Ok((*a as u64).next_power_of_two() as i64),
            _ => self.undefined(format!("`{function}` is not defined on {arguments:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::eval;

    fn value(text: &str) -> Result<i64, String> {
        let lookup = |name: &str| (name == "HEADS").then_some(9);
        eval(text, &lookup).map_err(|error| error.to_string())
    }

    #[test]
    fn expressions_follow_the_usual_precedence() {
        assert_eq!(value("2 + 3 * 4 - (1 + 1)"), Ok(12));
        assert_eq!(value("max(64 / pow2(HEADS / 3), 1)"), Ok(16));
        assert_eq!(value("cdiv(HEADS, 4)"), Ok(3));
        assert_eq!([value("above(3, 2)"), value("above(2, 2)"), value("above(1, 2)")], [Ok(1), Ok(0), Ok(0)]);
    }

    #[test]
    fn what_has_no_value_is_refused_with_the_reason() {
        for (text, part) in [
            ("HEADS / 2", "9 is not a multiple of 2"),
            ("ROWS", "`ROWS` is not known here"),
            ("1 / 0", "not a multiple of 0"),
            ("1 +", "expected a number"),
            ("1 2", "expected an operator"),
            ("pow2(0)", "not defined on [0]"),
            ("9223372036854775807 + 1", "does not fit"),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn parentheses_nest_to_a_limit() {
        let nested = |open: &str, depth: usize| value(&format!("{}1{}", open.repeat(depth), ")".repeat(depth)));
        for open in ["(", "pow2("] {
            assert_eq!(nested(open, 64), Ok(1));
            for depth in [65, 1_000_000] {
                assert!(nested(open, depth).unwrap_err().ends_with("parentheses nest more than 64 deep"));
            }
        }
        assert_eq!(value(&format!("0{}", " + (1)".repeat(1000))), Ok(1000));
    }
}
