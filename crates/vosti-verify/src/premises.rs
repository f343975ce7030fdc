//! The premises and the roles of each shape: what it needs, that the contract has all of it, and that the contract has
//! nothing else.
//!
//! [`of`] reads constants only by the names that a shape gives them: a constant called `SPLIT` means something in the shapes
//! whose keys are split, and nothing in a row-wise one. All of [`Premises`] comes from the contract; nothing has a default.
//! Read next: [`crate::world`], which makes facts of them.

use crate::problem::{Buffer, Dim, limit};
use vosti_contract::{Extents, Role, Shape};

/// Splits of the keys: split s begins at position s * size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splits {
    pub size: i128,
    /// Rows that a launch may have: scratch has as many for each split.
    pub rows: i128,
}

/// The constants and dimensions from which a shape's premises are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Premises {
    Rowwise {
        /// A number or a dimension, where rows have tokens.
        vocabulary: Option<Dim>,
    },
    StoreKv {
        page: i128,
    },
    Attend {
        page: i128,
        tile_rows: i128,
        /// A number or a dimension.
        window: Option<Dim>,
    },
    AttendPart {
        page: i128,
        tile_rows: i128,
        splits: Splits,
    },
    AttendCombine {
        tile_rows: i128,
        splits: Splits,
    },
    /// Looks back as many positions as a page has. A tile holds all rows of a request.
    RecurStore {
        page: i128,
    },
    RecurRead {
        page: i128,
        tile_rows: i128,
    },
}

impl Premises {
    /// Tokens are below this.
    pub fn vocabulary(self) -> Option<Dim> {
        match self {
            Premises::Rowwise { vocabulary } => vocabulary,
            Premises::StoreKv { .. }
            | Premises::Attend { .. }
            | Premises::AttendPart { .. }
            | Premises::AttendCombine { .. }
            | Premises::RecurStore { .. }
            | Premises::RecurRead { .. } => None,
        }
    }

    /// The most rows of a launch: with splits, the rows of scratch; a larger step takes several launches.
    pub fn rows(self) -> i128 {
        match self {
            Premises::AttendPart { splits, .. } | Premises::AttendCombine { splits, .. } => splits.rows,
            Premises::Rowwise { .. }
            | Premises::StoreKv { .. }
            | Premises::Attend { .. }
            | Premises::RecurStore { .. }
            | Premises::RecurRead { .. } => limit::ROWS,
        }
    }

    /// Positions of a page.
    pub fn page(self) -> Option<i128> {
        match self {
            Premises::StoreKv { page }
            | Premises::Attend { page, .. }
            | Premises::AttendPart { page, .. }
            | Premises::RecurStore { page }
            | Premises::RecurRead { page, .. } => Some(page),
            Premises::Rowwise { .. } | Premises::AttendCombine { .. } => None,
        }
    }

    /// Rows that a query tile has at most.
    pub fn tile_rows(self) -> Option<i128> {
        match self {
            Premises::Attend { tile_rows, .. }
            | Premises::AttendPart { tile_rows, .. }
            | Premises::AttendCombine { tile_rows, .. }
            | Premises::RecurRead { tile_rows, .. } => Some(tile_rows),
            Premises::RecurStore { .. } => Some(limit::ROWS),
            Premises::Rowwise { .. } | Premises::StoreKv { .. } => None,
        }
    }

    /// Keys or entries that a row sees at most, its own among them.
    pub fn window(self) -> Option<Dim> {
        match self {
            Premises::Attend { window, .. } => window,
            Premises::RecurStore { page } | Premises::RecurRead { page, .. } => Some(Dim::Const(page + 1)),
            Premises::Rowwise { .. }
            | Premises::StoreKv { .. }
            | Premises::AttendPart { .. }
            | Premises::AttendCombine { .. } => None,
        }
    }

    pub fn splits(self) -> Option<Splits> {
        match self {
            Premises::AttendPart { splits, .. } | Premises::AttendCombine { splits, .. } => Some(splits),
            Premises::Rowwise { .. }
            | Premises::StoreKv { .. }
            | Premises::Attend { .. }
            | Premises::RecurStore { .. }
            | Premises::RecurRead { .. } => None,
        }
    }
}

type Int<'a> = &'a dyn Fn(&str) -> Option<i64>;

