//! Conditions between dimensions: `OFFSET + HEADS * D <= STRIDE`, linear and declared in the contract (`where`).
//!
//! A proof takes them as facts of both runs. The premises must have a model that meets them ([`Problem::witness`]), and
//! [`Problem::at`] refuses a model's dimensions that do not. So a proof under a condition is only ever used where the
//! condition holds. The left side is a sum of multiples of dimensions and of constants. The right side is a multiple of one
//! dimension, or a constant: where values are drawn, [`Condition::meet`] changes that dimension. Any other text is refused.
//! Read next: [`crate::dimension`].
//!
//! [`Problem::at`]: crate::Problem::at

use crate::dimension::{Scaled, factors, range};
use crate::problem::ProblemError;
use crate::term::{Term, Terms};
use vosti_contract::Number;

/// `parts + constant <= 0`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub text: String,
    parts: Vec<Scaled>,
    constant: i128,
}

impl Condition {
    /// `value` evaluates a text without dimensions.
    pub(crate) fn read(
        text: &str,
        numbers: &[Number],
        value: impl Fn(&str) -> Result<i128, ProblemError>,
    ) -> Result<Condition, String> {
        let Some((left, right)) = text.split_once("<=") else {
            return Err(format!("`{text}` is no condition: write `A * 64 + B <= C`"));
        };
        let mut condition = Condition { text: text.trim().to_string(), parts: vec![], constant: 0 };
        let sides = left.split('+').map(|part| (part, 1)).chain([(right, -1)]);
        for (part, sign) in sides {
            let (times, number) = factors(part, numbers, &value)?;
            match number {
                Some(number) => condition.parts.push(Scaled { times: sign * times, number }),
                None => condition.constant += sign * times,
            }
        }
        match condition.parts.iter().any(|part| range(&numbers[part.number]).is_none()) {
            true => Err(format!("`{text}` is a condition on what is no dimension")),
            false if condition.parts.is_empty() => Err(format!("`{text}` is a condition on no dimension")),
            false => Ok(condition),
        }
    }

    /// Left side less right side: above 0 where the condition does not hold. None if a dimension has no value, or on overflow.
    fn excess(&self, values: &[Option<i128>]) -> Option<i128> {
        self.parts.iter().try_fold(self.constant, |sum, part| {
            let value = values.get(part.number).copied().flatten()?;
            sum.checked_add(part.times.checked_mul(value)?)
        })
    }

    /// The places of its dimensions among the problem's numbers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(|part| part.number)
    }

    pub fn holds(&self, values: &[Option<i128>]) -> bool {
        self.excess(values).is_some_and(|excess| excess <= 0)
    }

    /// Changes one value, in its range, so that the condition holds if it can: the right side's, or the only one there is.
    pub(crate) fn meet(&self, values: &mut [Option<i128>], numbers: &[Number]) {
        let Some(excess) = self.excess(values).filter(|excess| *excess > 0) else { return };
        let right = self.parts.iter().find(|part| part.times < 0);
        let Some(part) = right.or(self.parts.first()) else { return };
        let (Some(value), Some((lo, hi))) = (values[part.number], range(&numbers[part.number])) else { return };
        // This change is enough if the dimension is on the right, or if it is the only one.
        let steps = (excess + part.times.abs() - 1) / part.times.abs();
        let by = if part.times < 0 { steps } else { -steps };
        values[part.number] = Some((value + by).clamp(lo, hi));
    }

    /// The condition over the dimensions' symbols, and those symbols. None if a dimension has no symbol.
    pub fn fact(&self, t: &mut Terms, symbols: &[Option<Term>]) -> Option<(Term, Vec<Term>)> {
        let (mut sum, mut all) = (t.int(self.constant), vec![]);
        for part in &self.parts {
            let symbol = symbols.get(part.number).copied().flatten()?;
            let scaled = t.scale(symbol, part.times);
            sum = t.add(sum, scaled);
            all.push(symbol);
        }
        let zero = t.int(0);
        Some((t.le(sum, zero), all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> Vec<Number> {
        ["H dim 1..64", "S dim 1..9999", "O dim 0..9", "F number"]
            .map(|text| {
                let (name, text) = text.split_once(' ').unwrap();
                Number::parse(name, text).unwrap().unwrap()
            })
            .to_vec()
    }

    fn read(text: &str) -> Result<Condition, String> {
        let value = |text: &str| match text {
            "D" => Ok(16),
            _ => text.parse().map_err(|_| ProblemError::NoTtir { stem: text.into() }),
        };
        Condition::read(text, &numbers(), value)
    }

    #[test]
    fn a_condition_holds_up_to_the_value_that_it_names() {
        let condition = read("O + H * D <= S").unwrap();
        let with = |o, h, s| condition.holds(&[Some(h), Some(s), Some(o), None]);
        assert!(with(3, 4, 67) && with(0, 1, 16));
        assert!(!with(3, 4, 66) && !with(1, 1, 16));
        assert!(!condition.holds(&[Some(1), None, Some(0), None]));
        let twice = read("S <= H * 2").unwrap();
        assert!(twice.holds(&[Some(5), Some(10), None, None]) && !twice.holds(&[Some(5), Some(11), None, None]));
        let group = read("H <= D").unwrap();
        assert!(group.holds(&[Some(16), None, None, None]) && !group.holds(&[Some(17), None, None, None]));
    }

    #[test]
    fn the_right_side_gives_way_or_the_only_dimension_there_is() {
        let mut values = [Some(4), Some(1), Some(3), None];
        read("O + H * D <= S").unwrap().meet(&mut values, &numbers());
        assert_eq!(values, [Some(4), Some(67), Some(3), None]);
        let mut values = [Some(4), Some(30), None, None];
        read("S + 1 <= 3 * H").unwrap().meet(&mut values, &numbers());
        assert_eq!(values[0], Some(11));
        let mut values = [Some(40), None, None, None];
        read("2 * H <= 7").unwrap().meet(&mut values, &numbers());
        assert_eq!(values[0], Some(3));
    }

    #[test]
    fn what_is_not_linear_or_has_no_dimension_is_refused() {
        for text in ["H * S <= O", "H < S", "H <= 2 * S * O", "H <= O + S", "F <= 3", "3 <= 4", "H - 1 <= S", "X <= S"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
