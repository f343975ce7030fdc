//! Parameters that are tensor maps.

use serde::{Deserialize, Serialize};

/// A parameter that is a tensor map, as `cuTensorMapEncodeTiled` is told of it. The tensor is the parameter's array by its
/// contract: two extents, rows and columns, row-major, without gaps; elements outside are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// The parameter, by its place among the contract's.
    pub param: usize,
    /// Elements of a box: rows, columns.
    pub tile: [u32; 2],
    /// Bytes of an element.
    pub elem: u32,
    /// Bytes of a swizzle's span: 0 (none), 32, 64 or 128.
    pub swizzle: u32,
}
