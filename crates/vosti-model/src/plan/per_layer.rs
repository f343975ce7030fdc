//! The ops of per-layer embeddings, as Gemma 4 E2B and E4B have them. A second table and a projection of the embedding have numbers for each
//! layer; the last part of a layer multiplies its own by a gate of the residual stream, projects them and adds their norm.
//!
//! A layer's own input is `(scale t + norm(p / root(hidden)) w) / root(2)`, with numbers t of the table and p of the projection. Vosti defines
//! that the table's scale and w are divided by root(2), and that the norm of p has `hidden` times the epsilon in place of the division.
//! Read next: `kernels/per_layer_gate.py`.

use vosti_contract::Const;
use vosti_core::{Dtype, Op, RowSet};

use super::{Builder, STREAM, int};
use crate::error::Result;
use crate::tensor_names::Slot;

/// What layers make inputs of their own from: buffers with numbers for each layer, which no later op writes.
#[derive(Clone, Copy)]
pub(super) struct PerLayer {
    /// Numbers of a layer.
    width: u32,
    /// A token's row in the second table, in FP32.
    embedded: u32,
    /// The projection of a token's embedding.
    projected: u32,
}

impl Builder<'_> {
    /// Emits the second embedding and the projection of the first one, which is in `stream`.
    pub(super) fn embed_per_layer(&mut self, width: u32, stream: u32) -> Result<()> {
        let (hidden, vocab) = (self.decoder.hidden, self.decoder.vocab);
        let all = width * self.decoder.layers.len() as u32;
        let embedded = self.buffer(all, Dtype::F32, RowSet::All);
        let table = self.matrix("per_layer.table", vec![self.rows(Slot::PerLayerTable, 0, vocab)], all);
        let scale = (f64::from(width) / 2.0).sqrt();
        let k =
            self.bind("embed", &[("V", int(vocab)), ("H", int(all)), ("SCALE", Const::Float(scale))], vec![table])?;
        self.ops.push(Op::Embed { k, out: embedded });

        let factor = self.factor("per_layer.model", vec![self.rows(Slot::PerLayerModel, 0, all)], hidden);
        let ins = self.factors((stream, hidden), &factor)?;
        let k = self.bind_product("linear", (&factor, hidden, all), &[], vec![])?;
        let projected = self.buffer(all, self.target.act, RowSet::All);
        self.push_rowwise(k, ins, vec![projected]);
        self.per_layer = Some(PerLayer { width, embedded, projected });
        Ok(())
    }

    /// Copies the rows that feed logits.
    pub(super) fn choose_per_layer(&mut self) -> Result<()> {
        let Some(PerLayer { width, embedded, projected }) = self.per_layer else { return Ok(()) };
        let all = width * self.decoder.layers.len() as u32;
        let k = self.bind("gather", &[("K", int(all)), ("H", int(all))], Vec::new())?;
        let chosen = [projected, embedded].map(|buffer| self.buffer(all, self.dtype(buffer), RowSet::Selected));
        self.push_rowwise(k, vec![projected, embedded], chosen.to_vec());
        self.per_layer = Some(PerLayer { width, embedded: chosen[1], projected: chosen[0] });
        Ok(())
    }

    /// Emits a layer's own input, times its gate of the residual stream, and adds the norm of its projection to the stream:
    /// `stream[1] = stream[0] + norm(projection)`. `scalar` is the weight that multiplies the sum.
    pub(super) fn own_input(
        &mut self,
        index: usize,
        PerLayer { width, embedded, projected }: PerLayer,
        stream: [u32; STREAM],
        scalar: Option<String>,
    ) -> Result<()> {
        let d = self.decoder;
        let gate = vec![self.rows(Slot::PerLayerGate, index, width)];
        let gate = self.factor(&format!("layers.{index}.per_layer_gate"), gate, d.hidden);
        let gates = self.linear((stream[0], d.hidden), &gate, width)?;

        let norm = vec![self.rows(Slot::PerLayerModelNorm, 0, width)];
        let norm = self.vector("w", "per_layer.norm", norm, d.norm_offset, std::f32::consts::SQRT_2);
        let dims = [
            ("LAYERS", int(d.layers.len() as u32)),
            ("LAYER", int(index as u32)),
            ("H", int(width)),
            ("EPS", Const::Float(d.eps * f64::from(d.hidden))),
        ];
        let k = self.bind("per_layer_gate", &dims, vec![norm])?;
        let buffer = self.scratch(width, &[gates]);
        self.push_rowwise(k, vec![gates, projected, embedded], vec![buffer]);

        let projection = vec![self.rows(Slot::PerLayerProjection, index, d.hidden)];
        let projection = self.factor(&format!("layers.{index}.per_layer_projection"), projection, width);
        let output = self.linear((buffer, width), &projection, d.hidden)?;
        self.add_normed((index, ("post_per_layer_norm", Slot::PostPerLayerNorm)), output, stream, scalar)
    }
}
