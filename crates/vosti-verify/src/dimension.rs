//! Dimensions and numbers of a kernel: the parameters of its text for which one proof covers all values.
//!
//! A dimension is an integer in the range that the contract declares, the same in both runs; a proof knows nothing else of
//! it. Extents and axes are multiples of one dimension. A number is a float of which nothing is known. [`Problem::at`] is the
//! contract of one model's values, for callers that ask whether a certificate fits; it refuses values out of range. Nothing
//! here has a default. Read next: [`crate::problem`], then [`crate::polynomial`].

use crate::premises::Premises;
use crate::problem::{Axis, Dim, Problem, ProblemError, Uses};
use vosti_contract::{Const, Constants, FOLDED, Number, NumberKind, USE};
use vosti_tile::{Kernel, Op, Region, Scalar, Value};

/// A multiple of a dimension: `times`, and the dimension's place among the problem's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    pub times: i128,
    pub number: usize,
}

/// A dimension's range, both ends included; None for a float.
pub fn range(number: &Number) -> Option<(i128, i128)> {
    match number.kind {
        NumberKind::Dimension { lo, hi } => Some((lo.into(), hi.into())),
        NumberKind::Float => None,
    }
}

/// The contract's numbers in the order of the kernel's parameters; each must be one, of its type, and only once.
pub(crate) fn numbers(
    name: &str,
    kernel: &Kernel,
    declared: &[Number],
    taken: impl Fn(&str) -> bool,
) -> Result<Vec<Number>, ProblemError> {
    let mut list: Vec<Number> = vec![];
    for scalar in &kernel.scalars {
        let Some(number) = declared.iter().find(|number| number.name == scalar.name) else {
            return Err(ProblemError::NoRole { kernel: name.to_string(), param: scalar.name.clone() });
        };
        let wanted = match number.kind {
            NumberKind::Dimension { .. } => Scalar::I32,
            NumberKind::Float => Scalar::F32,
        };
        if wanted != scalar.elem {
            let (kernel, param, found) = (name.to_string(), scalar.name.clone(), scalar.elem);
            return Err(ProblemError::Type { kernel, param, found, wanted });
        }
        if list.contains(number) || taken(&number.name) {
            let why = format!("`{}` is the name of two things", number.name);
            return Err(ProblemError::Contract { kernel: name.to_string(), why });
        }
        list.push(number.clone());
    }
    match declared.iter().find(|number| !list.contains(number)) {
        Some(number) => Err(ProblemError::NoParam { kernel: name.to_string(), param: number.name.clone() }),
        None => Ok(list),
    }
}

/// A text that is a multiple of one dimension, whose range must begin at 1 or above. `value` evaluates a text without
/// dimensions. None if no dimension occurs.
pub(crate) fn scaled(
    text: &str,
    numbers: &[Number],
    value: impl Fn(&str) -> Result<i128, ProblemError>,
) -> Result<Option<Scaled>, String> {
    if !text.split('*').any(|word| numbers.iter().any(|number| number.name == word.trim())) {
        return Ok(None);
    }
    let (times, number) = factors(text, numbers, &value)?;
    match number.map(|at| (at, range(&numbers[at]))) {
        Some((number, Some((1.., _)))) => Ok(Some(Scaled { times, number })),
        Some((at, _)) => Err(format!("`{}` is no dimension that is 1 at least", numbers[at].name)),
        None => Ok(None),
    }
}

/// A product of constants and of one dimension at most: how many times, and which.
pub(crate) fn factors(
    text: &str,
    numbers: &[Number],
    value: &impl Fn(&str) -> Result<i128, ProblemError>,
) -> Result<(i128, Option<usize>), String> {
    if !text.split('*').any(|word| numbers.iter().any(|number| number.name == word.trim())) {
        return Ok((value(text.trim()).map_err(reason)?, None));
    }
    // A launcher reads `N * 0 + 1` as 1: a sum has no factors.
    if text.contains(['+', '-']) {
        return Err(format!("`{}` is no product of constants and one dimension", text.trim()));
    }
    let (mut times, mut found) = (1i128, None);
    for factor in text.split('*').map(str::trim) {
        match numbers.iter().position(|number| number.name == factor) {
            Some(_) if found.is_some() => return Err(format!("`{text}` is a product of two dimensions")),
            Some(at) => found = Some(at),
            None => {
                let by = value(factor).map_err(reason)?;
                times = times.checked_mul(by).ok_or_else(|| format!("`{text}` is too large"))?;
            }
        }
    }
    Ok((times, found))
}

/// The reason alone: whoever reads a whole text names the place.
fn reason(error: ProblemError) -> String {
    match error {
        ProblemError::Expression { why, .. } => why,
        other => other.to_string(),
    }
}

