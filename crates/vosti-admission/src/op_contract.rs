//! Whether a kernel's contract is the one that its op needs.
//!
//! The engine's proof assumes of each op the promise of a contract's shape (`vosti-core/src/trusted/seam.rs`), over the
//! program's own buffers, groups and window. A proved contract of another shape, or over other extents, discharges nothing.
//! The check goes role by role and knows no kernel by name. If an op has two launches, this module checks each for its part,
//! and `launch_pair.rs` checks that the two together are the op.

use std::collections::BTreeMap;
use vosti_contract::{Const, Grid, HEIGHT, Programs, Role, Shape};
use vosti_core::{GroupDecl, Op, PAGE, PartDecl, Program, RowSet, Uses};
use vosti_kernels::{Scratch, Spec};
use vosti_model::Weight;
use vosti_tile::Scalar;
use vosti_verify::Problem;
use vosti_verify::problem::{Axis, Buffer, Dim, limit};

/// An op's name in messages.
pub fn name(op: &Op) -> &'static str {
    let used = op.uses();
    match (used.cache_written, used.cache_read) {
        (Some(_), _) => "StoreKv",
        (None, Some(_)) => "Attend",
        _ if used.tokens => "Embed",
        _ => "Rowwise",
    }
}

/// The shape of the contract of an op, or of two in one launch. Where pages have a state, it is that of a store that looks back, and of
/// its read.
pub fn shape(program: &Program, used: &Uses) -> Shape {
    let recurs = group(program, used).is_some_and(|group| !group.state.is_empty());
    match (used.cache_written, used.cache_read) {
        (Some(_), _) if recurs => Shape::RecurStore,
        (Some(_), _) => Shape::StoreKv,
        (None, Some(_)) if recurs => Shape::RecurRead,
        (None, Some(_)) => Shape::Attend,
        (None, None) => Shape::Rowwise,
    }
}

/// The group of the layer whose cache an op reads or writes.
fn group<'a>(program: &'a Program, used: &Uses) -> Option<&'a GroupDecl> {
    let layer = used.cache_written.map(|write| write.layer).or(used.cache_read.map(|read| read.layer))?;
    program.groups.get(program.layers.get(layer as usize)?.group as usize)
}

/// A launch of an op.
pub struct Bound<'a> {
    /// The shape that the op needs the launch's contract to have.
    pub stage: Shape,
    /// The names of the launch's weights, by parameter.
    pub bound: &'a BTreeMap<String, String>,
    /// The model's weights, by name.
    pub weights: &'a BTreeMap<String, Weight>,
    /// The op's scratches.
    pub scratch: &'a [Scratch],
}

/// Refuses a contract that does not promise what the op needs of this launch, or that needs what the op does not give. The
/// error says in words what differs.
pub fn check(program: &Program, used: &Uses, problem: &Problem, launch: &Bound) -> Result<(), String> {
    if problem.shape != launch.stage {
        return Err(format!("its contract has the shape {:?}, the op needs {:?}", problem.shape, launch.stage));
    }
    if i128::from(program.context) > limit::CONTEXT {
        return Err(format!("contexts up to {} are proved, the program has {}", limit::CONTEXT, program.context));
    }
    let tokens = match problem.premises.vocabulary() {
        Some(Dim::Const(tokens)) => tokens,
        Some(_) => return Err("its vocabulary is not bound".into()),
        None => i128::MAX,
    };
    if tokens < i128::from(program.vocab) {
        return Err(format!("it is proved for tokens below {tokens}, the program's vocabulary is {}", program.vocab));
    }
    for buffer in &problem.buffers {
        let name = &buffer.name;
        types(program, used, buffer, launch).map_err(|why| format!("its parameter `{name}` {why}"))?;
        let fits =
            role(program, used, problem, buffer, launch).map_err(|why| format!("its parameter `{name}` {why}"))?;
        if !fits {
            return Err(format!("its parameter `{name}` has the role {:?}, which the op does not give", buffer.role));
        }
    }
    let takes = |name: &str| problem.buffers.iter().any(|b| b.name == name && matches!(b.role, Role::Weight(_)));
    if let Some(name) = launch.bound.keys().find(|name| !takes(name)) {
        return Err(format!("it has no weight `{name}`, to which the launch binds one"));
    }
    for i in 0..used.outputs.len() {
        if problem.role(Role::Out(i)).is_none() {
            return Err(format!("no parameter is the op's output {i}"));
        }
    }
    // An op with scratch is launched for as many rows at a time as scratch has. Only a launch that uses the scratch is proved
    // for that.
    if let Some(i) = (0..launch.scratch.len()).find(|i| problem.role(Role::Scratch(*i)).is_none()) {
        return Err(format!("no parameter is the op's scratch {i}"));
    }
    if let Some(write) = &used.cache_written {
        stores_all(program, used, problem)?;
        looks_back(write.back, problem)?;
    }
    if let Some(read) = &used.cache_read {
        attend(read.window, problem)?;
    }
    Ok(())
}

