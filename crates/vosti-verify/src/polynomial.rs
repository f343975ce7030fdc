//! Products of terms: a sum of monomials, so that equal polynomials are the same [`Term`].
//!
//! Strides are dimensions, so an offset is a polynomial: `row * K + col`. Nothing here asks a solver: [`Terms::divided_by`]
//! separates the parts of an offset that are multiples of a dimension from the others, which is an identity whatever the
//! numbers are. [`crate::prover`] proves separately that the rest is a column, at least 0 and below K; without that nothing
//! follows. To the solver, a product with a dimension in it is only a number between bounds ([`crate::solver`]). Read next:
//! [`crate::term`].

use crate::term::{Bounds, Node, Term, Terms};
use std::collections::BTreeMap;

/// A product of two sums has at most so many parts, because the square of a square of a sum has more and more.
const PARTS_MAX: usize = 1 << 12;

impl Terms {
    /// The product, as a sum of monomials.
    pub fn mul(&mut self, a: Term, b: Term) -> Term {
        match (self.as_int(a), self.as_int(b)) {
            (_, Some(k)) => return self.scale(a, k),
            (Some(k), _) => return self.scale(b, k),
            _ => {}
        }
        let ((ca, pa), (cb, pb)) = (self.linear(a), self.linear(b));
        if pa.len() * pb.len() > PARTS_MAX {
            self.spoiled = true;
            return self.int(0);
        }
        let mut parts = vec![];
        let c = self.checked(ca.checked_mul(cb));
        for (list, by) in [(&pa, cb), (&pb, ca)] {
            for (t, k) in list {
                let k = self.checked(k.checked_mul(by));
                parts.push((*t, k));
            }
        }
        for (x, j) in &pa {
            for (y, k) in &pb {
                let k = self.checked(j.checked_mul(*k));
                let factors = [self.factors(*x), self.factors(*y)].concat();
                parts.push((self.monomial(factors), k));
            }
        }
        self.from_linear(c, parts)
    }

    /// The factors of a part of a sum; the part itself if it is no product.
    pub fn factors(&self, t: Term) -> Vec<Term> {
        match self.node(t) {
            Node::Product(factors) => factors.clone(),
            _ => vec![t],
        }
    }

    /// The product of one or more factors, none of them a sum.
    fn monomial(&mut self, mut factors: Vec<Term>) -> Term {
        factors.sort_unstable();
        match factors[..] {
            [t] => t,
            _ => self.make(Node::Product(factors)),
        }
    }

    /// `t = q * (times * symbol) + r`: q takes the parts that are multiples of `times * symbol`. This is an identity for all
    /// values; r may have any range.
    pub fn divided_by(&mut self, t: Term, times: i128, symbol: Term) -> (Term, Term) {
        let (c, parts) = self.linear(t);
        let (mut q, mut r) = (self.int(0), vec![]);
        for (part, k) in parts {
            let mut factors = self.factors(part);
            match factors.iter().position(|f| *f == symbol) {
                Some(at) if k % times == 0 => {
                    factors.remove(at);
                    let one = self.int(1);
                    let rest = if factors.is_empty() { one } else { self.monomial(factors) };
                    let rest = self.scale(rest, k / times);
                    q = self.add(q, rest);
                }
                _ => r.push((part, k)),
            }
        }
        (q, self.from_linear(c, r))
    }

    /// Replaces a pair of parts `d * k * (x / d) * y + k * (x mod d) * y` by `k * x * y`. None if there is no such pair.
    pub(crate) fn rejoined(&mut self, parts: &[(Term, i128)]) -> Option<Vec<(Term, i128)>> {
        for (m, k) in parts {
            let factors = self.factors(*m);
            for (at, factor) in factors.iter().enumerate() {
                let Node::Mod(x, d) = *self.node(*factor) else { continue };
                let mut others = factors.clone();
                others.remove(at);
                let Some((q, _)) = parts.iter().find(|(q, j)| {
                    let mut same = self.factors(*q);
                    let quotient = same.iter().position(|f| *self.node(*f) == Node::Div(x, d));
                    quotient.is_some_and(|at| {
                        same.remove(at);
                        same == others && Some(*j) == k.checked_mul(d)
                    })
                }) else {
                    continue;
                };
                let (c, inner) = self.linear(x);
                let fits = inner.iter().all(|(_, v)| v.checked_mul(*k).is_some()) && c.checked_mul(*k).is_some();
                if !fits || (others.is_empty() && c != 0) {
                    continue;
                }
                let mut joined: Vec<(Term, i128)> = parts.iter().filter(|(t, _)| t != q && t != m).copied().collect();
                for (t, v) in inner {
                    let factors = [self.factors(t), others.clone()].concat();
                    joined.push((self.monomial(factors), v * k));
                }
                if c != 0 {
                    joined.push((self.monomial(others), c * k));
                }
                return Some(joined);
            }
        }
        None
    }

