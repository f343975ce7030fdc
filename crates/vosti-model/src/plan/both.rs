//! The ops of a perceptron and a mixture of experts beside each other, as Gemma 4 26B-A4B has them: both read the residual stream, the
//! router too, each through a norm of its own; each result is normed, and so is their sum.
//!
//! Vosti defines the sum as the mixture's result plus the perceptron's, in FP32. Read next: `mlp.rs`.

use vosti_core::Dtype;

use super::mlp::DENSE;
use super::{Builder, Factor, MLP, Output, int};
use crate::decoder::{Experts, Gated};
use crate::error::Result;
use crate::recipe::MatrixPart;
use crate::tensor_names::{ExpertSlot, Slot};

impl Builder<'_> {
    /// Emits both, and returns the sum of their norms, in FP32. `stream` is the residual stream.
    pub(super) fn both(&mut self, index: usize, gated: &Gated, experts: &Experts, stream: u32) -> Result<u32> {
        let hidden = self.decoder.hidden;
        let gate_up = self.gate_up_factor(index, gated, &DENSE);
        let input = self.enter(index, &MLP, stream, &gate_up)?;
        let Output { buffer, width, projection } = self.gated(index, gated, (input, gate_up), &DENSE)?;
        let dense = self.linear((buffer, width), &projection, hidden)?;
        self.held.push(dense);
        let mixture = self.mixture(index, experts, stream)?;
        self.held.clear();

        let weight =
            self.norm_weight("w", &format!("layers.{index}.post_gated_norm"), Slot::PostGatedNorm, index, hidden);
        let k = self.bind("rmsnorm_add", &self.norm_dims(), vec![weight])?;
        let sum = self.scratch_as(hidden, Dtype::F32, &[mixture, dense]);
        self.push_rowwise(k, vec![mixture, dense], vec![sum]);
        Ok(sum)
    }

    /// Emits the router, the experts and the norm of their sum, in FP32.
    fn mixture(&mut self, index: usize, experts: &Experts, stream: u32) -> Result<u32> {
        let hidden = self.decoder.hidden;
        let norm = self.expert_tensor(experts, ExpertSlot::RouterNorm, index, 0);
        let parts = vec![MatrixPart::whole(norm, hidden as usize)];
        let weight = self.vector("w", &format!("layers.{index}.router_norm"), parts, 0.0, (hidden as f32).sqrt());
        let routed = self.norm(weight, stream, &Factor::of_activations())?;
        let (ids, shares) = self.route(index, experts, routed)?;
        self.held.extend([ids, shares]);

        let gate_up = self.experts_factor(index, experts);
        let weight = self.norm_weight("w", &format!("layers.{index}.mixture_norm"), Slot::MixtureNorm, index, hidden);
        let input = self.norm(weight, stream, &gate_up)?;
        let outputs = self.expert_outputs(index, experts, (input, gate_up), (ids, shares))?;

        let factor = self.expert_tensor(experts, ExpertSlot::Factor, index, 0);
        let parts = vec![MatrixPart::whole(factor, experts.count as usize)];
        let factor = self.vector("factor", &format!("layers.{index}.experts.factor"), parts, 0.0, 1.0);
        let dims = [("H", int(hidden)), ("TOPK", int(experts.chosen)), ("E", int(experts.count))];
        let k = self.bind_as("combine_scaled", self.dtype(outputs), &dims, vec![factor])?;
        let sum = self.scratch_as(hidden, Dtype::F32, &[outputs, shares, ids]);
        self.push_rowwise(k, vec![outputs, shares, ids], vec![sum]);

        let name = format!("layers.{index}.post_mixture_norm");
        let weight = self.norm_weight("w", &name, Slot::PostMixtureNorm, index, hidden);
        let k = self.bind_as("rmsnorm", Dtype::F32, &self.norm_dims(), vec![weight])?;
        let normed = self.scratch_as(hidden, Dtype::F32, &[sum]);
        self.push_rowwise(k, vec![sum], vec![normed]);
        Ok(normed)
    }
}
