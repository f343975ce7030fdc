//! What layers with a state share: the state itself over pages, and products of the normed stream beside each other.
//!
//! Read next: `delta.rs` and `mamba.rs`, which make the inputs of a state, and `kernels/read_state.py`.

use vosti_core::{Dtype, GroupDecl, Op, PAGE, PartDecl};
use vosti_kernels::CPU;

use super::{Builder, MIXER, int};
use crate::error::Result;
use crate::inventory::COLUMNS_MAX_GPU;
use crate::recipe::{MatrixPart, Recipe};

/// The state of a layer: a matrix of `key` by `value` numbers for each of `group` heads of each of `key_heads`.
pub(super) struct State {
    /// The kernel that writes a page's entries and the state at its end.
    pub store: &'static str,
    pub key_heads: u32,
    pub group: u32,
    pub key: u32,
    pub value: u32,
}

impl Builder<'_> {
    /// How many programs have a head of so many values between them: a program of a GPU has registers for some columns of a state
    /// only. No column depends on another. Each slice is a head to what follows, with keys and log-decays of its own in its entries.
    pub(super) fn slices(&self, values: u32) -> u32 {
        let most = if self.target.name == CPU { values } else { COLUMNS_MAX_GPU };
        values.div_ceil(most)
    }

    /// Emits the store of a state's entries, made of `ins`, and what they give for the queries `q`. Returns the buffer of the results.
    pub(super) fn recur(&mut self, state: &State, ins: Vec<u32>, q: u32) -> Result<u32> {
        let State { key_heads, group, key, value, .. } = *state;
        let (heads, page) = (key_heads * group, PAGE as u32);
        let dims = [("KEY_HEADS", key_heads), ("GROUP", group), ("DK", key), ("DV", value), ("PAGE", page)];
        let dims = dims.map(|(name, number)| (name, int(number)));
        let part = |width| PartDecl { heads, width, dtype: Dtype::F32 };
        let entry = [key, value, 1].map(part).to_vec();
        let layer = self.cache(GroupDecl { window: Some(page + 1), entry, state: vec![part(key * value)] });
        let k = self.bind(state.store, &dims, Vec::new())?;
        self.ops.push(Op::StoreKv { k, ins, layer, back: page });
        let k = self.bind("read_state", &dims, Vec::new())?;
        let out = self.scratch_as(heads * value, Dtype::F32, &[q]);
        self.ops.push(Op::Attend { k, q, layer, out, window: Some(page + 1) });
        Ok(out)
    }

    /// A product of the normed stream, which is in `plain` in the activations' type.
    pub(super) fn product_beside(
        &mut self,
        index: usize,
        (name, parts): (&str, Vec<MatrixPart>),
        (stream, plain): (u32, u32),
    ) -> Result<u32> {
        let (hidden, width) = (self.decoder.hidden, rows(&parts));
        let factor = self.factor(&format!("layers.{index}.{name}"), parts, hidden);
        let input = match factor.reads(self.target.act) == self.dtype(plain) {
            true => plain,
            false => self.enter(index, &MIXER, stream, &factor)?,
        };
        self.linear((input, hidden), &factor, width)
    }

    /// A product of activations of the stream's width, in FP32.
    pub(super) fn exact_product(&mut self, name: &str, parts: Vec<MatrixPart>, input: u32) -> Result<u32> {
        let (hidden, width) = (self.decoder.hidden, rows(&parts));
        let weight = self.matrix(name, parts, hidden);
        let dims = [&[("K", int(hidden)), ("N", int(width))], &vosti_kernels::capped(0.0, 1.0)[..]].concat();
        let k = self.bind("linear_logits", &dims, vec![weight])?;
        let out = self.scratch_as(width, Dtype::F32, &[input]);
        self.push_rowwise(k, vec![input], vec![out]);
        Ok(out)
    }

    /// The factors of a state's decays: a Hugging Face file has the logarithms of their sizes.
    pub(super) fn rates(&mut self, index: usize, part: MatrixPart) -> String {
        let recipe = match self.decoder.naming.is_gguf() {
            true => Recipe::Vector { parts: vec![part], offset: 0.0, divisor: 1.0 },
            false => Recipe::Rates { part },
        };
        self.weight("rate", &format!("layers.{index}.rate"), recipe)
    }
}

fn rows(parts: &[MatrixPart]) -> u32 {
    parts.iter().map(|part| part.rows as u32).sum()
}
