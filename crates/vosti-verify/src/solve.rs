//! Finds the program and lane that write a given cell. What it finds is a guess that the solver checks.

use crate::term::{Term, Terms};
use crate::world::World;
use std::collections::HashMap;
use vosti_kernels::Role;

/// Terms for `unknowns` under which `offset` is likely to equal `target`.
///
/// First the metadata that both mention is made equal (the row whose slot it is, the tile whose first
/// row it is), then what is left is read as digits: the unknown with the largest coefficient first.
pub fn witness(
    t: &mut Terms,
    offset: Term,
    target: Term,
    unknowns: &[Term],
    world: &World,
) -> Option<Vec<(Term, Term)>> {
    let mut found: Vec<(Term, Term)> = vec![];
    for role in [Role::TileRow, Role::Slots] {
        let wanted = world.applications(t, role, &[target]);
        let given = world.applications(t, role, &[offset]);
        if let (Some((_, b)), Some((_, a))) = (wanted.first(), given.first()) {
            let (a, b) = (put(t, *a, &found), *b);
            digits(t, a, b, unknowns, &mut found)?;
        }
    }
    let rest = put(t, offset, &found);
    digits(t, rest, target, unknowns, &mut found)?;
    Some(found)
}

fn put(t: &mut Terms, term: Term, found: &[(Term, Term)]) -> Term {
    let map: HashMap<Term, Term> = found.iter().copied().collect();
    t.substitute(term, &map)
}

fn digits(t: &mut Terms, offset: Term, target: Term, unknowns: &[Term], found: &mut Vec<(Term, Term)>) -> Option<()> {
    let (c, parts) = t.linear(offset);
    let (mut free, known): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(p, _)| unknowns.contains(p));
    if known.iter().any(|(p, _)| t.mentions(*p, unknowns)) {
        return None;
    }
    let known = t.from_linear(c, known);
    let mut rest = t.sub(target, known);
    free.sort_by_key(|(_, k)| std::cmp::Reverse(*k));
    for (unknown, k) in free {
        if k <= 0 {
            return None;
        }
        let digit = t.div(rest, k);
        rest = t.rem(rest, k);
        found.push((unknown, digit));
    }
    Some(())
}