impl Problem {
    /// This problem with constants in the place of its dimensions and numbers. The kernel is not changed: it stays the one
    /// that was proved. The value of `USE` chooses the case. An error in words if a value is missing,
    /// of another type or out of range, or if a condition does not hold.
    pub fn at(&self, values: &Constants) -> Result<Problem, String> {
        let other = match values.get(USE) {
            Some(Const::Int(1)) => &self.uses.windowed,
            Some(Const::Int(FOLDED)) => &self.uses.folded,
            Some(Const::Int(3)) => &self.uses.storing,
            _ => &None,
        };
        if let Some(problem) = other {
            return problem.at(values);
        }
        let mut found = vec![];
        for number in &self.numbers {
            let name = &number.name;
            found.push(match (values.get(name), range(number)) {
                (Some(Const::Int(v)), Some((lo, hi))) if (lo..=hi).contains(&i128::from(*v)) => Some(i128::from(*v)),
                (Some(value), Some((lo, hi))) => {
                    return Err(format!("{name} is {value}, and it is proved for {lo} to {hi}"));
                }
                (Some(Const::Float(_)), None) => None,
                _ => return Err(format!("{name} has no value of its type")),
            });
        }
        if let Some(missed) = self.conditions.iter().find(|condition| !condition.holds(&found)) {
            let words: Vec<String> =
                self.numbers.iter().zip(&found).filter_map(|(n, v)| Some(format!("{} {}", n.name, (*v)?))).collect();
            return Err(format!("it is proved only if {}, and that is false for {}", missed.text, words.join(", ")));
        }
        let size = |of: Scaled| found.get(of.number).copied().flatten().and_then(|v| of.times.checked_mul(v));
        let mut bound = self.with_kernel(self.kernel.clone());
        for dim in bound.buffers.iter_mut().flat_map(|buffer| &mut buffer.dims) {
            if let Dim::Of(of) = *dim {
                *dim = Dim::Const(size(of).ok_or("an extent is too large")?);
            }
        }
        if let Premises::Attend { window: Some(dim), .. } | Premises::Rowwise { vocabulary: Some(dim) } =
            &mut bound.premises
            && let Dim::Of(of) = *dim
        {
            *dim = Dim::Const(size(of).ok_or("a dimension is too large")?);
        }
        for axis in &mut bound.grid {
            if let Axis::Of { of, over } = *axis {
                let programs = size(of).and_then(|n| n.checked_add(over - 1)).ok_or("an axis is too long")?;
                *axis = Axis::Const(programs.div_euclid(over));
            }
        }
        for (number, value) in self.numbers.iter().zip(&found) {
            let value = value.and_then(|v| i64::try_from(v).ok());
            bound.constants.extend(value.map(|v| (number.name.clone(), Const::Int(v))));
        }
        bound.uses = Uses::default();
        bound.chosen_use = None;
        bound.numbers.clear();
        bound.conditions.clear();
        Ok(bound)
    }

    /// Whether the text, an extent, an axis or a premise reads the number at this place: if not, a proof holds for each of its values,
    /// also where two runs have different ones.
    pub(crate) fn reads(&self, number: usize) -> bool {
        fn used(ops: &[Op], value: Value) -> bool {
            let of = |region: &Region| used(&region.ops, value) || region.yields.contains(&value);
            ops.iter().any(|op| op.kind.operands().contains(&value) || op.kind.regions().into_iter().any(of))
        }
        let dim = |dim: &Dim| matches!(dim, Dim::Of(of) if of.number == number);
        let axis = |axis: &Axis| matches!(axis, Axis::Of { of, .. } if of.number == number);
        let premises = [self.premises.window(), self.premises.vocabulary()];
        self.kernel.scalars.get(number).is_none_or(|scalar| used(&self.kernel.body, scalar.value))
            || self.buffers.iter().flat_map(|buffer| &buffer.dims).any(dim)
            || self.grid.iter().any(axis)
            || premises.iter().flatten().any(dim)
    }

    /// Values for all dimensions, in their ranges: the `which`-th set with which the premises are tried. Two dimensions have
    /// different values if their ranges leave room and no condition makes them equal.
    pub(crate) fn witness(&self, which: usize) -> Vec<Option<i128>> {
        let of = |(i, number): (usize, &Number)| {
            let (lo, hi) = range(number)?;
            let step = [37, 3][which.min(1)];
            Some((lo + step * (i as i128 + 1)).min(hi - i128::try_from(which).unwrap_or(0)).max(lo))
        };
        let mut values: Vec<Option<i128>> = self.numbers.iter().enumerate().map(of).collect();
        self.conditions.iter().for_each(|condition| condition.meet(&mut values, &self.numbers));
        // The number that chooses the case is a constant of the questions: no other one may stand in its place.
        if let Some((at, chosen)) = self.chosen_use {
            values[at] = Some(chosen);
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> Vec<Number> {
        ["K dim 1..64", "Z dim 0..9", "S number"]
            .map(|text| {
                let (name, text) = text.split_once(' ').unwrap();
                Number::parse(name, text).unwrap().unwrap()
            })
            .to_vec()
    }

    #[test]
    fn an_extent_is_so_many_times_one_dimension_and_nothing_else() {
        let value = |text: &str| {
            vosti_contract::expr::eval(text, &|_| None)
                .map(i128::from)
                .map_err(|_| ProblemError::NoTtir { stem: text.into() })
        };
        let read = |text| scaled(text, &numbers(), value);
        assert_eq!(read("K"), Ok(Some(Scaled { times: 1, number: 0 })));
        assert_eq!(read("2 * K"), Ok(Some(Scaled { times: 2, number: 0 })));
        assert_eq!(read("2"), Ok(None));
        for text in ["K * 0 + 1", "1 + 1 * K", "2 - 1 * K", "K * 3 - 2"] {
            assert!(read(text).unwrap_err().contains("no product"), "{text}");
        }
        for (text, part) in [("K * K", "two dimensions"), ("Z", "1 at least"), ("2 * S", "1 at least"), ("Q * K", "Q")]
        {
            assert!(read(text).unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn in_a_model_of_the_premises_the_number_that_chooses_the_case_is_that_case() {
        let problem = Problem::of_stem("attend-bf16-BQ64-DP16-GP2-PAGE64-ROWS512-SPLIT64").unwrap();
        let Uses { windowed, folded, storing } = &problem.uses;
        let others = [windowed, folded, storing].map(|of| &**of.as_ref().unwrap());
        for (chosen, case) in [&problem].into_iter().chain(others).enumerate() {
            let at = case.numbers.iter().position(|number| number.name == USE).unwrap();
            assert_eq!([0, 1].map(|which| case.witness(which)[at]), [Some(chosen as i128); 2]);
        }
    }
}
