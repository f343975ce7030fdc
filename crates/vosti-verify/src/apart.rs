//! Two runs that really differ: what a proof says of two runs says nothing if no such runs keep the premises.

use crate::premises::Premises;
use crate::problem::{Axis, Problem};
use crate::prover::{Access, Prover};
use crate::term::Term;
use crate::verdict::Proof;
use vosti_contract::Role;

fn differ(p: &mut Prover, apart: &mut Vec<Term>, x: Term, y: Term) {
    let same = p.t.eq(x, y);
    apart.push(p.t.not(same));
}

/// The physical pages that hold the key at the row's own position.
fn newest_pages(p: &mut Prover, tiles: [Term; 2], position: Term, page: i128) -> [Term; 2] {
    let logical = p.t.div(position, page);
    [0, 1].map(|side| {
        let world = p.runs[side].world.clone();
        let table = world.at(&mut p.t, Role::TileTable, tiles[side]);
        let index = p.t.add(table, logical);
        world.at(&mut p.t, Role::PageTable, index)
    })
}

/// The place of the grid's axis of rows or tiles, and the number of its programs for each row tile.
fn axis_of_rows(problem: &Problem) -> Option<(usize, i128)> {
    let times = |axis: &Axis| match axis {
        Axis::RowsOver(_) | Axis::Tiles => Some(1),
        Axis::RowsTimes { times, .. } | Axis::TilesTimes(times) => Some(*times),
        Axis::Const(_) | Axis::Of { .. } | Axis::LengthOver(_) | Axis::LengthAbove(_) => None,
    };
    problem.grid.iter().enumerate().find_map(|(at, axis)| Some((at, times(axis)?)))
}

/// The two runs make the stores in other programs or iterations, and the left one not in the first: a grid that no row counts
/// goes through the rows in a loop. Without loops and programs no runs are apart.
fn elsewhere(p: &mut Prover, apart: &mut Vec<Term>, a: &Access, b: &Access) {
    let places = |access: &Access| {
        let env = &access.site.env;
        env.pids.iter().copied().chain(env.loops.iter().map(|(_, done)| *done)).collect::<Vec<_>>()
    };
    let (here, there) = (places(a), places(b));
    let one = p.t.int(1);
    let (mut other, mut later) = (vec![], vec![]);
    for (x, y) in here.iter().zip(&there) {
        let same = p.t.eq(*x, *y);
        other.push(p.t.not(same));
        later.push(p.t.le(one, *x));
    }
    apart.push(p.t.or(&other));
    apart.push(p.t.or(&later));
}

/// The premises have a model in which the two runs are really apart: different rows, batch sizes, programs, pages and
/// slots; at least three tiles, the row not in the first.
pub(crate) fn separated(p: &mut Prover, a: &Access, b: &Access, role: Role) -> Proof<bool> {
    let one = p.t.int(1);
    let mut apart = vec![];
    let (rl, rr) = (p.chosen[0].row, p.chosen[1].row);
    differ(p, &mut apart, rl, rr);
    let (ml, mr) = (p.runs[0].world.rows, p.runs[1].world.rows);
    differ(p, &mut apart, ml, mr);
    // If no axis counts rows or tiles, all rows have the same programs, and the runs cannot differ in them.
    let axes = [0, 1].map(|side| axis_of_rows(p.runs[side].problem));
    match axes {
        [Some((axis, times)), Some((other, other_times))] => {
            let (here, there) = (a.site.env.pids[axis], b.site.env.pids[other]);
            let (tile, other_tile) = (p.t.div(here, times), p.t.div(there, other_times));
            differ(p, &mut apart, tile, other_tile);
            let programs = p.runs[0].world.programs_needed(axis);
            let three = p.t.int(3 * times);
            apart.push(p.t.le(three, programs));
            apart.push(p.t.le(one, tile));
        }
        [None, None] => elsewhere(p, &mut apart, a, b),
        _ => return Ok(false),
    }
    if let (Some(x), Some(y)) = (p.chosen[0].tile, p.chosen[1].tile) {
        differ(p, &mut apart, x, y);
        for role in [Role::TileRows, Role::TileTable, Role::TilePos] {
            let (wl, wr) = (p.runs[0].world.clone(), p.runs[1].world.clone());
            if role == Role::TilePos && p.runs[0].problem.premises.tile_rows() == Some(1) {
                continue;
            }
            let read = [wl.read(&mut p.t, role, x), wr.read(&mut p.t, role, y)];
            if let [Some(u), Some(v)] = read {
                if role == Role::TileRows && p.runs[0].problem.premises.tile_rows() == Some(1) {
                    continue;
                }
                differ(p, &mut apart, u, v);
            }
        }
        if let Some(position) = p.chosen[0].position {
            let premises = p.runs[0].problem.premises;
            let early = p.runs.iter().any(|run| run.problem.shape.early_rows(role) == Some(true));
            // A position three pages into the request, or in its second split where only partial results are read.
            let far = match premises {
                Premises::AttendPart { page, splits, .. } if early => (3 * page).min(splits.size - 1),
                Premises::Attend { page, .. } | Premises::AttendPart { page, .. } => 3 * page,
                Premises::AttendCombine { splits, .. } => splits.size,
                Premises::RecurStore { page } | Premises::RecurRead { page, .. } => 3 * page,
                Premises::Rowwise { .. } | Premises::StoreKv { .. } => 0,
            };
            let far = p.t.int(far);
            apart.push(p.t.le(far, position));
            if let Some(page) = premises.page() {
                let pages = newest_pages(p, [x, y], position, page);
                differ(p, &mut apart, pages[0], pages[1]);
            }
        }
        if let (Role::Scratch(_), Some(split)) = (role, p.chosen[0].split) {
            apart.push(p.t.le(one, split));
        }
    }
    for role in [Role::Slots, Role::RowIndex] {
        let rows = [(0, rl), (1, rr)];
        let read = rows.map(|(side, row)| p.runs[side].world.clone().read(&mut p.t, role, row));
        if let ([Some(u), Some(v)], true) = (read, p.runs[0].problem.role(role).is_some()) {
            differ(p, &mut apart, u, v);
        }
    }
    let len = p.context.len();
    p.context.extend(apart);
    let possible = p.satisfiable();
    p.context.truncate(len);
    let possible = possible?;
    if possible {
        p.tell(
            "the premises can hold with different rows, batches, programs, pages and slots, and three tiles or more",
        );
    }
    Ok(possible)
}
