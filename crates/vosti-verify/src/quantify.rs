//! "Some lane of a mask is set", exactly, as a term in which the lane does not occur.
//!
//! A guard such as `any(mask)` says that a lane exists. For masks made of linear comparisons the comparisons' bounds alone
//! decide that, so no quantifier reaches the solver. For any other mask, such as one of integers that are data, the caller makes
//! the condition unknown, and knows of it only that a lane which sets the mask makes it true. Read next: [`crate::run`].

use crate::term::{Node, Term, Terms};
use std::collections::HashMap;

/// Masks with more alternatives than this give None.
const ALTERNATIVES_MAX: usize = 32;

/// A mask along an axis, as a term in which the variable `lane` stands for any of the `n` lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mask {
    pub value: Term,
    pub lane: Term,
    pub n: i128,
    /// The mark at which `lane` was made.
    pub since: u32,
}

/// The condition that some lane of a mask is set; None inside if the mask's comparisons do not decide it.
///
/// A variable made after the mark may stand for another value at each lane (an opaque value at this lane): a mask in which
/// one occurs is no function of its lane, and gives None.
pub(crate) fn some_lane(t: &mut Terms, mask: Mask) -> Option<Option<Term>> {
    let own = |t: &Terms, s: Term| matches!(t.node(s), Node::Var { .. } | Node::BoolVar(_)) && s.0 >= mask.since;
    if t.reachable(&[mask.value]).into_iter().any(|s| s != mask.lane && own(t, s)) {
        return None;
    }
    Some(exists(t, mask.value, mask.lane, mask.n))
}

/// `is` says that some lane of the mask is set, which is known where a lane is known that sets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Witnessed {
    pub is: Term,
    pub mask: Mask,
}

impl Witnessed {
    /// What follows for the variables among `seen` that stand for a lane of an axis as long as the mask's: where one of them sets
    /// the mask, some lane is set.
    pub fn facts(&self, t: &mut Terms, seen: &[Term]) -> Vec<Term> {
        let Mask { value, lane, n, .. } = self.mask;
        if !seen.contains(&self.is) {
            return vec![];
        }
        let bounds = (Some(0), Some(n - 1));
        let stands = |s: &Term| matches!(t.node(*s), Node::Var { bounds: own, .. } if *own == bounds);
        let lanes: Vec<Term> = seen.iter().copied().filter(stands).collect();
        let set = lanes.into_iter().map(|own| {
            let set = t.substitute(value, &HashMap::from([(lane, own)]));
            t.implies(set, self.is)
        });
        set.collect()
    }
}

fn exists(t: &mut Terms, mask: Term, lane: Term, n: i128) -> Option<Term> {
    if !t.mentions(mask, &[lane]) {
        return Some(mask);
    }
    // If d divides n, then lane = d * outer + inner, and both halves take all their values.
    let divisor = t.reachable(&[mask]).into_iter().find_map(|s| match t.node(s) {
        Node::Div(x, d) | Node::Mod(x, d) if *x == lane => Some(*d),
        _ => None,
    });
    if let Some(d) = divisor {
        if n % d != 0 || d >= n {
            return None;
        }
        let (outer, inner) = (t.fresh("any", (Some(0), Some(n / d - 1))), t.fresh("any", (Some(0), Some(d - 1))));
        let first = t.scale(outer, d);
        let whole = t.add(first, inner);
        let mask = t.substitute(mask, &HashMap::from([(lane, whole)]));
        let mask = exists(t, mask, inner, d)?;
        return exists(t, mask, outer, n / d);
    }
    let mut ways = vec![];
    for literals in alternatives(t, mask, true, lane)? {
        ways.push(one_way(t, &literals, lane, n)?);
    }
    Some(t.or(&ways))
}

