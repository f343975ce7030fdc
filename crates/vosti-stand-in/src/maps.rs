//! The stand-in's tensor maps: what is in one is written in words that the stand-in reads again at a launch, and compares with the mark in
//! front of the kernel's text. So a map of another matrix, tile or swizzle than the kernel was compiled for is refused.

use crate::{StandIn, WAITS, illegal};
use std::fmt::Write;
use vosti_cubin::inspect::descriptors::extents;
use vosti_cubin::{Descriptor, Metadata};
use vosti_cuda::driver::{Address, DriverError, Matrix, Param, TensorMap};
use vosti_kernels::Spec;

/// In front of each parameter that is a map: its place, rows (0 for those of a step), columns, tile and swizzle.
const MARK: &str = "// map ";
/// The first word of a map.
const MAGIC: u64 = 0x7465_6e73_6f72_6d61;
/// Bytes of a number.
const ELEM: u64 = 2;

/// A parameter that a kernel takes as a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub param: usize,
    rows: u64,
    columns: u64,
    tile: [u32; 2],
    swizzle: u32,
}

/// What stands in front of a kernel's text: that it waits for the launches before it, and its parameters that are maps.
pub fn marks(spec: &Spec, metadata: &Metadata) -> String {
    let mut out = if metadata.launch_pdl { WAITS.to_string() } else { String::new() };
    let contract = vosti_kernels::contract(&spec.kernel).unwrap();
    for Descriptor { param, tile: [high, wide], swizzle, .. } in &metadata.descriptors {
        let (rows, columns) = extents(contract, spec, *param).unwrap();
        writeln!(out, "{MARK}{param} {} {columns} {high} {wide} {swizzle}", rows.unwrap_or(0)).unwrap();
    }
    out
}

/// The marks of maps in front of a text, and the text.
pub(crate) fn read(mut text: &str) -> Option<(Vec<Expected>, &str)> {
    let mut found = vec![];
    while let Some(rest) = text.strip_prefix(MARK) {
        let (line, rest) = rest.split_once('\n')?;
        let numbers = line.split(' ').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let [param, rows, columns, high, wide, swizzle] = numbers[..] else { return None };
        let tile = [high as u32, wide as u32];
        found.push(Expected { param: param as usize, rows, columns, tile, swizzle: swizzle as u32 });
        text = rest;
    }
    Some((found, text))
}

/// A matrix's map. An error where a driver would refuse the matrix.
pub(crate) fn encode(matrix: &Matrix) -> Result<TensorMap, &'static str> {
    let Matrix { at, extents: [rows, columns], tile: [high, wide], swizzle } = *matrix;
    let aligned =
        at.is_multiple_of(16) && (columns * ELEM).is_multiple_of(16) && (u64::from(wide) * ELEM).is_multiple_of(16);
    let sized = rows > 0 && columns > 0 && rows <= 1 << 32 && columns <= 1 << 32;
    let boxed = (1..=256).contains(&high) && (1..=256).contains(&wide);
    let spans = swizzle == 0 || [32, 64, 128].contains(&swizzle) && u64::from(wide) * ELEM <= swizzle.into();
    if !(aligned && sized && boxed && spans) {
        return Err("CUDA_ERROR_INVALID_VALUE");
    }
    let mut words = [0; 16];
    words[..7].copy_from_slice(&[MAGIC, at, rows, columns, high.into(), wide.into(), swizzle.into()]);
    Ok(TensorMap(words))
}

/// The matrix of a map.
pub(crate) fn decode(map: &TensorMap) -> Option<Matrix> {
    let [MAGIC, at, rows, columns, high, wide, swizzle, ..] = map.0 else { return None };
    Some(Matrix { at, extents: [rows, columns], tile: [high as u32, wide as u32], swizzle: swizzle as u32 })
}

impl Expected {
    /// Whether a matrix is what the kernel was compiled for.
    pub(crate) fn is(&self, matrix: &Matrix) -> bool {
        let [rows, columns] = matrix.extents;
        (self.rows == 0 || self.rows == rows)
            && (self.columns, self.tile, self.swizzle) == (columns, matrix.tile, matrix.swizzle)
    }
}

impl StandIn {
    /// A parameter in the log.
    pub(crate) fn shown(&self, param: &Param) -> String {
        match param {
            Param::Word(at) => self.place(*at),
            Param::Map(map) => decode(map).map_or("?".into(), |matrix| {
                let ([rows, columns], [high, wide]) = (matrix.extents, matrix.tile);
                format!("{}[{rows}x{columns} by {high}x{wide}, {}]", self.place(matrix.at), matrix.swizzle)
            }),
        }
    }

    /// The address of a parameter, and how far its map reaches. An error unless maps are where the kernel takes them, and those that it
    /// was compiled for.
    pub(crate) fn passed(
        &self,
        expected: &[Expected],
        at: usize,
        param: &Param,
    ) -> Result<(Address, Option<u64>), DriverError> {
        let expected = expected.iter().find(|map| map.param == at);
        match (param, expected) {
            (Param::Word(at), None) => Ok((*at, None)),
            (Param::Map(map), Some(expected)) => {
                let matrix = decode(map).filter(|matrix| expected.is(matrix));
                let matrix =
                    matrix.ok_or_else(|| illegal("cuLaunchKernelEx", "another tensor map than the kernel's"))?;
                let bytes = matrix.extents[0] * matrix.extents[1] * ELEM;
                self.heap().within("cuLaunchKernelEx", matrix.at, bytes)?;
                Ok((matrix.at, Some(bytes)))
            }
            _ => Err(illegal("cuLaunchKernelEx", "a tensor map in the place of an address, or the reverse")),
        }
    }
}
