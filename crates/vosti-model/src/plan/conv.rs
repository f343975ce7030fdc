//! The ops of a short convolution: projection, store of the gated inputs, and the convolution, which is attention with fixed weights
//! over a window.

use vosti_core::{GroupDecl, Op, PartDecl};

use super::{Builder, Factor, Output, int};
use crate::decoder::ShortConv;
use crate::error::Result;
use crate::recipe::{MatrixPart, Recipe};
use crate::tensor_names::Slot;

/// Channels of a head, if the model has so many. A pair of heads has its inputs in the keys and the values of one KV head.
const CHANNELS: u32 = 64;

/// The cache's shape for this many channels: KV heads, and numbers of each.
pub(crate) fn heads(channels: u32) -> Option<(u32, u32)> {
    let head = (1..=CHANNELS).rev().find(|head| channels.is_multiple_of(2 * head))?;
    Some((channels / (2 * head), head))
}

/// A convolution that a program emits.
pub(super) struct Convolution {
    /// The kernels of its store and of its sums.
    pub kernels: [&'static str; 2],
    /// Inputs of a channel that a row sees.
    pub taps: u32,
    /// The rows of its weights, one for each channel.
    pub weights: Vec<MatrixPart>,
    /// What is added to its sums, for a kernel that adds something.
    pub bias: Option<MatrixPart>,
}

impl Builder<'_> {
    /// Emits fused projection, cache store and convolution. `input` is normed.
    pub(super) fn short_conv(
        &mut self,
        index: usize,
        conv: ShortConv,
        (input, fused): (u32, Factor),
    ) -> Result<Output> {
        let hidden = self.decoder.hidden;
        let fused = self.linear((input, hidden), &fused, 3 * hidden)?;
        let weights = vec![self.rows(Slot::ConvTaps, index, hidden)];
        let conv = Convolution { kernels: ["store_gated", "short_conv"], taps: conv.taps, weights, bias: None };
        let buffer = self.convolve(index, conv, fused)?;

        let output = vec![self.rows(Slot::ConvOut, index, hidden)];
        let projection = self.factor(&format!("layers.{index}.conv_out"), output, hidden);
        Ok(Output { buffer, width: hidden, projection })
    }

    /// The matrix of the projection to both gates and the input.
    pub(super) fn conv_factor(&mut self, index: usize) -> Factor {
        let hidden = self.decoder.hidden;
        let parts = vec![self.rows(Slot::ConvIn, index, 3 * hidden)];
        self.factor(&format!("layers.{index}.conv_in"), parts, hidden)
    }

    /// Emits the store of a convolution's inputs, which are in `input`, and its sums. Returns their buffer.
    pub(super) fn convolve(&mut self, index: usize, conv: Convolution, input: u32) -> Result<u32> {
        let Convolution { kernels: [store, sum], taps, weights, bias } = conv;
        let channels: u32 = weights.iter().map(|part| part.rows as u32).sum();
        let (kv_heads, head_dim) = heads(channels).expect("dimensions.rs refuses an odd number of channels");
        let dims = [("KV_HEADS", int(kv_heads)), ("D", int(head_dim)), ("PAGE", int(vosti_core::PAGE as u32))];
        let part = PartDecl { heads: kv_heads, width: head_dim, dtype: self.target.act };
        let layer = self.cache(GroupDecl { window: Some(taps), entry: vec![part; 2], state: vec![] });
        let k = self.bind(store, &dims, Vec::new())?;
        self.ops.push(Op::StoreKv { k, ins: vec![input], layer, back: 0 });

        let recipe = Recipe::Matrix { parts: weights, columns: taps as usize, dtype: vosti_core::Dtype::F32 };
        let mut weights = vec![self.weight("taps", &format!("layers.{index}.taps"), recipe)];
        let bias = bias.map(|part| self.vector("bias", &format!("layers.{index}.taps_bias"), vec![part], 0.0, 1.0));
        weights.extend(bias);
        let window = [("GROUP", int(2)), ("WINDOW", int(taps))];
        let k = self.bind(sum, &[&dims[..], &window].concat(), weights)?;
        let out = self.scratch(channels, &[input]);
        self.ops.push(Op::Attend { k, q: input, layer, out, window: Some(taps) });
        Ok(out)
    }
}
