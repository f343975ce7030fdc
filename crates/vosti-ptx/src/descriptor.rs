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

/// A tensor map of a launch. Its address is the parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// The parameter and its boxes.
    pub descriptor: Descriptor,
    /// Rows and columns of the tensor.
    pub extents: [u64; 2],
}

/// Bytes of a piece of a box that no swizzle tears apart.
pub(crate) const CHUNK: u64 = 16;
/// The most elements of a box along an axis.
const BOX_MAX: u32 = 256;

impl Map {
    /// What `cuTensorMapEncodeTiled` demands (CUDA Driver API, "Tensor Map Object Management"), of an address.
    pub(crate) fn is_allowed(&self, address: u64) -> bool {
        let Descriptor { tile, elem, swizzle, .. } = self.descriptor;
        let width = u64::from(tile[1] * elem);
        let spans = match swizzle {
            0 => true,
            32 | 64 | 128 => width <= swizzle.into(),
            _ => false,
        };
        let pitch = self.extents[1] * u64::from(elem);
        let multiples = [address, pitch, width].iter().all(|number| number.is_multiple_of(CHUNK));
        spans && multiples && tile.iter().all(|many| (1..=BOX_MAX).contains(many)) && [1, 2, 4].contains(&elem)
    }

    /// Bytes of a box.
    pub(crate) fn bytes(&self) -> u64 {
        let Descriptor { tile, elem, .. } = self.descriptor;
        u64::from(tile[0]) * u64::from(tile[1] * elem)
    }

    /// Where 16 bytes of a box are, `at` bytes behind its first one in the order of rows (PTX ISA, "Swizzling Modes").
    pub(crate) fn shared(&self, to: u64, at: u64) -> u64 {
        let (address, span) = (to + at, u64::from(self.descriptor.swizzle));
        if span == 0 { address } else { address ^ (address >> 3 & (span - CHUNK)) }
    }

    /// Of 16 bytes of a row from a column on, the bytes that are inside of the tensor, from the row's first byte.
    pub(crate) fn inside(&self, row: i64, column: i64, at: u64) -> Option<(i64, i64)> {
        let elem = i64::from(self.descriptor.elem);
        let [rows, columns] = self.extents.map(|many| many as i64);
        let first = column * elem + at as i64;
        let (from, to) = (first.max(0), (first + CHUNK as i64).min(columns * elem));
        ((0..rows).contains(&row) && from < to).then_some((from, to))
    }
}