/// Refuses a store that leaves a part of its layer's pages as it was.
fn stores_all(program: &Program, used: &Uses, problem: &Problem) -> Result<(), String> {
    let Some(group) = group(program, used) else { return Ok(()) };
    let stored = |part: usize| problem.buffers.iter().any(|b| b.role.part(group).is_some_and(|(i, _)| i == part));
    match (0..group.entry.len() + group.state.len()).find(|part| !stored(*part)) {
        None => Ok(()),
        Some(part) if part < group.entry.len() => Err(format!("no parameter is part {part} of the layer's entries")),
        Some(part) => Err(format!("no parameter is part {} of the layer's states", part - group.entry.len())),
    }
}

/// Refuses a store whose entries depend on more earlier entries than the op shows it. Any store may look back less.
fn looks_back(back: u32, problem: &Problem) -> Result<(), String> {
    let needs = if problem.shape == Shape::RecurStore { problem.premises.page().unwrap_or(i128::MAX) } else { 0 };
    match needs <= i128::from(back) {
        true => Ok(()),
        false => Err(format!("its entries depend on {needs} entries before them, the op shows it {back}")),
    }
}

/// The grid that is proved. Error: an axis has a dimension that is not bound, or a number that no device counts.
pub fn grid(problem: &Problem) -> Result<Grid, String> {
    let number = |n: i128| usize::try_from(n).map_err(|_| format!("{n} is no number of programs"));
    let axis = |axis: &Axis| {
        Ok(match *axis {
            Axis::Const(programs) => Programs::Fixed(number(programs)?),
            Axis::Of { .. } => return Err("an axis of its grid is not bound".to_string()),
            Axis::Tiles => Programs::Tiles { times: 1 },
            Axis::TilesTimes(times) => Programs::Tiles { times: number(times)? },
            Axis::RowsOver(over) => Programs::Rows { over: number(over)?, times: 1 },
            Axis::RowsTimes { over, times } => Programs::Rows { over: number(over)?, times: number(times)? },
            Axis::LengthOver(over) => Programs::Length { over: number(over)? },
            Axis::LengthAbove(above) => Programs::Above(number(above)?),
        })
    };
    problem.grid.iter().map(axis).collect::<Result<_, _>>().map(Grid)
}

/// Refuses a kernel in the place of another one with other dimensions or numbers: the two are proved to give the same bits
/// where these are equal. The number of rows that a tile is given may differ: each is proved for all that it has room for, and no
/// text reads HEIGHT, or the two would not be proved.
pub fn same_numbers(first: &Spec, other: &Spec) -> Result<(), String> {
    let contract = vosti_kernels::contract(&first.kernel).map_err(|error| error.to_string())?;
    for number in contract.numbers.iter().filter(|number| number.name != HEIGHT) {
        let [own, wanted] = [other, first].map(|spec| spec.constants.get(&number.name));
        if own != wanted {
            let words = |value: Option<&Const>| value.map_or("none".into(), Const::to_string);
            return Err(format!("{} is {} in it, and {} in {first}", number.name, words(own), words(wanted)));
        }
    }
    Ok(())
}

