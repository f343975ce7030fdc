//! The ops of a perceptron.

use super::{Builder, Output, int};
use crate::decoder::{Activation, Gated};
use crate::error::Result;
use crate::tensor_names::Slot;

impl Builder<'_> {
    /// Emits the gated linear unit. `input` is normed.
    pub(super) fn gated(&mut self, index: usize, gated: &Gated, input: u32) -> Result<Output> {
        let hidden = self.decoder.hidden;
        let parts = match gated.fused {
            true => vec![self.rows(Slot::GateUp, index, 2 * gated.width)],
            false => [Slot::Gate, Slot::Up].map(|slot| self.rows(slot, index, gated.width)).to_vec(),
        };
        let weight = self.matrix(&format!("layers.{index}.gate_up"), parts, hidden);
        let activation = match gated.activation {
            Activation::Silu => 0,
            Activation::GeluTanh => 1,
        };
        let dims = [("K", int(hidden)), ("N", int(gated.width)), ("ACT", int(activation))];
        let k = self.bind("linear_glu", &dims, vec![weight])?;
        let buffer = self.scratch(gated.width, input);
        self.push_rowwise(k, vec![input], vec![buffer]);

        let down = vec![self.rows(Slot::Down, index, hidden)];
        let projection = self.matrix(&format!("layers.{index}.down"), down, gated.width);
        Ok(Output { buffer, width: gated.width, projection })
    }
}
