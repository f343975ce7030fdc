//! What a kernel promises, in words that every tool reads alike: a [`Contract`] with the [`Role`] of each parameter, extents and
//! grids.
//!
//! It knows no kernel: `vosti-kernels` has those that Vosti ships, `vosti-audit` reads other people's. Read next: [`mod@role`],
//! then [`mod@contract`].

#[allow(missing_docs, reason = "`NumberKind::Dimension` says what its bounds are")]
pub mod contract;
pub mod dtype;
pub mod error;
pub mod expr;
pub mod grid;
pub mod role;
pub mod value;

pub use contract::{Contract, FOLDED, HEIGHT, Number, NumberKind, Param, Shape, USE};
pub use dtype::Dtype;
pub use error::ContractError;
pub use grid::{Extent, Grid, Programs};
pub use role::{Extents, Role};
pub use value::{Const, Constants};
