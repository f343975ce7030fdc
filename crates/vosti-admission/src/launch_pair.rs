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
//!
//! One launch may run in the place of the two: it folds its own splits, and the certificate of its text says that it gives the bits
//! of that text's first launch and of a second one, where these have equal numbers ([`folds`]).

use vosti_contract::{Const, Extents, FOLDED, HEIGHT, Role, Shape, USE};
use vosti_kernels::{Launch, Spec};
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
const SHARED: [&str; 5] = ["SPLIT", "ROWS", "KV_HEADS", "GROUP", "D"];

/// Refuses a launch in the place of two that is not the first one, in one of its heights, with another value of `USE`, or that is proved
/// to give the bits of the two for other numbers or weights than theirs. A text that is proved does not read HEIGHT, and is proved for
/// tiles of any height that has room. Its certificate is not looked at here.
pub fn folds(folded: &Spec, first: &Launch, second: &Launch) -> Result<(), String> {
    if first.specs().all(|spec| *folded != spec.folding()) {
        return Err(format!("it is not the launch in whose place it folds, {}, with {USE} {FOLDED}", first.spec));
    }
    let contract = |launch: &Launch| vosti_kernels::contract(&launch.spec.kernel).map_err(|error| error.to_string());
    let (of_first, contract) = (contract(first)?, contract(second)?);
    // A proof knows weights by their roles.
    for param in contract.params.iter().filter(|param| matches!(param.role, Role::Weight(_))) {
        let own =
            of_first.params.iter().find(|own| own.role == param.role).and_then(|own| first.weights.get(&own.name));
        if own.is_none() || own != second.weights.get(&param.name) {
            let weights = [first, second].map(|launch| &launch.weights);
            return Err(format!(
                "the launches in whose place it runs have the weights {:?} and {:?}",
                weights[0], weights[1]
            ));
        }
    }
    for name in contract.numbers.iter().map(|number| &number.name).filter(|name| *name != HEIGHT) {
        let [own, other] = [folded, &second.spec].map(|spec| spec.constants.get(name));
        if own != other {
            let words = |value: Option<&Const>| value.map_or("none".into(), Const::to_string);
            return Err(format!("{name} is {} in it, and {} in {}", words(own), words(other), second.spec));
        }
    }
    Ok(())
}

/// Refuses a second launch that does not read all partial results of the first, or that reads or means something else. The
/// error says what differs.
pub fn check(part: &Problem, combine: &Problem) -> Result<(), String> {
    if (part.shape, combine.shape) != (Shape::AttendPart, Shape::AttendCombine) {
        return Err(format!("a {:?} after a {:?} is no attention", combine.shape, part.shape));
    }
    for name in SHARED {
        match (part.int(name), combine.int(name)) {
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
