//! Products of activations and a matrix, in the activations' type or in integers.
//!
//! A matrix that a file has in blocks is multiplied in integers: its input is FP32, becomes integers (`quantise`), and meets the
//! codes, scales and offsets of the blocks. Any other matrix is multiplied as it is. Which it is depends on the file and on the
//! target alone. Read next: `kernels/integers.py`.

use vosti_contract::Const;
use vosti_core::Dtype;
use vosti_kernels::quantised::BLOCK;
use vosti_kernels::{Format, Part};

use super::{Arithmetic, Builder, int};
use crate::error::Result;
use crate::recipe::{MatrixPart, Recipe};

/// Rows of a panel of weights: where one tensor of a stack ends and one of another format begins, a new panel must begin.
const STACKED: usize = 64;

/// The right factor of a product: a matrix's weights.
pub(super) struct Factor {
    /// The names of its weights: the matrix, or its codes, scales and offsets.
    weights: Vec<String>,
    /// The form of its blocks, if it is multiplied in integers.
    blocks: Option<Blocks>,
}

/// What a product in integers must know of all blocks of a matrix.
#[derive(Clone, Copy)]
struct Blocks {
    /// Whether the halves of a block may have scales of their own.
    halves: bool,
    /// Whether blocks may have minima.
    offsets: bool,
}

impl Factor {
    /// Of a product that takes activations as they are.
    pub fn of_activations() -> Self {
        Factor { weights: vec![], blocks: None }
    }

    /// The type of the input of a product, if activations have the type `act`.
    pub fn reads(&self, act: Dtype) -> Dtype {
        if self.blocks.is_some() { Dtype::F32 } else { act }
    }
}

impl Builder<'_> {
    /// The matrix of a product, stacked from tensors of `columns` columns.
    pub(super) fn factor(&mut self, name: &str, parts: Vec<MatrixPart>, columns: u32) -> Factor {
        let Some(blocks) = self.blocks(&parts, columns as usize) else {
            return Factor { weights: vec![self.matrix(name, parts, columns)], blocks: None };
        };
        let weights = Part::ALL.map(|part| {
            let recipe = Recipe::Blocks { matrix: name.into(), parts: parts.clone(), columns: columns as usize, part };
            self.weight(part.parameter(), &format!("{name}.{}", part.parameter()), recipe)
        });
        Factor { weights: weights.to_vec(), blocks: Some(blocks) }
    }

    /// The form of a matrix that is multiplied in integers: all of its tensors are in blocks, and of one format or cut where panels
    /// are.
    fn blocks(&self, parts: &[MatrixPart], columns: usize) -> Option<Blocks> {
        if self.target.arithmetic == Arithmetic::Bf16 {
            return None;
        }
        let format = |part: &MatrixPart| (self.formats)(&part.tensor).filter(|_| part.as_stored());
        let formats = parts.iter().map(format).collect::<Option<Vec<&Format>>>()?;
        let one = formats.iter().all(|format| *format == formats[0]);
        let cut = parts.iter().all(|part| part.rows.is_multiple_of(STACKED));
        let whole = formats.iter().all(|format| columns.is_multiple_of(format.chunk));
        (whole && (one || cut)).then(|| Blocks {
            halves: formats.iter().any(|format| format.group < BLOCK),
            offsets: formats.iter().any(|format| format.minimum),
        })
    }

    /// The left factors of a product with `factor`: the buffer in the activations' type, or its integers.
    pub(super) fn factors(&mut self, x: (u32, u32), factor: &Factor) -> Result<Vec<u32>> {
        self.factors_beside(x, factor, &[])
    }

    /// The same in other buffers than those of `kept`.
    pub(super) fn factors_beside(&mut self, (x, width): (u32, u32), factor: &Factor, kept: &[u32]) -> Result<Vec<u32>> {
        if factor.blocks.is_none() {
            return Ok(vec![self.rounded((x, width))?]);
        }
        let blocks = width / BLOCK as u32;
        let mut outs = vec![];
        for (width, dtype) in [(width, Dtype::I8), (width, Dtype::I8), (blocks, Dtype::F32), (2 * blocks, Dtype::F32)] {
            let others = [&outs[..], &[x], kept].concat();
            outs.push(self.scratch_as(width, dtype, &others));
        }
        let dims = [("BLOCKS", int(blocks)), self.wide()];
        let k = self.bind_as("quantise", self.dtype(x), &dims, vec![])?;
        self.push_rowwise(k, vec![x], outs.clone());
        Ok(outs)
    }

    /// The buffer in the activations' type.
    pub(super) fn rounded(&mut self, (x, width): (u32, u32)) -> Result<u32> {
        if self.dtype(x) == self.target.act {
            return Ok(x);
        }
        let k = self.bind("round_stream", &[("H", int(width))], vec![])?;
        let out = self.scratch(width, &[x]);
        self.push_rowwise(k, vec![x], vec![out]);
        Ok(out)
    }

    /// Whether activations that become integers have 16 bits.
    fn wide(&self) -> (&'static str, Const) {
        ("WIDE", int((self.target.arithmetic == Arithmetic::Integers16) as u32))
    }

    /// The binding of a product of `k` by `n`: `kernel` is its name for matrices that are not in blocks, and the second part of the
    /// other's name follows `int`.
    pub(super) fn bind_product(
        &mut self,
        kernel: &str,
        (factor, k, n): (&Factor, u32, u32),
        dims: &[(&str, Const)],
        weights: Vec<String>,
    ) -> Result<u32> {
        let weights = [&factor.weights[..], &weights].concat();
        let Some(Blocks { halves, offsets }) = factor.blocks else {
            return self.bind(kernel, &[&[("K", int(k)), ("N", int(n))], dims].concat(), weights);
        };
        let blocks = ("BLOCKS", int(k / BLOCK as u32));
        let form = [("HALVES", int(halves as u32)), ("OFFSETS", int(offsets as u32)), self.wide()];
        let dims = [&[blocks, ("N", int(n))], &form[..], dims].concat();
        let in_integers = match kernel.split_once('_') {
            Some((name, rest)) => format!("{name}_int_{rest}"),
            None => format!("{kernel}_int"),
        };
        self.bind(&in_integers, &dims, weights)
    }

    /// A product in the activations' type.
    pub(super) fn linear(&mut self, (x, k): (u32, u32), factor: &Factor, n: u32) -> Result<u32> {
        self.product("linear", (x, k), factor, n, vec![])
    }

    /// A product of this kernel, with weights besides the matrix, in the activations' type.
    pub(super) fn product(
        &mut self,
        kernel: &str,
        (x, k): (u32, u32),
        factor: &Factor,
        n: u32,
        weights: Vec<String>,
    ) -> Result<u32> {
        let ins = self.factors((x, k), factor)?;
        let binding = self.bind_product(kernel, (factor, k, n), &[], weights)?;
        let out = self.scratch(n, &ins);
        self.push_rowwise(binding, ins, vec![out]);
        Ok(out)
    }
}
