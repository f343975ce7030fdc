//! Integers of a kernel as sums of terms, modulo 2^32. Read next: `tiles.rs`, for which they are.

use std::collections::BTreeMap;

/// An integer of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Term {
    /// The tile's number.
    Tile,
    Program,
    Programs,
    Parameter(String),
    Mul(Box<Term>, Box<Term>),
    Div(Box<Sum>, Box<Sum>),
    Rem(Box<Sum>, Box<Sum>),
    Min(Box<Sum>, Box<Sum>),
}

/// A sum of terms with factors other than 0, and a number: one form for all ways to write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sum {
    pub terms: BTreeMap<Term, i64>,
    pub number: i64,
}

impl Sum {
    pub fn number(number: i64) -> Sum {
        Sum { terms: BTreeMap::new(), number }
    }

    pub fn of(term: Term) -> Sum {
        Sum { terms: BTreeMap::from([(term, 1)]), number: 0 }
    }

    pub fn constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.number)
    }

    pub fn has(&self, term: &Term) -> bool {
        let pair = |a: &Sum, b: &Sum| a.has(term) || b.has(term);
        self.terms.keys().any(|own| {
            own == term
                || match own {
                    Term::Mul(a, b) => [a, b].iter().any(|part| Sum::of((***part).clone()).has(term)),
                    Term::Div(a, b) | Term::Rem(a, b) | Term::Min(a, b) => pair(a, b),
                    _ => false,
                }
        })
    }

    pub fn times(&self, by: i64) -> Option<Sum> {
        let mut out = Sum::number(self.number.checked_mul(by)?);
        for (term, factor) in self.terms.iter().filter(|_| by != 0) {
            out.terms.insert(term.clone(), factor.checked_mul(by)?);
        }
        Some(out)
    }

    pub fn plus(&self, other: &Sum) -> Option<Sum> {
        let mut out = self.clone();
        out.number = out.number.checked_add(other.number)?;
        for (term, factor) in &other.terms {
            let sum = out.terms.get(term).copied().unwrap_or(0).checked_add(*factor)?;
            if sum == 0 {
                out.terms.remove(term);
            } else {
                out.terms.insert(term.clone(), sum);
            }
        }
        Some(out)
    }

    pub fn minus(&self, other: &Sum) -> Option<Sum> {
        self.plus(&other.times(-1)?)
    }

    /// None for a product of sums.
    pub fn mul(&self, other: &Sum) -> Option<Sum> {
        if let Some(by) = other.constant() {
            return self.times(by);
        }
        if let Some(by) = self.constant() {
            return other.times(by);
        }
        let one = |sum: &Sum| {
            let (term, factor) = sum.terms.first_key_value()?;
            (sum.terms.len() == 1 && sum.number == 0).then(|| (term.clone(), *factor))
        };
        let ((a, by), (b, more)) = (one(self)?, one(other)?);
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        Sum::of(Term::Mul(a.into(), b.into())).times(by.checked_mul(more)?)
    }

    /// A number that is its own value of 32 bits.
    pub fn exact(&self) -> Option<i64> {
        self.constant().filter(|n| i32::try_from(*n).is_ok())
    }

    pub fn div(&self, by: &Sum) -> Option<Sum> {
        match (self.exact(), by.exact()) {
            (_, Some(1)) => Some(self.clone()),
            (Some(a), Some(b)) if a >= 0 && b > 0 => Some(Sum::number(a / b)),
            _ => Some(Sum::of(Term::Div(self.clone().into(), by.clone().into()))),
        }
    }

    pub fn rem(&self, by: &Sum) -> Option<Sum> {
        match (self.exact(), by.exact()) {
            (_, Some(1)) => Some(Sum::number(0)),
            (Some(a), Some(b)) if a >= 0 && b > 0 => Some(Sum::number(a % b)),
            _ => Some(Sum::of(Term::Rem(self.clone().into(), by.clone().into()))),
        }
    }

    pub fn least(&self, other: &Sum) -> Option<Sum> {
        if let (Some(a), Some(b)) = (self.exact(), other.exact()) {
            return Some(Sum::number(a.min(b)));
        }
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        Some(Sum::of(Term::Min(a.clone().into(), b.clone().into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_one_form() {
        let [m, t] = [Sum::of(Term::Parameter("M".into())), Sum::of(Term::Tile)];
        let written = m.plus(&Sum::number(128)).and_then(|sum| sum.minus(&Sum::number(1))).unwrap();
        assert_eq!(written, m.plus(&Sum::number(127)).unwrap());
        assert_eq!(t.plus(&m).unwrap().minus(&m).unwrap(), t);
        assert_eq!(m.mul(&t), t.mul(&m));
        assert!(m.mul(&t).unwrap().has(&Term::Tile) && !m.has(&Term::Tile));
        // A product of sums has no form here.
        assert_eq!(written.mul(&t), None);
    }

    /// A number is known modulo 2^32, and a division truncates.
    #[test]
    fn a_number_that_may_wrap_or_is_negative_is_not_divided() {
        let by = Sum::number(16);
        for n in [1 << 32, -1] {
            let n = Sum::number(n);
            let pair = || (n.clone().into(), by.clone().into());
            assert_eq!(n.div(&by), Some(Sum::of(Term::Div(pair().0, pair().1))));
            assert_eq!(n.rem(&by), Some(Sum::of(Term::Rem(pair().0, pair().1))));
        }
        assert_eq!(Sum::number(1 << 32).least(&by).and_then(|sum| sum.constant()), None);
        assert_eq!((Sum::number(33).div(&by), Sum::number(33).rem(&by)), (Some(Sum::number(2)), Some(Sum::number(1))));
        assert_eq!(Sum::number(-1).least(&by), Some(Sum::number(-1)));
    }
}
