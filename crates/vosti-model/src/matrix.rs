//! Reads a matrix of a model's files row by row: plain tensors, GGML's quantised tensors, and codes with scales in other tensors.
//! A plain tensor may have the columns of its matrices as rows.
//!
//! It reads only the rows that a caller asks for and keeps none. Read next: `dequantise.rs`, `scaled.rs`.

use std::ops::Range;

use vosti_kernels::{Format, Quantised};

use crate::dequantise::{Block, GgmlType};
use crate::files::RawTensor;
use crate::mxfp4::{self, Mxfp4};
use crate::scaled::Scaled;

/// A matrix of a model's files. Rows are numbered in the order of the tensor.
pub(crate) enum Matrix<'a> {
    /// A tensor of one of GGML's types; safetensors have the three plain ones.
    Tensor(RawTensor<'a>),
    Scaled(Scaled<'a>),
    Mxfp4(Mxfp4<'a>),
    Transposed(Transposed<'a>),
}

/// Matrices of plain numbers, each stored by columns.
pub(crate) struct Transposed<'a> {
    raw: RawTensor<'a>,
    /// Rows of a matrix.
    rows: usize,
    /// Rows of all matrices, and columns of each.
    shape: [usize; 2],
}

impl<'a> Transposed<'a> {
    /// The bytes of the matrices that have some of these rows.
    fn bytes(&self, rows: Range<usize>) -> &'a [u8] {
        let size = self.rows * self.shape[1] * self.raw.kind.block_bytes();
        &self.raw.bytes[rows.start / self.rows * size..rows.end.div_ceil(self.rows) * size]
    }

    fn expand(&self, row: usize, out: &mut [f32]) {
        let size = self.raw.kind.block_bytes();
        let matrix = self.bytes(row..row + 1);
        for (column, out) in out.iter_mut().enumerate() {
            let at = (column * self.rows + row % self.rows) * size;
            self.raw.kind.expand(&matrix[at..at + size], std::slice::from_mut(out));
        }
    }
}

impl<'a> Matrix<'a> {
    /// The same, with a plain tensor of three axes read as matrices that it has by columns.
    pub fn transposed(self) -> Self {
        match self {
            Matrix::Tensor(raw) if raw.kind.block_elements() == 1 => match raw.shape[..] {
                [count, columns, rows] => Matrix::Transposed(Transposed { raw, rows, shape: [count * rows, columns] }),
                _ => Matrix::Tensor(raw),
            },
            other => other,
        }
    }

    /// Axes, slowest first.
    pub fn shape(&self) -> &[usize] {
        match self {
            Matrix::Tensor(raw) => &raw.shape,
            Matrix::Mxfp4(blocks) => &blocks.shape,
            Matrix::Transposed(matrices) => &matrices.shape,
            Matrix::Scaled(scaled) => &scaled.shape,
        }
    }

    /// The bytes of some rows.
    pub fn bytes(&self, rows: Range<usize>) -> &'a [u8] {
        match self {
            Matrix::Tensor(raw) => {
                let row = row_bytes(raw);
                &raw.bytes[rows.start * row..rows.end * row]
            }
            Matrix::Scaled(scaled) => scaled.bytes(rows),
            Matrix::Mxfp4(blocks) => blocks.bytes(rows),
            Matrix::Transposed(matrices) => matrices.bytes(rows),
        }
    }

    /// The first block of some rows with an element that is not finite, and the name of its type. `None` for plain numbers, which
    /// are not checked.
    pub fn first_not_finite(&self, rows: Range<usize>) -> Option<(usize, &'static str)> {
        match self {
            Matrix::Tensor(raw) => {
                let before = rows.start * row_bytes(raw) / raw.kind.block_bytes();
                let block = raw.kind.first_not_finite(self.bytes(rows))?;
                Some((before + block, raw.kind.name()))
            }
            Matrix::Scaled(scaled) => scaled.first_not_finite(rows),
            Matrix::Mxfp4(blocks) => Some((blocks.first_not_finite(rows)?, mxfp4::KIND.name())),
            Matrix::Transposed(_) => None,
        }
    }

    /// A row's elements, if they are BF16 already.
    pub fn bf16(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Matrix::Tensor(raw) if raw.kind == GgmlType::BF16 => Some(self.bytes(row..row + 1)),
            _ => None,
        }
    }

    /// Whether elements are rounded to BF16 after the expansion, for every type of activations.
    pub fn rounds(&self) -> bool {
        match self {
            Matrix::Tensor(raw) => raw.kind.block_elements() > 1,
            Matrix::Scaled(_) | Matrix::Mxfp4(_) => true,
            Matrix::Transposed(_) => false,
        }
    }

    /// Expands a row to f32.
    pub fn expand(&self, row: usize, out: &mut [f32]) {
        match self {
            Matrix::Tensor(raw) => raw.kind.expand(self.bytes(row..row + 1), out),
            Matrix::Scaled(scaled) => scaled.expand(row, out),
            Matrix::Mxfp4(blocks) => mxfp4::KIND.expand(&blocks.blocks(row), out),
            Matrix::Transposed(matrices) => matrices.expand(row, out),
        }
    }

    /// The format of its blocks; `None` if it has no blocks that a device may keep.
    pub fn format(&self) -> Option<&'static Format> {
        match self {
            Matrix::Tensor(raw) => raw.kind.format(),
            Matrix::Scaled(scaled) => scaled.format(),
            Matrix::Mxfp4(_) => mxfp4::KIND.format(),
            Matrix::Transposed(_) => None,
        }
    }

    /// The format of its blocks, if products with it are computed in integers: every block of a type of GGML's whose scales are
    /// FP16 numbers. MXFP4's scales are powers of two that FP16 does not have, and codes in other tensors may have any scales.
    pub fn integers(&self) -> Option<&'static Format> {
        match self {
            Matrix::Tensor(raw) if raw.kind != GgmlType::MXFP4 => raw.kind.format(),
            _ => None,
        }
    }

    /// Appends a row's blocks; false if a scale is not an FP16 number.
    pub fn append_blocks(&self, row: usize, out: &mut Quantised) -> bool {
        match self {
            Matrix::Tensor(raw) => append_row(raw.kind, self.bytes(row..row + 1), out),
            Matrix::Scaled(scaled) => scaled.append_blocks(row, out),
            Matrix::Mxfp4(blocks) => append_row(mxfp4::KIND, &blocks.blocks(row), out),
            Matrix::Transposed(_) => false,
        }
    }
}

