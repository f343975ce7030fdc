//! How many programs a launch has, as a function of a step's work.
//!
//! A device launches the grid that is proved. Read next: `kernels/src/admitted.rs`.

use crate::contract::Contract;
use crate::error::ContractError;
use crate::value::{Const, Constants};

/// The amount of work of one launch; a grid is a function of it and of the constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Rows of a row-wise or store kernel.
    pub rows: usize,
    /// Query tiles of an attention kernel.
    pub tiles: usize,
    /// Positions up to which keys are attended to: at least one more than any query row's position.
    pub length: usize,
}

/// The number of programs on one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Programs {
    /// The same number for every step.
    Fixed(usize),
    /// `cdiv(rows, over) * times`
    Rows {
        /// Rows of one program.
        over: usize,
        /// Programs for each tile of rows.
        times: usize,
    },
    /// `tiles * times`
    Tiles {
        /// Programs for each tile.
        times: usize,
    },
    /// `cdiv(length, over)`
    Length {
        /// Positions of one program.
        over: usize,
    },
    /// One program if `length` is above this, else none.
    Above(usize),
}

impl Programs {
    /// Their number for this much work; None if no integer counts them.
    fn count(self, extent: Extent) -> Option<usize> {
        match self {
            Programs::Fixed(programs) => Some(programs),
            Programs::Rows { over, times } => extent.rows.div_ceil(over.max(1)).checked_mul(times),
            Programs::Tiles { times } => extent.tiles.checked_mul(times),
            Programs::Length { over } => Some(extent.length.div_ceil(over.max(1))),
            Programs::Above(above) => Some(usize::from(extent.length > above)),
        }
    }
}

/// The programs of a launch: one entry for each axis, at most three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid(pub Vec<Programs>);

impl Grid {
    /// A contract's grid for these constants, as its text says. Production devices launch the proved grid instead, which
    /// admission takes from the proof. Error: an expression has no value.
    pub fn written(contract: &Contract, constants: &Constants) -> Result<Grid, ContractError> {
        contract.grid.iter().map(|text| programs(text, constants)).collect::<Result<_, _>>().map(Grid)
    }

    /// How many programs a launch has on each axis. Error: no integer counts them.
    pub fn at(&self, extent: Extent) -> Result<[usize; 3], ContractError> {
        let mut grid = [1; 3];
        for (programs, axis) in grid.iter_mut().zip(&self.0) {
            let many = || ContractError::Expression { text: format!("{axis:?}"), why: "too many programs".into() };
            *programs = axis.count(extent).ok_or_else(many)?;
        }
        Ok(grid)
    }
}

/// One axis.
fn programs(text: &str, constants: &Constants) -> Result<Programs, ContractError> {
    let lookup = |name: &str| match constants.get(name) {
        Some(Const::Int(value)) => Some(*value),
        _ => None,
    };
    let number = |of: &str| {
        let value = crate::expr::eval(of, &lookup)?;
        let negative = || ContractError::Expression { text: text.into(), why: format!("{value} programs") };
        usize::try_from(value).map_err(|_| negative())
    };
    let inside = |what: &str| text.trim().strip_prefix(what)?.strip_suffix(')');
    if let Some((of, times)) = text.rsplit_once('*') {
        match programs(of.trim(), constants) {
            Ok(Programs::Rows { over, times: 1 }) => return Ok(Programs::Rows { over, times: number(times)? }),
            Ok(Programs::Tiles { times: 1 }) => return Ok(Programs::Tiles { times: number(times)? }),
            _ => {}
        }
    }
    Ok(match (text.trim(), inside("cdiv(rows,"), inside("cdiv(length,"), inside("above(length,")) {
        ("rows", ..) => Programs::Rows { over: 1, times: 1 },
        ("tiles", ..) => Programs::Tiles { times: 1 },
        (_, Some(over), ..) => Programs::Rows { over: number(over)?, times: 1 },
        (_, _, Some(over), _) => Programs::Length { over: number(over)? },
        (_, _, _, Some(above)) => Programs::Above(number(above)?),
        (fixed, ..) => Programs::Fixed(number(fixed)?),
    })
}
