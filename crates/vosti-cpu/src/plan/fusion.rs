//! Fuses consecutive maps over the same rows, so that the machine runs them a few rows at a time.
//!
//! A tile of 64 by 64 numbers is a third of a first-level cache, and a chain of maps over several such tiles would read each
//! tile from the next level. In strips, a chain stays in the nearest cache. Only the order of work changes: every row of a
//! map depends on the same row of its operands, or on values that no map of the chain writes.
//! Read next: [`super::machine`].

use std::collections::HashSet;

use super::code::{Count, Instr, MapCode, Place};

/// Fuses chains of maps, and keeps the targets of jumps. `most` gives the largest value of an entry of the table of counts.
pub fn fuse(code: Vec<Instr>, most: impl Fn(Count) -> usize) -> Vec<Instr> {
    let targets: HashSet<usize> = code.iter().filter_map(target).collect();
    let mut joined: Vec<Instr> = Vec::with_capacity(code.len());
    let mut moved = Vec::with_capacity(code.len() + 1);
    for (at, instr) in code.into_iter().enumerate() {
        let apart = targets.contains(&at);
        if let Instr::Map(next) = &instr
            && !apart
            && let Some(before) = joined.last_mut()
            && let Some(chain) = chain(before)
            && chain.iter().all(|map| follows(map, next, &most))
        {
            let mut chain = chain.to_vec();
            chain.push(*next);
            *before = Instr::FusedMaps(chain);
            moved.push(joined.len() - 1);
            continue;
        }
        moved.push(joined.len());
        joined.push(instr);
    }
    moved.push(joined.len());
    for instr in &mut joined {
        if let Instr::Enter { end: to, .. }
        | Instr::Again { start: to, .. }
        | Instr::Unless { to, .. }
        | Instr::Jump { to } = instr
        {
            *to = moved[*to];
        }
    }
    joined
}

fn target(instr: &Instr) -> Option<usize> {
    match instr {
        Instr::Enter { end: to, .. }
        | Instr::Again { start: to, .. }
        | Instr::Unless { to, .. }
        | Instr::Jump { to } => Some(*to),
        _ => None,
    }
}

fn chain(instr: &Instr) -> Option<&[MapCode]> {
    match instr {
        Instr::Map(map) => Some(std::slice::from_ref(map)),
        Instr::FusedMaps(chain) => Some(chain),
        _ => None,
    }
}

/// True if `next` may run on some rows before `map` has run on the others.
fn follows(map: &MapCode, next: &MapCode, most: &impl Fn(Count) -> usize) -> bool {
    let bytes = |place: &Place, of: &MapCode| match place {
        Place { row: 0, lanes: false, .. } => 64,
        // Elements have eight bytes at most.
        Place { row: 0, .. } => most(of.groups) * 16 * 8,
        Place { row, .. } => most(of.rows) * *row as usize,
    };
    let disjoint = |a: &Place, of: &MapCode, b: &Place, with: &MapCode| {
        let (start, other) = (a.at as usize, b.at as usize);
        start + bytes(a, of) <= other || other + bytes(b, with) <= start
    };
    let same = |a: &Place, b: &Place| a.at == b.at && a.row == b.row;
    map.rows == next.rows
        && map.dst.row > 0
        && next.dst.row > 0
        && next.args.iter().all(|arg| same(arg, &map.dst) || disjoint(arg, next, &map.dst, map))
        && map.args.iter().all(|arg| same(arg, &next.dst) || disjoint(arg, map, &next.dst, next))
        && (same(&map.dst, &next.dst) || disjoint(&map.dst, map, &next.dst, next))
}