/// Appends a row of GGML's blocks; false if a scale is not an FP16 number.
fn append_row(kind: GgmlType, row: &[u8], out: &mut Quantised) -> bool {
    let (mut block, mut exact) = (Block::default(), true);
    for bytes in row.chunks_exact(kind.block_bytes()) {
        block.read(kind, bytes);
        exact &= append_block(&block, out);
    }
    exact
}

/// Bytes of a stored row.
fn row_bytes(raw: &RawTensor<'_>) -> usize {
    raw.shape.last().map_or(0, |columns| columns / raw.kind.block_elements() * raw.kind.block_bytes())
}

fn append_block(block: &Block, out: &mut Quantised) -> bool {
    let format = out.format;
    let groups = format.chunk / format.group;
    out.codes.extend(&block.codes[..format.chunk]);
    if format.two_levels() {
        out.group_scales.extend(&block.scales[..groups]);
        if format.minimum {
            out.group_minima.extend(&block.minima[..groups]);
        }
    }
    append_scales(block.d, block.m, out)
}

/// Appends a block's scale, and its minimum if the format has one; false if one of them is not an FP16 number.
pub(crate) fn append_scales(scale: f32, minimum: f32, out: &mut Quantised) -> bool {
    let (d, m) = (half::f16::from_f32(scale), half::f16::from_f32(minimum));
    out.scales.push(d.to_bits());
    if out.format.minimum {
        out.minima.push(m.to_bits());
    }
    d.to_f32() == scale && (!out.format.minimum || m.to_f32() == minimum)
}