/// A boolean as a disjunction of conjunctions of comparisons `e <= 0` and of terms without the lane.
fn alternatives(t: &mut Terms, mask: Term, positive: bool, lane: Term) -> Option<Vec<Vec<Term>>> {
    if !t.mentions(mask, &[lane]) {
        return Some(vec![vec![if positive { mask } else { t.not(mask) }]]);
    }
    match (t.node(mask).clone(), positive) {
        (Node::Not(x), _) => alternatives(t, x, !positive, lane),
        (Node::Or(list), true) | (Node::And(list), false) => {
            let mut all = vec![];
            for x in list {
                all.extend(alternatives(t, x, positive, lane)?);
            }
            (all.len() <= ALTERNATIVES_MAX).then_some(all)
        }
        (Node::And(list), true) | (Node::Or(list), false) => {
            let mut all = vec![vec![]];
            for x in list {
                let more = alternatives(t, x, positive, lane)?;
                if all.len() * more.len() > ALTERNATIVES_MAX {
                    return None;
                }
                all =
                    all.iter().flat_map(|a: &Vec<Term>| more.iter().map(move |b| [&a[..], &b[..]].concat())).collect();
            }
            Some(all)
        }
        (Node::Le(e) | Node::Zero(e), _) => match choice(t, e, lane) {
            // The lane chooses between two numbers: each counts where it is chosen.
            Some((c, yes, no)) => {
                let (zero, equal) = (t.int(0), matches!(t.node(mask), Node::Zero(_)));
                let [yes, no] = [yes, no].map(|e| if equal { t.eq(e, zero) } else { t.le(e, zero) });
                let chosen = t.ite(c, yes, no);
                alternatives(t, chosen, positive, lane)
            }
            None if matches!(t.node(mask), Node::Le(_)) => Some(vec![vec![if positive { mask } else { t.not(mask) }]]),
            None => {
                let (zero, one, minus) = (t.int(0), t.int(1), t.int(-1));
                Some(match positive {
                    true => vec![vec![t.le(e, zero), t.le(zero, e)]],
                    false => vec![vec![t.le(e, minus)], vec![t.le(one, e)]],
                })
            }
        },
        _ => None,
    }
}

/// The first choice by the lane in a linear term: its condition, and the term with either outcome.
fn choice(t: &mut Terms, e: Term, lane: Term) -> Option<(Term, Term, Term)> {
    let (_, parts) = t.linear(e);
    let (part, k) = *parts.iter().find(|(p, _)| matches!(t.node(*p), Node::Ite(..)) && t.mentions(*p, &[lane]))?;
    let Node::Ite(c, yes, no) = *t.node(part) else {
        return None;
    };
    let gone = t.scale(part, -k);
    let rest = t.add(e, gone);
    let (yes, no) = (t.scale(yes, k), t.scale(no, k));
    Some((c, t.add(rest, yes), t.add(rest, no)))
}