/// The extents of a row of queries or outputs of attention: D numbers of each head. There are HEADS heads or, if `GROUP` is a
/// dimension, GROUP heads for each of KV_HEADS. Empty for shapes without attention; an error in words if a name is missing or
/// HEADS is no multiple of KV_HEADS.
pub fn heads(shape: Shape, grouped: bool, extent: &dyn Fn(&str) -> Option<Dim>) -> Result<Vec<Dim>, String> {
    if !shape.attends() {
        return Ok(vec![]);
    }
    let of = |name: &str| extent(name).ok_or(format!("the shape {shape:?} needs {name}, a dimension or a constant"));
    if grouped {
        return ["KV_HEADS", "GROUP", "D"].into_iter().map(of).collect();
    }
    let (heads, groups, d) = (of("HEADS")?, of("KV_HEADS")?, of("D")?);
    match (heads, groups) {
        (Dim::Const(heads), Dim::Const(groups)) if heads % groups != 0 => {
            Err(format!("{heads} HEADS are no multiple of {groups} KV_HEADS"))
        }
        _ => Ok(vec![heads, d]),
    }
}

/// The number of elements of these extents, as a factor and the dimensions that it multiplies. None if a step decides an extent.
fn elements(dims: &[Dim]) -> Option<(i128, Vec<usize>)> {
    dims.iter().try_fold((1i128, vec![]), |(n, mut list), dim| match dim {
        Dim::Const(c) => Some((n.checked_mul(*c)?, list)),
        Dim::Of(of) => {
            list.push(of.number);
            list.sort_unstable();
            Some((n.checked_mul(of.times)?, list))
        }
        _ => None,
    })
}

/// Whether so many elements are a multiple of others.
fn times(all: &Option<(i128, Vec<usize>)>, of: &Option<(i128, Vec<usize>)>) -> bool {
    matches!((all, of), (Some((n, list)), Some((m, same))) if list == same && *m > 0 && n % m == 0)
}

/// The premises that a contract gives as a dimension and not as a constant.
pub struct Dimensions {
    pub vocabulary: Option<Dim>,
    pub window: Option<Dim>,
    /// Attention over all keys in one launch, whatever the contract calls WINDOW.
    pub folded: bool,
}

/// The premises of a shape. `tokens`: its rows have tokens. `int` gives an integer of the contract and notes that it is used.
/// An error in words if a constant is missing or out of range.
pub fn of(shape: Shape, tokens: bool, dimensions: Dimensions, int: Int) -> Result<Premises, String> {
    // Within these limits no range of metadata is empty or wider than 32 bits.
    let range = |least: i128, most: i128, name: &str| match int(name).map(i128::from) {
        Some(v) if (least..=most).contains(&v) => Ok(v),
        Some(v) => Err(format!("the shape {shape:?} needs {name} from {least} to {most}, and it is {v}")),
        None => Err(format!("the shape {shape:?} needs the constant {name}, an integer")),
    };
    let splits = || {
        let (size, rows) = (range(1, limit::CONTEXT, "SPLIT")?, range(1, limit::ROWS, "ROWS")?);
        Ok::<_, String>(Splits { size, rows })
    };
    // BQ may be 0 here: then every tile is padding, the contract contradicts itself, and the proof says so.
    let tile_rows = || range(0, limit::ROWS, "BQ");
    let page = || range(1, limit::SLOTS, "PAGE");
    Ok(match shape {
        Shape::Rowwise => {
            let constant = || Ok::<_, String>(Dim::Const(range(1, limit::SLOTS, "V")?));
            let vocabulary = || dimensions.vocabulary.map_or_else(constant, Ok);
            Premises::Rowwise { vocabulary: tokens.then(vocabulary).transpose()? }
        }
        Shape::StoreKv => Premises::StoreKv { page: page()? },
        Shape::Attend if dimensions.folded => Premises::Attend { page: page()?, tile_rows: tile_rows()?, window: None },
        Shape::Attend => {
            let constant = || Ok::<_, String>(Some(range(0, limit::CONTEXT, "WINDOW")?).filter(|window| *window > 0));
            let window =
                dimensions.window.map_or_else(|| Ok(constant()?.map(Dim::Const)), |of| Ok::<_, String>(Some(of)))?;
            Premises::Attend { page: page()?, tile_rows: tile_rows()?, window }
        }
        Shape::AttendPart | Shape::AttendFolded => {
            Premises::AttendPart { page: page()?, tile_rows: tile_rows()?, splits: splits()? }
        }
        Shape::AttendCombine => Premises::AttendCombine { tile_rows: tile_rows()?, splits: splits()? },
        Shape::RecurStore => Premises::RecurStore { page: page()? },
        Shape::RecurRead => Premises::RecurRead { page: page()?, tile_rows: tile_rows()? },
    })
}

