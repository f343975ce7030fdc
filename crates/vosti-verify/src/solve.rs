//! Finds the program and lane that write a given cell. The result is a guess, which the solver checks.

use crate::term::{Node, Term, Terms};
use crate::world::World;
use std::collections::HashMap;
use vosti_contract::Role;

/// The unknowns that are sought; and the largest value of an unknown, where that is a term and not its constant bound.
struct Unknowns {
    list: Vec<Term>,
    last: HashMap<Term, Term>,
}

/// The term that one of these conditions says `unknown` equals: which program a kernel's data asks for. None if no condition
/// does.
pub fn equalled(t: &mut Terms, conditions: &[Term], unknown: Term) -> Option<Term> {
    let all = t.and(conditions);
    for condition in t.conjuncts(all) {
        let Node::Zero(difference) = *t.node(condition) else { continue };
        let (c, parts) = t.linear(difference);
        let Some((_, k)) = parts.iter().find(|(part, k)| *part == unknown && k.abs() == 1).copied() else { continue };
        let rest = t.from_linear(c, parts.into_iter().filter(|(part, _)| *part != unknown));
        if !t.mentions(rest, &[unknown]) {
            return Some(t.scale(rest, -k));
        }
    }
    None
}

/// Terms for unknowns under which `offset` is likely to equal `target`.
///
/// First it makes the metadata that both mention equal (the row of a slot, the tile of a first row). Then it reads the
/// rest as digits, the unknown with the largest coefficient first. An unknown whose quotient or remainder occurs is two
/// digits; one with a negative coefficient is counted from its last value. None if an unknown occurs otherwise.
pub fn witness(
    t: &mut Terms,
    offset: Term,
    target: Term,
    (unknowns, last): (&[Term], &HashMap<Term, Term>),
    world: &World,
) -> Option<Vec<(Term, Term)>> {
    let mut unknowns = Unknowns { list: unknowns.to_vec(), last: last.clone() };
    let mut offset = offset;
    let mut halves = vec![];
    while let Some((unknown, d)) = quotient(t, offset, &unknowns.list) {
        let (outer, inner) = unknowns.split(t, unknown, d);
        let first = t.scale(outer, d);
        let whole = t.add(first, inner);
        offset = put(t, offset, &[(unknown, whole)]);
        halves.push((unknown, d, outer, inner));
    }
    let mut found: Vec<(Term, Term)> = vec![];
    for role in [Role::TileRow, Role::Slots] {
        let wanted = world.applications(t, role, &[target]);
        let given = world.applications(t, role, &[offset]);
        if let (Some((_, b)), Some((_, a))) = (wanted.first(), given.first()) {
            let (a, b) = (put(t, *a, &found), *b);
            digits(t, a, b, &unknowns, &mut found)?;
        }
    }
    let rest = put(t, offset, &found);
    digits(t, rest, target, &unknowns, &mut found)?;
    // A later split may be of an earlier one's half, so halves are joined in reverse order.
    for (whole, d, outer, inner) in halves.into_iter().rev() {
        let zero = t.int(0);
        let mut digit = |half| match found.iter().position(|(unknown, _)| *unknown == half) {
            Some(at) => found.swap_remove(at).1,
            None => zero,
        };
        let (outer, inner) = (digit(outer), digit(inner));
        let first = t.scale(outer, d);
        found.push((whole, t.add(first, inner)));
    }
    Some(found)
}

impl Unknowns {
    /// `unknown` as `d * outer + inner`.
    fn split(&mut self, t: &mut Terms, unknown: Term, d: i128) -> (Term, Term) {
        let hi = t.bounds(unknown).1.map(|hi| hi.div_euclid(d));
        let (outer, inner) = (t.fresh("outer", (Some(0), hi)), t.fresh("inner", (Some(0), Some(d - 1))));
        self.list.retain(|other| *other != unknown);
        // A half with one possible value is no unknown.
        self.list.extend([outer, inner].into_iter().filter(|half| t.as_int(*half).is_none()));
        if let Some(last) = self.last.get(&unknown).copied() {
            let last = t.div(last, d);
            self.last.insert(outer, last);
        }
        (outer, inner)
    }
}

/// The unknown of which `term` has a quotient or remainder by the smallest divisor, and that divisor.
fn quotient(t: &Terms, term: Term, unknowns: &[Term]) -> Option<(Term, i128)> {
    let divided = |s: Term| match t.node(s) {
        Node::Div(x, d) | Node::Mod(x, d) if unknowns.contains(x) => Some((*x, *d)),
        _ => None,
    };
    t.reachable(&[term]).into_iter().filter_map(divided).min_by_key(|(_, d)| *d)
}

fn put(t: &mut Terms, term: Term, found: &[(Term, Term)]) -> Term {
    let map: HashMap<Term, Term> = found.iter().copied().collect();
    t.substitute(term, &map)
}

fn digits(t: &mut Terms, offset: Term, target: Term, unknowns: &Unknowns, found: &mut Vec<(Term, Term)>) -> Option<()> {
    let (c, parts) = t.linear(offset);
    let (mut free, known): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(p, _)| unknowns.list.contains(p));
    if known.iter().any(|(p, _)| t.mentions(*p, &unknowns.list)) {
        return None;
    }
    let known = t.from_linear(c, known);
    let mut rest = t.sub(target, known);
    let mut down = vec![];
    for (unknown, k) in free.iter_mut().filter(|(_, k)| *k < 0) {
        // k * u is k * last + |k| * (last - u).
        let last = match (unknowns.last.get(unknown), t.bounds(*unknown).1) {
            (Some(last), _) => *last,
            (None, Some(hi)) => t.int(hi),
            (None, None) => return None,
        };
        let all = t.scale(last, *k);
        rest = t.sub(rest, all);
        *k = -*k;
        down.push((*unknown, last));
    }
    free.sort_by_key(|(_, k)| std::cmp::Reverse(*k));
    for (unknown, k) in free {
        let digit = t.div(rest, k);
        rest = t.rem(rest, k);
        let digit = match down.iter().find(|(u, _)| *u == unknown) {
            Some((_, last)) => t.sub(*last, digit),
            None => digit,
        };
        found.push((unknown, digit));
    }
    Some(())
}