/// False if the op gives nothing for the buffer's role; an error if it gives something else than the contract says.
fn role(program: &Program, used: &Uses, problem: &Problem, buffer: &Buffer, launch: &Bound) -> Result<bool, String> {
    let shape = shape(program, used);
    let tiles = matches!(shape, Shape::Attend | Shape::RecurStore | Shape::RecurRead);
    let all = used.rows == RowSet::All;
    match buffer.role {
        Role::In(i) => used.inputs.get(i).map_or(Ok(false), |b| rows(program, used, *b, &buffer.dims)),
        Role::Out(i) => used.outputs.get(i).map_or(Ok(false), |b| rows(program, used, *b, &buffer.dims)),
        Role::Weight(_) => match launch.bound.get(&buffer.name).map(|name| (name, launch.weights.get(name))) {
            None => Err("is a weight, and the launch binds none to it".into()),
            Some((name, None)) => Err(format!("is bound to `{name}`, a weight that the model does not have")),
            Some((name, Some(weight))) if !weight.is_for(&buffer.name) => {
                Err(format!("is bound to `{name}`, which is made for a parameter `{}`", weight.parameter))
            }
            Some((_, Some(weight))) => self::weight(program, used.tokens, weight, &buffer.dims),
        },
        Role::Rows => Ok(!tiles),
        Role::Tokens => Ok(used.tokens),
        // A selected row's position stands at its packed index, which a contract over positions does not say.
        Role::Positions => Ok(!used.tokens && all && !tiles),
        Role::RowIndex => Ok(!all),
        Role::Slots => Ok(shape == Shape::StoreKv),
        // A tile of a store that looks back has all rows that the step has of a request: wiring asks the core for tiles that high.
        Role::PageTable | Role::TileTable | Role::TileRow | Role::TileRows | Role::TilePos => Ok(tiles),
        // Scratch without elements needs no room.
        Role::Scratch(_) if buffer.dims.first() == Some(&Dim::Const(0)) => Ok(true),
        Role::Scratch(i) => launch.scratch.get(i).map_or(Ok(false), |given| scratch(problem, buffer, given)),
        Role::CacheK | Role::CacheV | Role::Entry(_) | Role::State(_) => {
            let part = group(program, used).and_then(|group| buffer.role.part(group));
            part.map_or(Ok(false), |(_, part)| cache(part, buffer))
        }
    }
}

/// Refuses a buffer of another element type than the op gives. Whatever the op does not give, [`role`] refuses.
fn types(program: &Program, used: &Uses, buffer: &Buffer, launch: &Bound) -> Result<(), String> {
    let row = |list: &[u32], i: usize| Some(program.buffers.get(*list.get(i)? as usize)?.dtype);
    let given = match buffer.role {
        Role::In(i) => row(&used.inputs, i),
        Role::Out(i) => row(&used.outputs, i),
        Role::Weight(_) => launch.bound.get(&buffer.name).and_then(|name| launch.weights.get(name)).map(Weight::dtype),
        role if role.is_cache() => group(program, used).and_then(|group| role.part(group)).map(|(_, part)| part.dtype),
        role => role.elem(None).flatten(),
    };
    match given.map(Scalar::from) {
        Some(given) if given != buffer.elem => Err(format!("holds {}, the op gives {given}", buffer.elem)),
        _ => Ok(()),
    }
}

/// Refuses scratch of another size than a device allocates for the op.
fn scratch(problem: &Problem, buffer: &Buffer, given: &Scratch) -> Result<bool, String> {
    let keys = problem.splits().map(|splits| splits.size);
    let splits = buffer.dims.first() == Some(&Dim::Splits(given.keys as i128));
    let rows = buffer.dims.get(1) == Some(&Dim::Const(given.rows as i128));
    match splits && rows && width(&buffer.dims[1..]) == Some(given.width as i128) {
        true => Ok(true),
        false => Err(format!(
            "has the extents {:?} for each split of {} keys, the op's scratch {} rows of {} numbers for each {} keys",
            &buffer.dims[1..],
            keys.unwrap_or(0),
            given.rows,
            given.width,
            given.keys
        )),
    }
}

/// Elements of a row: the product of all extents but the first; None if one is not bound.
fn width(dims: &[Dim]) -> Option<i128> {
    product(&dims[1..])
}

fn product(dims: &[Dim]) -> Option<i128> {
    dims.iter().try_fold(1i128, |n, dim| match dim {
        Dim::Const(c) => n.checked_mul(*c),
        _ => None,
    })
}

/// Refuses a row buffer of another width than the contract says, or of other rows.
fn rows(program: &Program, used: &Uses, buffer: u32, dims: &[Dim]) -> Result<bool, String> {
    let Some(given) = program.buffers.get(buffer as usize) else { return Ok(false) };
    let width = width(dims);
    if width != Some(i128::from(given.width)) {
        let width = width.map_or("?".into(), |w| w.to_string());
        return Err(format!("is {width} wide, the op's buffer {buffer} is {}", given.width));
    }
    let meant = match dims.first() {
        Some(Dim::Rows) => used.rows,
        Some(Dim::Packed) => RowSet::All,
        _ => return Ok(false),
    };
    if meant != given.rows {
        return Err(format!("holds {meant:?} rows, the op's buffer {buffer} {:?}", given.rows));
    }
    Ok(true)
}

