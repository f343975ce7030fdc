//! Experts of Hugging Face folders in MXFP4: a tensor of codes of four bits, and one of exponents, one for each block of 32.
//!
//! An element is the code's number times a power of two, which BF16 holds exactly. Blocks are GGML's but for the order of their
//! codes, so a block becomes one of GGML's and is read as such. Source: transformers `integrations/mxfp4.py`. Read next:
//! `dequantise.rs`.

use std::ops::Range;

use safetensors::Dtype;

use crate::dequantise::GgmlType;
use crate::error::{ModelError, Result};
use crate::scaled::Stored;

/// Elements of a block.
const BLOCK: usize = 32;
/// Bytes of a block's codes.
const BYTES: usize = BLOCK / 2;
/// The type whose blocks these become.
pub(crate) const KIND: GgmlType = GgmlType::MXFP4;

/// The matrices of all experts, one above the other.
pub(crate) struct Mxfp4<'a> {
    /// Rows of all matrices, and columns.
    pub shape: [usize; 2],
    codes: &'a [u8],
    exponents: &'a [u8],
}

impl<'a> Mxfp4<'a> {
    /// The matrices with a name; `None` if the folder has no such codes. Error: the tensors do not fit each other.
    pub fn find(name: &str, find: &dyn Fn(&str) -> Option<Stored<'a>>) -> Result<Option<Self>> {
        let Some(codes) = find(&format!("{name}_blocks")) else { return Ok(None) };
        let wrong = |why: String| Err(ModelError::Scales { tensor: name.into(), why });
        let Some(exponents) = find(&format!("{name}_scales")) else { return wrong("its _scales are missing".into()) };
        if (codes.dtype, exponents.dtype) != (Dtype::U8, Dtype::U8) {
            return wrong(format!("_blocks of {:?} and _scales of {:?} are not bytes", codes.dtype, exponents.dtype));
        }
        match (codes.shape, exponents.shape) {
            ([outer @ .., across, BYTES], of) if [outer, &[*across]].concat() == of => {
                let shape = [outer.iter().product(), across * BLOCK];
                Ok(Some(Self { shape, codes: codes.bytes, exponents: exponents.bytes }))
            }
            (codes, exponents) => {
                wrong(format!("_scales of shape {exponents:?} do not fit _blocks of shape {codes:?}"))
            }
        }
    }

    /// The bytes of the codes of some rows.
    pub fn bytes(&self, rows: Range<usize>) -> &'a [u8] {
        let row = self.shape[1] / 2;
        &self.codes[rows.start * row..rows.end * row]
    }

    /// The indices of a row's blocks.
    fn row(&self, row: usize) -> Range<usize> {
        let across = self.shape[1] / BLOCK;
        row * across..(row + 1) * across
    }

    /// A row in GGML's blocks.
    pub fn blocks(&self, row: usize) -> Vec<u8> {
        self.row(row).flat_map(|index| self.block(index)).collect()
    }

    /// A block as GGML has it: the exponent, then bytes of which the k-th has element k in its low bits and element k + 16 in the
    /// others. Here a byte has two neighbours.
    fn block(&self, index: usize) -> [u8; 1 + BYTES] {
        let bytes = &self.codes[index * BYTES..][..BYTES];
        let code = |k: usize| bytes[k / 2] >> (4 * (k % 2)) & 15;
        std::array::from_fn(|i| match i {
            0 => self.exponents[index],
            _ => code(i - 1) | code(i - 1 + BYTES) << 4,
        })
    }

    /// The first block of some rows with an element that is not finite.
    pub fn first_not_finite(&self, rows: Range<usize>) -> Option<usize> {
        rows.into_iter()
            .flat_map(|row| self.row(row))
            .find(|index| KIND.first_not_finite(&self.block(*index)).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_byte_are_neighbours_of_a_row() {
        // Codes 0 to 15 in order, twice, an even one in the low bits and the next in the others; 2 to the power of 128 - 127.
        let codes: Vec<u8> = (0..BYTES as u8).map(|k| 2 * (k % 8) + 16 * (2 * (k % 8) + 1)).collect();
        let matrix = Mxfp4 { shape: [1, BLOCK], codes: &codes, exponents: &[128] };
        let mut out = [0.0; BLOCK];
        KIND.expand(&matrix.blocks(0), &mut out);
        let numbers = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (k, value) in out.iter().enumerate() {
            let sign = if k % 16 < 8 { 2.0 } else { -2.0 };
            assert_eq!(*value, sign * numbers[k % 8], "{k}");
        }
        assert_eq!(matrix.first_not_finite(0..1), None);
        assert_eq!(Mxfp4 { exponents: &[255], ..matrix }.first_not_finite(0..1), Some(0));
    }
}
