//! The ops of a perceptron.

use super::{Builder, Factor, Output, int};
use crate::decoder::{Activation, Gated};
use crate::error::Result;
use crate::tensor_names::Slot;

impl Builder<'_> {
    /// The matrix of a gated linear unit: gate, then up.
    pub(super) fn gate_up_factor(&mut self, index: usize, gated: &Gated) -> Factor {
        let parts = match gated.fused {
            true => vec![self.rows(Slot::GateUp, index, 2 * gated.width)],
            false => [Slot::Gate, Slot::Up].map(|slot| self.rows(slot, index, gated.width)).to_vec(),
        };
        self.factor(&format!("layers.{index}.gate_up"), parts, self.decoder.hidden)
    }

    /// Emits the gated linear unit of `gate_up`. `input` is normed.
    pub(super) fn gated(&mut self, index: usize, gated: &Gated, (input, gate_up): (u32, Factor)) -> Result<Output> {
        let hidden = self.decoder.hidden;
        let activation = match gated.activation {
            Activation::Silu => 0,
            Activation::GeluTanh => 1,
        };
        let ins = self.factors((input, hidden), &gate_up)?;
        let act = [("ACT", int(activation))];
        let k = self.bind_product("linear_glu", (&gate_up, hidden, gated.width), &act, vec![])?;
        let buffer = self.scratch_as(gated.width, gate_up.reads(self.target.act), &ins);
        self.push_rowwise(k, ins, vec![buffer]);

        let down = vec![self.rows(Slot::Down, index, hidden)];
        let projection = self.factor(&format!("layers.{index}.down"), down, gated.width);
        Ok(Output { buffer, width: gated.width, projection })
    }
}