fn weight(program: &Program, embed: bool, weight: &Weight, dims: &[Dim]) -> Result<bool, String> {
    let shape = weight.shape();
    // Outer extents lie in memory like their product: a stack of matrices is one matrix that has all of their rows.
    let outer = (dims.len() + 1).saturating_sub(shape.len());
    let times = |n: i128, dim: &Dim| match dim {
        Dim::Const(c) => n.checked_mul(*c),
        _ => None,
    };
    let joined = match outer {
        0 | 1 => None,
        _ => dims[..outer].iter().try_fold(1, times).map(|n| [&[Dim::Const(n)], &dims[outer..]].concat()),
    };
    let dims = joined.as_deref().unwrap_or(dims);
    let same = shape.len() == dims.len()
        && shape.iter().zip(dims).all(|(n, dim)| match dim {
            Dim::Const(c) => *n as i128 == *c,
            Dim::Context => *n as i128 >= i128::from(program.context),
            _ => false,
        });
    if !same {
        return Err(format!("has the extents {dims:?}, the model's weight {shape:?}"));
    }
    if embed && shape.first() != Some(&(program.vocab as usize)) {
        return Err(format!("has {:?} rows for a vocabulary of {}", shape.first(), program.vocab));
    }
    Ok(true)
}

/// Refuses a part of a layer's pages with other extents than its group declares: of an entry `[pages, heads.., PAGE, width]`, which
/// also says which cells a position has; of a state `[pages, ..]` with as many elements in a page.
fn cache(part: PartDecl, buffer: &Buffer) -> Result<bool, String> {
    let [heads, width] = [part.heads, part.width].map(i128::from);
    let (outer, dims) = (buffer.dims.first(), &buffer.dims[1..]);
    let fits = match (buffer.role, dims) {
        (Role::State(_), _) => product(dims) == heads.checked_mul(width),
        (_, [inner @ .., page, last]) => {
            product(inner) == Some(heads) && [*page, *last] == [PAGE as i128, width].map(Dim::Const)
        }
        _ => false,
    };
    if outer != Some(&Dim::Pages(PAGE as i128)) || !fits {
        return Err(format!("has pages of {dims:?}, the op's cache {heads} heads of {width}"));
    }
    Ok(true)
}

fn attend(window: Option<u32>, problem: &Problem) -> Result<(), String> {
    // The core makes tiles of up to HEIGHT rows.
    let (height, most) = (problem.int("HEIGHT"), problem.premises.tile_rows().unwrap_or(0));
    if !height.is_some_and(|height| (1..=most).contains(&height)) {
        let height = height.map_or("?".into(), |height| height.to_string());
        return Err(format!("a tile has up to {height} rows, and it is proved for tiles of up to {most}"));
    }
    let proved = match problem.premises.window() {
        None => 0,
        Some(Dim::Const(keys)) => keys,
        Some(other) => return Err(format!("its window is {other:?}, which is no number")),
    };
    let words = |w: i128| if w == 0 { "no window".to_string() } else { format!("a window of {w}") };
    match window {
        Some(0) => Err("the op's window shows nothing".into()),
        window => {
            let wanted = i128::from(window.unwrap_or(0));
            match proved == wanted {
                true => Ok(()),
                false => Err(format!("it is proved for {}, the op has {}", words(proved), words(wanted))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vosti_contract::Extent;

    /// The contract's text is read twice, by the verifier and for tests of devices.
    #[test]
    fn the_proved_grid_is_the_one_that_the_contract_says() {
        for spec in vosti_kernels::examples().into_iter().step_by(7) {
            let text = spec.text().to_string();
            let problem = Problem::of_text(&text, vosti_kernels::ttir_by_stem(&text).unwrap()).unwrap();
            let problem = problem.at(&spec.constants).unwrap();
            let contract = vosti_kernels::contract(&spec.kernel).unwrap();
            let (proved, written) = (grid(&problem).unwrap(), Grid::written(contract, &spec.constants).unwrap());
            // The verifier simplifies an axis, so the two are compared as functions.
            for n in [1, 2, 15, 16, 17, 64, 511, 512, 513, 4097] {
                let extent = Extent { rows: n, tiles: 2 * n + 1, length: 3 * n + 2 };
                assert_eq!(proved.at(extent), written.at(extent), "{spec}: {n} rows");
            }
        }
    }
}