    /// The bounds of `if c then a else b`.
    pub(crate) fn choice_bounds(&self, c: Term, a: Term, b: Term) -> Bounds {
        let ((al, ah), (bl, bh)) = (self.bounds(a), self.bounds(b));
        let (lo, hi) = (al.zip(bl).map(|(x, y)| x.min(y)), ah.zip(bh).map(|(x, y)| x.max(y)));
        match self.largest(c, a, b) {
            Some(true) => (al.max(bl), hi),
            Some(false) => (lo, [ah, bh].into_iter().flatten().min()),
            None => (lo, hi),
        }
    }

    /// Whether `if c then yes else no` is the larger of the two (true) or the smaller one, because c compares them.
    fn largest(&self, c: Term, yes: Term, no: Term) -> Option<bool> {
        let Node::Le(d) = *self.node(c) else { return None };
        let apart = |a: Term, b: Term| {
            let ((ca, pa), (cb, pb)) = (self.linear(a), self.linear(b));
            let mut sum: BTreeMap<Term, i128> = pa.into_iter().collect();
            for (t, k) in pb {
                let entry = sum.entry(t).or_insert(0);
                *entry = entry.checked_sub(k)?;
            }
            sum.retain(|_, k| *k != 0);
            Some((ca.checked_sub(cb)?, sum))
        };
        let (c, parts) = self.linear(d);
        let parts: BTreeMap<Term, i128> = parts.into_iter().collect();
        // a - b <= 0 or a - b < 0: then a is the smaller one, and else b is.
        let compares = |a, b| {
            apart(a, b).is_some_and(|(k, sum)| sum == parts && c.checked_sub(k).is_some_and(|by| [0, 1].contains(&by)))
        };
        match (compares(no, yes), compares(yes, no)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    /// The bounds of a product, from the bounds of its factors.
    pub(crate) fn product_bounds(&self, factors: &[Term]) -> Bounds {
        let mut bounds = (Some(1), Some(1));
        for factor in factors {
            bounds = times(bounds, self.bounds(*factor));
        }
        bounds
    }
}

fn times(a: Bounds, b: Bounds) -> Bounds {
    if let ((Some(al), Some(ah)), (Some(bl), Some(bh))) = (a, b) {
        let corners = [(al, bl), (al, bh), (ah, bl), (ah, bh)].map(|(x, y): (i128, i128)| x.checked_mul(y));
        if let [Some(w), Some(x), Some(y), Some(z)] = corners {
            return (Some(w.min(x).min(y).min(z)), Some(w.max(x).max(y).max(z)));
        }
    }
    let natural = |bounds: Bounds| bounds.0.filter(|lo| *lo >= 0);
    (natural(a).zip(natural(b)).and_then(|(x, y)| x.checked_mul(y)), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn natural(t: &mut Terms, name: &str) -> Term {
        t.var(name, (Some(0), Some(1 << 20)))
    }

    #[test]
    fn the_larger_and_the_smaller_one_have_their_bounds() {
        let mut t = Terms::default();
        let (x, y) = (t.var("x", (Some(-9), Some(50))), t.var("y", (Some(1), Some(20))));
        let (less, next) = (t.lt(x, y), t.add_int(y, 1));
        let (larger, smaller) = (t.max(x, y), t.min(x, y));
        let strict = [t.ite(less, x, y), t.ite(less, y, x)];
        assert_eq!(
            [larger, smaller, strict[0], strict[1]].map(|term| t.bounds(term)),
            [(1, 50), (-9, 20), (-9, 20), (1, 50)].map(|(lo, hi)| (Some(lo), Some(hi)))
        );
        // x < y says nothing of x and y + 1.
        let other = t.ite(less, x, next);
        assert_eq!(t.bounds(other), (Some(-9), Some(50)));
        // A number without a bound has none here either, but where the other one is its bound.
        let free = t.var("free", (None, None));
        let (larger, smaller) = (t.max(free, y), t.min(free, y));
        assert_eq!([larger, smaller].map(|term| t.bounds(term)), [(Some(1), None), (None, Some(20))]);
    }

    #[test]
    fn products_of_sums_are_sums_of_products_however_they_are_made() {
        let mut t = Terms::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| natural(&mut t, name));
        let sum = t.add(a, b);
        let whole = t.mul(sum, c);
        let (ac, bc) = (t.mul(c, a), t.mul(b, c));
        assert_eq!(whole, t.add(ac, bc));
        let (ab, three) = (t.mul(a, b), t.add_int(c, 3));
        let (left, right) = (t.mul(ab, three), t.mul(b, three));
        assert_eq!(left, t.mul(a, right));
    }

    #[test]
    fn an_offset_falls_apart_by_its_stride_and_by_no_other_dimension() {
        let mut t = Terms::default();
        let [row, col, k, n] = ["row", "col", "K", "N"].map(|name| natural(&mut t, name));
        let start = t.mul(row, k);
        let offset = t.add(start, col);
        assert_eq!(t.divided_by(offset, 1, k), (row, col));
        let zero = t.int(0);
        assert_eq!(t.divided_by(offset, 1, n), (zero, offset));
        // Not by twice it either: an odd row begins in the middle.
        assert_eq!(t.divided_by(offset, 2, k), (zero, offset));
        let twice = t.scale(start, 2);
        assert_eq!(t.divided_by(twice, 2, k), (row, zero));
    }

    #[test]
    fn what_a_division_leaves_is_the_same_number_whatever_the_numbers_are() {
        let mut t = Terms::default();
        let [row, col, k] = ["row", "col", "K"].map(|name| natural(&mut t, name));
        let (square, cube) = (t.mul(k, k), t.mul(row, k));
        let (a, b, c) = (t.scale(square, 3), t.scale(cube, -5), t.scale(col, 7));
        let (d, e) = (t.scale(k, 4), t.int(9));
        let offset = t.sum(&[a, b, c, d, e]);
        let (q, r) = t.divided_by(offset, 1, k);
        let back = t.mul(q, k);
        assert_eq!(t.add(back, r), offset);
        for values in [[3, 8, 5], [0, 1, 1], [7, 0, 2]] {
            let map: HashMap<Term, Term> = [row, col, k].into_iter().zip(values.map(|v: i128| t.int(v))).collect();
            let [row, col, k] = values;
            let found = t.substitute(offset, &map);
            assert_eq!(t.as_int(found), Some(3 * k * k - 5 * row * k + 7 * col + 4 * k + 9));
        }
    }

    #[test]
    fn quotient_and_remainder_join_under_a_stride() {
        let mut t = Terms::default();
        let [x, k] = ["x", "K"].map(|name| natural(&mut t, name));
        let (q, m) = (t.div(x, 64), t.rem(x, 64));
        let (whole, part) = (t.mul(q, k), t.mul(m, k));
        let whole = t.scale(whole, 64);
        assert_eq!(t.add(whole, part), t.mul(x, k));
        let wrong = t.scale(part, 2);
        assert_ne!(t.add(whole, wrong), t.mul(x, k));
    }

    #[test]
    fn bounds_of_a_product_hold_at_every_corner() {
        let mut t = Terms::default();
        let (a, b) = (t.var("a", (Some(-3), Some(4))), t.var("b", (Some(-5), Some(2))));
        let product = t.mul(a, b);
        assert_eq!(t.bounds(product), (Some(-20), Some(15)));
        let free = t.var("free", (Some(2), None));
        let open = t.mul(free, a);
        assert_eq!(t.bounds(open), (None, None));
        let natural = natural(&mut t, "n");
        let open = t.mul(free, natural);
        assert_eq!(t.bounds(open), (Some(0), None));
    }
}
