//! Integers that are data: what a kernel reads from a row of an input or from a weight, and addresses or masks by.
//!
//! An integer is an unknown function of its cell, and of the run where other runs may hold other numbers. So equal cells of one
//! run hold one number ([`cell`]), and a contract's premise, that the chosen rows of the two runs hold the same, is a fact about
//! two applications ([`shared`]). Nothing is known of the number but the range of its type: a kernel that needs more clamps it.
//! An integer of a buffer that the run writes is no such function, which `separation` excludes. Read next: [`crate::world`].

use crate::integers::range;
use crate::problem::{Buffer, Dim};
use crate::term::{Node, Term, Terms};
use crate::world::{Chosen, World};
use vosti_contract::Role;

/// The integer at `offset` of a buffer; None if the buffer's integers are no data.
///
/// The arguments of the function are coordinates whose row-major combination is the offset, whatever the numbers are. They may
/// lie outside of their extents, or another split may give others for one cell: then less is known.
pub fn cell(t: &mut Terms, world: &World, buffer: &Buffer, offset: Term) -> Option<Term> {
    let function = function(world.side, buffer)?;
    let (mut inner, mut rest) = (vec![], offset);
    for dim in buffer.dims[1..].iter().rev() {
        let (q, r) = match *dim {
            Dim::Const(n) => (t.div(rest, n), t.rem(rest, n)),
            Dim::Of(of) => t.divided_by(rest, of.times, world.numbers[of.number]?),
            _ => return None,
        };
        inner.push(r);
        rest = q;
    }
    inner.push(rest);
    inner.reverse();
    Some(t.apply(&function, inner, range(buffer.elem)))
}

/// The name of a buffer's function. A weight is the same in both runs.
fn function(side: &str, buffer: &Buffer) -> Option<String> {
    match buffer.role {
        Role::In(i) if buffer.elem.is_int() => Some(format!("in {i}@{side}")),
        Role::Weight(i) if buffer.elem.is_int() => Some(format!("weight {i}")),
        _ => None,
    }
}

/// The premise about the integers of the chosen rows that `question` mentions: cells of the two rows at one place hold one
/// number. A question about one run mentions no pair of cells, and gets no fact.
pub fn shared(
    t: &mut Terms,
    buffers: &[Buffer],
    (l, left): (&World, &Chosen),
    (r, right): (&World, &Chosen),
    question: &[Term],
) -> Vec<Term> {
    let mut facts = vec![];
    for buffer in buffers.iter().filter(|buffer| matches!(buffer.role, Role::In(_))) {
        let Some(names) = function(l.side, buffer).zip(function(r.side, buffer)) else { continue };
        let of = |t: &Terms, name: &str| -> Vec<(Term, Vec<Term>)> {
            let cells = t.reachable(question).into_iter().filter_map(|s| match t.node(s) {
                Node::Apply { function, args, .. } if function == name => Some((s, args.clone())),
                _ => None,
            });
            cells.collect()
        };
        let (here, there) = (of(t, &names.0), of(t, &names.1));
        for (a, at) in &here {
            for (b, other) in &there {
                let mut same = vec![t.eq(at[0], left.source), t.eq(other[0], right.source)];
                for ((x, y), dim) in at[1..].iter().zip(&other[1..]).zip(&buffer.dims[1..]) {
                    let (zero, n) = (t.int(0), l.dim(t, *dim));
                    same.extend([t.eq(*x, *y), t.within(zero, *x, n)]);
                }
                let (same, equal) = (t.and(&same), t.eq(*a, *b));
                facts.push(t.implies(same, equal));
            }
        }
    }
    facts
}