/// The roles that a shape needs.
fn needed(shape: Shape) -> &'static [Role] {
    use Role::*;
    match shape {
        Shape::Rowwise => &[Rows, Out(0)],
        Shape::StoreKv => &[Rows, Slots, CacheK, CacheV],
        Shape::Attend => &[In(0), Out(0), PageTable, TileTable, TileRow, TileRows, TilePos, CacheK, CacheV],
        Shape::AttendPart | Shape::AttendFolded => {
            &[In(0), Out(0), Scratch(0), PageTable, TileTable, TileRow, TileRows, TilePos, CacheK, CacheV]
        }
        Shape::AttendCombine => &[Scratch(0), Out(0), TileRow, TileRows, TilePos],
        Shape::RecurStore => &[Entry(0), PageTable, TileTable, TileRow, TileRows, TilePos],
        Shape::RecurRead => &[Out(0), Entry(0), PageTable, TileTable, TileRow, TileRows, TilePos],
    }
}

/// Whether a role means something in a shape that does not need it.
fn permitted(shape: Shape, role: Role) -> bool {
    matches!(
        (shape, role),
        (_, Role::Weight(_))
            | (Shape::Rowwise, Role::In(_) | Role::Out(_) | Role::Tokens | Role::Positions | Role::RowIndex)
            | (Shape::StoreKv, Role::In(_) | Role::Out(_) | Role::Positions)
            | (Shape::Attend | Shape::AttendPart | Shape::AttendCombine | Shape::AttendFolded, Role::Scratch(_))
            | (Shape::RecurStore | Shape::RecurRead, Role::In(_) | Role::Entry(_) | Role::State(_))
    )
}

/// Refuses a contract that lacks a role of the shape, has one without a meaning there, has two buffers of one role, or
/// declares extents that a role does not have.
pub fn check(shape: Shape, premises: Premises, buffers: &[Buffer], heads: &[Dim]) -> Result<(), String> {
    if let Some(role) = needed(shape).iter().find(|role| buffers.iter().all(|b| b.role != **role)) {
        return Err(format!("the shape {shape:?} needs the role {role:?}"));
    }
    let gathers = buffers.iter().any(|b| b.role == Role::RowIndex);
    for (i, b) in buffers.iter().enumerate() {
        let (name, role) = (&b.name, b.role);
        if let Some(other) = buffers[..i].iter().find(|other| other.role == role) {
            return Err(format!("`{}` and `{name}` have one role, {role:?}", other.name));
        }
        if !needed(shape).contains(&role) && !permitted(shape, role) {
            return Err(format!("`{name}` has the role {role:?}, which the shape {shape:?} does not allow"));
        }
        let (fits, wants) = match (role, b.dims[0]) {
            (Role::In(_), Dim::Packed) => (gathers, "`packed` rows, which need a row_index"),
            (Role::In(_), outer) => (outer == Dim::Rows && !gathers, "`rows`, or `packed` where rows are gathered"),
            (Role::Out(_), outer) => (outer == Dim::Rows, "`rows`"),
            (Role::Scratch(_), outer) if shape == Shape::Attend => (outer == Dim::Const(0), "none"),
            (Role::Scratch(_), outer) => {
                let splits = premises.splits().map(|s| [Dim::Splits(s.size), Dim::Const(s.rows)]);
                let found = b.dims.get(1).map(|rows| [outer, *rows]);
                (splits.is_some() && splits == found, "`splits`, and the next ROWS")
            }
            (Role::Weight(_), outer) => {
                (matches!(outer, Dim::Const(_) | Dim::Of(_) | Dim::Context), "what no step changes")
            }
            (Role::Entry(_), outer) => {
                let places = premises.page().map(Dim::Const);
                let last = b.dims[1..].iter().rev().nth(1).copied();
                (
                    matches!(outer, Dim::Pages(_)) && last.is_some() && last == places,
                    "`pages`, and the last but one PAGE",
                )
            }
            (Role::State(_), outer) => (matches!(outer, Dim::Pages(_)), "`pages`"),
            // `declared.rs` gives the others the extents of their roles.
            _ => (role.extents() != Extents::Declared, "what a role says"),
        };
        if !fits {
            return Err(format!("the outermost extent of `{name}`, whose role is {role:?}, must be {wants}"));
        }
        let (width, wanted) = (elements(&b.dims[1..]), elements(heads));
        match role {
            Role::In(_) if shape.attends() && !times(&width, &wanted) => {
                return Err(format!(
                    "a row of `{name}` must hold D numbers of each of HEADS heads, once or several times"
                ));
            }
            Role::Out(_) if shape.attends() && (width.is_none() || width != wanted) => {
                return Err(format!("a row of `{name}` must hold D numbers of each of HEADS heads"));
            }
            _ => {}
        }
    }
    Ok(())
}
