//! Whether two launches' contracts together are an op's.
//!
//! Attention may be two launches: partial results by split of the keys, then their combination. The first launch's promise
//! and the second's premises are those of built-in shapes (`docs/kernel-verification.md`), about two runs L and R. With S keys
//! to a split:
//!
//! - the first: rows at one position p with the same query, keys and values have, if p < S, equal outputs, and else equal
//!   partial results of every split that begins at p or before; outputs at other positions are left alone;
//! - the second: rows at one position p >= S with equal partial results of every split that begins at p or before have
//!   equal outputs; outputs at other positions are left alone.
//!
//! Together they are the op's promise if both contracts mean the same by a row, its position, a split, a cell and the output,
//! and if the second launch reads nothing else but weights, which are the model's in both runs. This module checks that;
//! `op_contract.rs` checks each launch against the op.
//! Scratch belongs to the op: no other launch runs between its two, and each of an op's scratches is a buffer of its own.

use vosti_contract::{Extents, Role, Shape};
use vosti_verify::Problem;
use vosti_verify::problem::{Buffer, Dim};

/// The shapes of an op's launches; None if contracts of so many launches cannot be the op's.
pub fn stages(op: Shape, launches: usize) -> Option<&'static [Shape]> {
    match (op, launches) {
        (Shape::Rowwise, 1) => Some(&[Shape::Rowwise]),
        (Shape::StoreKv, 1) => Some(&[Shape::StoreKv]),
        (Shape::Attend, 1) => Some(&[Shape::Attend]),
        (Shape::RecurStore, 1) => Some(&[Shape::RecurStore]),
        (Shape::RecurRead, 1) => Some(&[Shape::RecurRead]),
        (Shape::Attend, 2) => Some(&[Shape::AttendPart, Shape::AttendCombine]),
        _ => None,
    }
}

/// The numbers that must be equal in both launches: split boundaries, rows of scratch, heads and their columns. Heights of
/// tiles may differ, because tiles of any height have each row once, with its position.
const SHARED: [&str; 5] = ["SPLIT", "ROWS", HEADS, "KV_HEADS", "D"];
const HEADS: &str = "HEADS";

/// A constant or a bound dimension; None if the contract has neither. HEADS of the first launch is KV_HEADS * GROUP.
fn number(problem: &Problem, name: &str) -> Option<i128> {
    match (name, problem.shape) {
        (HEADS, Shape::AttendPart) => problem.int("KV_HEADS")?.checked_mul(problem.int("GROUP")?),
        _ => problem.int(name),
    }
}

/// Refuses a second launch that does not read all partial results of the first, or that reads or means something else. The
/// error says what differs.
pub fn check(part: &Problem, combine: &Problem) -> Result<(), String> {
    if (part.shape, combine.shape) != (Shape::AttendPart, Shape::AttendCombine) {
        return Err(format!("a {:?} after a {:?} is no attention", combine.shape, part.shape));
    }
    for name in SHARED {
        match (number(part, name), number(combine, name)) {
            (Some(a), Some(b)) if a == b => {}
            (a, b) => {
                let words = |value: Option<i128>| value.map_or("none".into(), |value| value.to_string());
                return Err(format!("{name} is {} in the first launch and {} in this one", words(a), words(b)));
            }
        }
    }
    for buffer in &combine.buffers {
        let (name, role) = (&buffer.name, buffer.role);
        match role {
            Role::Out(_) | Role::Scratch(_) => same_cells(part, buffer)?,
            Role::Weight(_) => {}
            _ if role.extents() == Extents::Tiles => {}
            _ => return Err(format!("its parameter `{name}` ({role:?}) is nothing that the first launch promises")),
        }
    }
    match part.buffers.iter().find(|b| part.shape.writes(b.role) && combine.role(b.role).is_none()) {
        Some(left) => Err(format!("it does not go on with `{}` ({:?}) of the first launch", left.name, left.role)),
        None => Ok(()),
    }
}

/// The outer extents, and the product of those inside of a row: one launch may count heads and columns, the other columns
/// alone. None where an extent inside of a row is not bound.
fn cells(dims: &[Dim]) -> Option<(Vec<Dim>, i128)> {
    let outer = dims.iter().take_while(|dim| !matches!(dim, Dim::Const(_))).count();
    // Rows of scratch are a constant, and no part of one of its rows.
    let outer = if matches!(dims.first(), Some(Dim::Splits(_))) { outer + 1 } else { outer };
    let (outer, inner) = dims.split_at(outer.min(dims.len()));
    let count = inner.iter().try_fold(1i128, |n, dim| match dim {
        Dim::Const(c) => n.checked_mul(*c),
        _ => None,
    });
    Some((outer.to_vec(), count?))
}

/// Refuses a scratch or an output of the second launch that is not one of the first, cell by cell.
fn same_cells(part: &Problem, buffer: &Buffer) -> Result<(), String> {
    let (name, role) = (&buffer.name, buffer.role);
    let Some(written) = part.role(role) else {
        return Err(format!("its parameter `{name}` ({role:?}) is nothing that the first launch writes"));
    };
    let (here, there) = (&buffer.dims, &part.buffers[written].dims);
    if cells(here).is_none() || cells(here) != cells(there) {
        return Err(format!("its parameter `{name}` has the extents {here:?}, the first launch writes {there:?}"));
    }
    match part.buffers[written].elem == buffer.elem {
        true => Ok(()),
        false => Err(format!("its parameter `{name}` has another element type than the first launch writes")),
    }
}