/// The condition that some lane makes all of `literals` true. `k * lane + r <= 0` is an integer bound of the lane: at most
/// `floor(-r / k)` where k > 0, at least `ceil(r / -k)` where k < 0. A lane exists exactly if each lower bound is at most
/// each upper bound: then the greatest lower bound is such a lane.
fn one_way(t: &mut Terms, literals: &[Term], lane: Term, n: i128) -> Option<Term> {
    let (mut lows, mut highs, mut all) = (vec![t.int(0)], vec![t.int(n - 1)], vec![]);
    for literal in literals {
        if !t.mentions(*literal, &[lane]) {
            all.push(*literal);
            continue;
        }
        let Node::Le(e) = *t.node(*literal) else {
            return None;
        };
        let (c, parts) = t.linear(e);
        let k = parts.iter().find(|(p, _)| *p == lane)?.1;
        let rest = t.from_linear(c, parts.into_iter().filter(|(p, _)| *p != lane));
        if t.mentions(rest, &[lane]) {
            return None;
        }
        if k > 0 {
            let minus = t.scale(rest, -1);
            highs.push(t.div(minus, k));
        } else {
            let up = t.add_int(rest, -k - 1);
            lows.push(t.div(up, -k));
        }
    }
    for lo in &lows {
        for hi in &highs {
            all.push(t.le(*lo, *hi));
        }
    }
    Some(t.and(&all))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a term whose variables are given.
    fn value(t: &mut Terms, term: Term, map: &HashMap<Term, Term>) -> bool {
        let put = t.substitute(term, map);
        t.as_bool(put).expect("all variables have values")
    }

    #[test]
    fn a_lane_exists_exactly_where_one_is_found_by_trying_all() {
        let mut t = Terms::default();
        let (p, q) = (t.var("p", (Some(-20), Some(20))), t.var("q", (Some(-20), Some(20))));
        let n = 8;
        for (k, d) in [(1, 1), (1, 2), (3, 1), (-2, 1), (5, 4)] {
            for shape in 0..5 {
                let since = t.mark();
                let lane = t.fresh("lane", (Some(0), Some(n - 1)));
                let outer = t.div(lane, d);
                let scaled = t.scale(outer, k);
                let (below, above) = (t.le(scaled, p), t.lt(q, scaled));
                let equal = t.eq(scaled, p);
                let unequal = t.not(equal);
                let mask = match shape {
                    0 => t.and(&[below, above]),
                    1 => equal,
                    2 => t.and(&[unequal, above]),
                    3 => t.or(&[equal, above]),
                    _ => {
                        let (a, b) = (t.int(1), t.int(-1));
                        let chosen = t.ite(above, a, b);
                        let positive = t.le(a, chosen);
                        t.and(&[positive, below])
                    }
                };
                let decided = |t: &mut Terms, value: Term| {
                    some_lane(t, Mask { value, lane, n, since }).flatten().expect("linear masks are decided")
                };
                let some = decided(&mut t, mask);
                let unset = t.not(mask);
                let unset = decided(&mut t, unset);
                let every = t.not(unset);
                for (x, y) in (-18..18).flat_map(|x| (-18..18).map(move |y| (x, y))) {
                    let mut map = HashMap::from([(p, t.int(x)), (q, t.int(y))]);
                    let (found_some, found_every) = (value(&mut t, some, &map), value(&mut t, every, &map));
                    let mut set = 0;
                    for at in 0..n {
                        map.insert(lane, t.int(at));
                        set += i128::from(value(&mut t, mask, &map));
                    }
                    assert_eq!((found_some, found_every), (set > 0, set == n), "{k} {d} {shape} {x} {y}");
                }
            }
        }
    }

    #[test]
    fn a_mask_with_something_opaque_at_the_lane_is_no_function_of_it() {
        let mut t = Terms::default();
        let p = t.var("p", (Some(0), None));
        let since = t.mark();
        let lane = t.fresh("lane", (Some(0), Some(7)));
        let (opaque, below) = (t.fresh_bool("opaque"), t.le(lane, p));
        let mask = t.and(&[opaque, below]);
        assert_eq!(some_lane(&mut t, Mask { value: mask, lane, n: 8, since }), None);
        let read = t.apply("slots", vec![lane], (Some(0), None));
        let mask = t.le(read, p);
        let undecided = Some(None);
        assert_eq!(some_lane(&mut t, Mask { value: mask, lane, n: 8, since }), undecided, "a function of its lane");
    }

    #[test]
    fn a_lane_that_sets_an_undecided_mask_makes_the_condition_true_and_nothing_else_does() {
        let mut t = Terms::default();
        let (p, since) = (t.var("p", (Some(0), None)), t.mark());
        let lane = t.fresh("any", (Some(0), Some(7)));
        let read = |t: &mut Terms, lane: Term| {
            let read = t.apply("ids", vec![lane], (Some(0), None));
            t.eq(read, p)
        };
        let value = read(&mut t, lane);
        let some = Witnessed { is: t.fresh_bool("some"), mask: Mask { value, lane, n: 8, since } };
        let (own, longer) = (t.fresh("lane", (Some(0), Some(7))), t.fresh("lane", (Some(0), Some(8))));
        let (set, zero) = (read(&mut t, own), t.int(0));
        let fact = t.implies(set, some.is);
        assert_eq!(some.facts(&mut t, &[some.is, own, longer, zero]), [fact]);
        assert_eq!(some.facts(&mut t, &[own]), [], "a question that does not mention it");
    }
}
