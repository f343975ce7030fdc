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

impl Builder<'_> {
    /// Emits fused projection, cache store and convolution. `input` is normed.
    pub(super) fn short_conv(
        &mut self,
        index: usize,
        conv: ShortConv,
        (input, fused): (u32, Factor),
    ) -> Result<Output> {
        let hidden = self.decoder.hidden;
        let (kv_heads, head_dim) = heads(hidden).expect("dimensions.rs refuses an odd number of channels");
        let fused = self.linear((input, hidden), &fused, 3 * hidden)?;
        let dims = [("KV_HEADS", int(kv_heads)), ("D", int(head_dim)), ("PAGE", int(vosti_core::PAGE as u32))];

        let part = PartDecl { heads: kv_heads, width: head_dim, dtype: self.target.act };
        let cache = self.cache(GroupDecl { window: Some(conv.taps), entry: vec![part; 2], state: vec![] });
        let k = self.bind("store_gated", &dims, Vec::new())?;
        self.ops.push(Op::StoreKv { k, ins: vec![fused], layer: cache, back: 0 });

        let part = MatrixPart::whole(self.tensor(Slot::ConvTaps, index), hidden as usize);
        let recipe = Recipe::Matrix { parts: vec![part], columns: conv.taps as usize, dtype: vosti_core::Dtype::F32 };
        let taps = self.weight("taps", &format!("layers.{index}.taps"), recipe);
        let window = [("GROUP", int(2)), ("WINDOW", int(conv.taps))];
        let k = self.bind("short_conv", &[&dims[..], &window].concat(), vec![taps])?;
        let buffer = self.scratch(hidden, &[fused]);
        self.ops.push(Op::Attend { k, q: fused, layer: cache, out: buffer, window: Some(conv.taps) });

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
}
