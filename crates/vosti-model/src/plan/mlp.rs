//! The ops of a perceptron.

use vosti_contract::Const;
use vosti_core::Dtype;

use super::{Builder, Factor, Output, STREAM, int};
use crate::decoder::{Activation, ExpertTensors, Experts, Gated, Groups, Score, Shared};
use crate::error::{ModelError, Result};
use crate::recipe::{HeadRows, MatrixPart, Order, Recipe};
use crate::tensor_names::{ExpertSlot, Slot, expert_name};

/// The tensors of a layer's perceptron, and how its weights' names begin.
pub(super) struct Perceptron {
    name: &'static str,
    gate: Slot,
    up: Slot,
    down: Slot,
}

/// The only perceptron of a layer.
pub(super) const DENSE: Perceptron = Perceptron { name: "", gate: Slot::Gate, up: Slot::Up, down: Slot::Down };
/// The perceptron beside a mixture of experts.
const SHARED: Perceptron =
    Perceptron { name: "shared.", gate: Slot::SharedGate, up: Slot::SharedUp, down: Slot::SharedDown };

impl Builder<'_> {
    /// The first matrix of a perceptron: gate, then up, or up alone.
    pub(super) fn gate_up_factor(&mut self, index: usize, gated: &Gated, of: &Perceptron) -> Factor {
        let parts = match gated.fused {
            _ if !gated.activation.gated() => vec![self.rows(of.up, index, gated.width)],
            true => vec![self.rows(Slot::GateUp, index, 2 * gated.width)],
            false => [of.gate, of.up].map(|slot| self.rows(slot, index, gated.width)).to_vec(),
        };
        self.factor(&format!("layers.{index}.{}gate_up", of.name), parts, self.decoder.hidden)
    }

    /// Emits the units of `gate_up`. `input` is normed.
    pub(super) fn gated(
        &mut self,
        index: usize,
        gated: &Gated,
        (input, gate_up): (u32, Factor),
        of: &Perceptron,
    ) -> Result<Output> {
        let hidden = self.decoder.hidden;
        let buffer = match activation(gated.activation) {
            Some(act) => {
                let ins = self.factors((input, hidden), &gate_up)?;
                let k = self.bind_product("linear_glu", (&gate_up, hidden, gated.width), &[("ACT", act)], vec![])?;
                let buffer = self.scratch_as(gated.width, gate_up.reads(self.target.act), &ins);
                self.push_rowwise(k, ins, vec![buffer]);
                buffer
            }
            None => {
                let up = self.plain_units((input, hidden), &gate_up, gated.width)?;
                self.relu_squared((up, gated.width), &[input])?
            }
        };

        let down = vec![self.rows(of.down, index, hidden)];
        let projection = self.factor(&format!("layers.{index}.{}down", of.name), down, gated.width);
        Ok(Output { buffer, width: gated.width, projection })
    }

    /// Emits the perceptron beside a mixture. If it is gated, its units are multiplied by the row's gate: the product behind them is
    /// linear. `input` is normed.
    pub(super) fn shared(&mut self, index: usize, shared: &Shared, input: u32) -> Result<Output> {
        let gate = shared.gated.then(|| self.row_gate(index, input)).transpose()?;
        self.held.extend(gate);
        let gate_up = self.gate_up_factor(index, &shared.mlp, &SHARED);
        let mut output = self.gated(index, &shared.mlp, (input, gate_up), &SHARED)?;
        self.held.clear();
        if let Some(gate) = gate {
            let (units, dtype) = (output.buffer, self.dtype(output.buffer));
            let k = self.bind_as("gate_rows", dtype, &[("N", int(output.width))], vec![])?;
            output.buffer = self.scratch_as(output.width, dtype, &[units, gate]);
            self.push_rowwise(k, vec![units, gate], vec![output.buffer]);
        }
        Ok(output)
    }

    /// Emits the product with a matrix of units without a gate, in the type in which `linear_glu` would give them.
    fn plain_units(&mut self, (input, columns): (u32, u32), up: &Factor, width: u32) -> Result<u32> {
        let dtype = up.reads(self.target.act);
        if dtype == self.target.act {
            return self.linear((input, columns), up, width);
        }
        let ins = self.factors((input, columns), up)?;
        let k = self.bind_product("linear_logits", (up, columns, width), &vosti_kernels::capped(0.0, 1.0), vec![])?;
        let out = self.scratch_as(width, dtype, &ins);
        self.push_rowwise(k, ins, vec![out]);
        Ok(out)
    }

    /// Emits `max(x, 0)^2`, in a buffer that is none of `kept`.
    fn relu_squared(&mut self, (x, width): (u32, u32), kept: &[u32]) -> Result<u32> {
        let dtype = self.dtype(x);
        let k = self.bind_as("relu_squared", dtype, &[("N", int(width))], vec![])?;
        let out = self.scratch_as(width, dtype, &[&[x][..], kept].concat());
        self.push_rowwise(k, vec![x], vec![out]);
        Ok(out)
    }

    /// Emits the product of a row with the vector of the perceptron's gate, in FP32.
    fn row_gate(&mut self, index: usize, input: u32) -> Result<u32> {
        let hidden = self.decoder.hidden;
        let parts = vec![self.rows(Slot::SharedShare, index, 1)];
        let weight = self.matrix(&format!("layers.{index}.shared.share"), parts, hidden);
        let k = self.bind_logits((hidden, 1), weight)?;
        let x = self.rounded((input, hidden))?;
        let gate = self.scratch_as(1, Dtype::F32, &[input, x]);
        self.push_rowwise(k, vec![x], vec![gate]);
        Ok(gate)
    }

    /// A product of activations in their type whose results are FP32, as a router has.
    fn bind_logits(&mut self, (columns, rows): (u32, u32), weight: String) -> Result<u32> {
        let dims = [&[("K", int(columns)), ("N", int(rows))], &vosti_kernels::capped(0.0, 1.0)[..]].concat();
        self.bind("linear_logits", &dims, vec![weight])
    }

    /// The first matrix of all experts.
    pub(super) fn experts_factor(&mut self, index: usize, experts: &Experts) -> Factor {
        let parts = self.gates_and_ups(index, experts);
        self.factor(&format!("layers.{index}.experts.gate_up"), parts, self.decoder.hidden)
    }

    /// Emits the router, its experts and their sum, which is added to the stream: `stream[1] = stream[0] + sum`. Each op is
    /// row-wise: a row's choice and its experts' outputs are rows of buffers. `input` is normed.
    pub(super) fn experts(
        &mut self,
        index: usize,
        experts: &Experts,
        (input, gate_up): (u32, Factor),
        stream: [u32; STREAM],
    ) -> Result<()> {
        let layer = &self.decoder.layers[index];
        if layer.post_norms || layer.scaled {
            let feature = "a norm or a factor behind a mixture of experts".into();
            return Err(ModelError::Feature { family: self.decoder.family, feature });
        }
        let Experts { count, chosen, .. } = *experts;
        let (hidden, scale) = (self.decoder.hidden, layer.residual_scale);
        let (ids, shares) = self.route(index, experts, input)?;
        let outputs = self.expert_outputs(index, experts, (input, gate_up), (ids, shares))?;

        let (e, topk) = (("E", int(count)), ("TOPK", int(chosen)));
        let mut dims = vec![("H", int(hidden)), topk, ("SCALE", Const::Float(scale))];
        let mut ins = vec![outputs, shares, stream[0]];
        let (mut kernel, mut weights) = ("combine", vec![]);
        if experts.biased() {
            let tensor = self.expert_tensor(experts, ExpertSlot::DownBias, index, 0);
            let parts = vec![MatrixPart::whole(tensor, (count * hidden) as usize)];
            weights.push(self.vector("bias", &format!("layers.{index}.experts.down_bias"), parts, 0.0, 1.0));
            kernel = "combine_bias";
            dims.push(e);
            ins.push(ids);
        }
        let k = self.bind_as(kernel, self.dtype(outputs), &dims, weights)?;
        self.push_rowwise(k, ins, vec![stream[1]]);
        Ok(())
    }

    /// Emits the products of the experts that a row chose: a row of the result has one row for each choice. `input` is normed, and stays
    /// as it is, and so do experts and shares.
    pub(super) fn expert_outputs(
        &mut self,
        index: usize,
        experts: &Experts,
        (input, gate_up): (u32, Factor),
        (ids, shares): (u32, u32),
    ) -> Result<u32> {
        let Experts { count, chosen, width, .. } = *experts;
        let (hidden, kept) = (self.decoder.hidden, [ids, shares, input]);
        let (e, topk) = (("E", int(count)), ("TOPK", int(chosen)));
        let units = match activation(experts.activation) {
            Some(act) => {
                let ins = [self.factors_beside((input, hidden), &gate_up, &kept)?, vec![ids]].concat();
                let (bias, dims) = (self.gate_up_bias(index, experts), [e, topk, ("ACT", act)]);
                let k = self.bind_product("expert_glu", (&gate_up, hidden, width), &dims, vec![bias])?;
                let others = [&ins[..], &kept].concat();
                let units = self.scratch_as(chosen * width, gate_up.reads(self.target.act), &others);
                self.push_rowwise(k, ins, vec![units]);
                units
            }
            None => {
                let dtype = self.dtype(input);
                let spread = self.scratch_as(chosen * hidden, dtype, &kept);
                let k = self.bind_as("spread", dtype, &[("N", int(hidden)), topk], vec![])?;
                self.push_rowwise(k, vec![input], vec![spread]);
                let ups = self.expert_product(experts, (spread, hidden), &gate_up, width, (ids, &kept))?;
                self.relu_squared((ups, chosen * width), &kept)?
            }
        };

        let parts = self.downs(index, experts);
        let down = self.factor(&format!("layers.{index}.experts.down"), parts, width);
        self.expert_product(experts, (units, width), &down, hidden, (ids, &kept))
    }

    /// Emits the product of each of a row's stretches of `k` numbers with the matrix of its expert. Buffers of `kept` stay as they are.
    fn expert_product(
        &mut self,
        &Experts { count, chosen, .. }: &Experts,
        (x, k): (u32, u32),
        factor: &Factor,
        n: u32,
        (ids, kept): (u32, &[u32]),
    ) -> Result<u32> {
        let dims = [("E", int(count)), ("TOPK", int(chosen))];
        let ins = [self.factors_beside((x, chosen * k), factor, kept)?, vec![ids]].concat();
        let k = self.bind_product("expert_down", (factor, k, n), &dims, vec![])?;
        let out = self.scratch_as(chosen * n, factor.reads(self.target.act), &[&ins[..], kept].concat());
        self.push_rowwise(k, ins, vec![out]);
        Ok(out)
    }

    /// The biases of each expert's gates, then of its ups; zeros that the kernel does not read if there are none.
    fn gate_up_bias(&mut self, index: usize, experts: &Experts) -> String {
        let (count, width) = (experts.count as usize, experts.width as usize);
        let length = 2 * count * width;
        if !experts.biased() {
            return self.weight("bias", &format!("unread.bias.{length}"), Recipe::Unread { length });
        }
        let parts = match self.decoder.naming.is_gguf() {
            false => {
                let tensor = self.expert_tensor(experts, ExpertSlot::GateUpBias, index, 0);
                vec![MatrixPart { order: alternating(width), ..MatrixPart::whole(tensor, length) }]
            }
            true => {
                let both = |expert| [ExpertSlot::GateBias, ExpertSlot::UpBias].map(|slot| (slot, expert));
                let vectors = (0..count).flat_map(both);
                vectors.map(|(slot, expert)| self.expert_part(experts, slot, index, (expert, width))).collect()
            }
        };
        self.vector("bias", &format!("layers.{index}.experts.gate_up_bias"), parts, 0.0, 1.0)
    }

    /// Emits the router, which reads activations in their type. Returns the buffers of a row's experts and of their shares.
    pub(super) fn route(&mut self, index: usize, experts: &Experts, input: u32) -> Result<(u32, u32)> {
        let (hidden, count, chosen) = (self.decoder.hidden, experts.count, experts.chosen);
        let tensor = self.expert_tensor(experts, ExpertSlot::Router, index, 0);
        let parts = vec![MatrixPart::whole(tensor, count as usize)];
        let weight = self.matrix(&format!("layers.{index}.router"), parts, hidden);
        let k = self.bind_logits((hidden, count), weight)?;
        let x = self.rounded((input, hidden))?;
        let mut logits = self.scratch_as(count, Dtype::F32, &[input]);
        self.push_rowwise(k, vec![x], vec![logits]);
        if experts.biased() {
            let tensor = self.expert_tensor(experts, ExpertSlot::RouterBias, index, 0);
            let parts = vec![MatrixPart::whole(tensor, count as usize)];
            let bias = self.vector("bias", &format!("layers.{index}.router_bias"), parts, 0.0, 1.0);
            let k = self.bind("add_bias", &[("N", int(count))], vec![bias])?;
            let sums = self.scratch_as(count, Dtype::F32, &[input, logits]);
            self.push_rowwise(k, vec![logits], vec![sums]);
            logits = sums;
        }

        let bias = match experts.score {
            Score::Softmax => {
                self.weight("bias", &format!("unread.bias.{count}"), Recipe::Unread { length: count as usize })
            }
            Score::Sigmoid => {
                let tensor = self.expert_tensor(experts, ExpertSlot::Bias, index, 0);
                let parts = vec![MatrixPart::whole(tensor, count as usize)];
                self.vector("bias", &format!("layers.{index}.router_bias"), parts, 0.0, 1.0)
            }
        };
        let groups = experts.groups.unwrap_or(Groups { count: 0, kept: 0 });
        let dims = [
            ("E", int(count)),
            ("TOPK", int(chosen)),
            ("SIGMOID", int((experts.score == Score::Sigmoid).into())),
            ("NORMED", int(experts.normed.into())),
            ("GROUPS", int(groups.count)),
            ("MEMBERS", int(count.checked_div(groups.count).unwrap_or(count))),
            ("KEPT", int(groups.kept)),
            ("SCALE", Const::Float(experts.scale)),
        ];
        let k = self.bind("route", &dims, vec![bias])?;
        // Each layer has a buffer of its own, which a client may ask for when the step has ended.
        let ids = self.buffer(chosen, Dtype::I32, self.rows);
        self.routed.push(ids);
        let shares = self.scratch_as(chosen, Dtype::F32, &[input, logits]);
        self.push_rowwise(k, vec![logits], vec![ids, shares]);
        Ok((ids, shares))
    }

    /// Each expert's rows of gate, then of up; or of up alone.
    fn gates_and_ups(&self, index: usize, experts: &Experts) -> Vec<MatrixPart> {
        let (count, width) = (experts.count as usize, experts.width as usize);
        if !experts.activation.gated() {
            let up = |expert| self.expert_part(experts, ExpertSlot::Up, index, (expert, width));
            return (0..count).map(up).collect();
        }
        if experts.tensors.whole() {
            let tensor = self.expert_tensor(experts, ExpertSlot::GateUp, index, 0);
            let whole = MatrixPart::whole(tensor, 2 * count * width);
            return vec![match experts.tensors {
                ExpertTensors::Alternating => MatrixPart { order: alternating(width), transposed: true, ..whole },
                _ => whole,
            }];
        }
        let both = |expert| [ExpertSlot::Gate, ExpertSlot::Up].map(|slot| (slot, expert));
        let matrices = (0..count).flat_map(both);
        matrices.map(|(slot, expert)| self.expert_part(experts, slot, index, (expert, width))).collect()
    }

    /// Each expert's second matrix.
    fn downs(&self, index: usize, experts: &Experts) -> Vec<MatrixPart> {
        let (count, hidden) = (experts.count as usize, self.decoder.hidden as usize);
        if experts.tensors.whole_down() {
            let tensor = self.expert_tensor(experts, ExpertSlot::Down, index, 0);
            let transposed = experts.tensors == ExpertTensors::Alternating;
            return vec![MatrixPart { transposed, ..MatrixPart::whole(tensor, count * hidden) }];
        }
        let down = |expert| self.expert_part(experts, ExpertSlot::Down, index, (expert, hidden));
        (0..count).map(down).collect()
    }

    /// The `rows` rows of one expert's matrix, which is a tensor or a part of one.
    fn expert_part(
        &self,
        experts: &Experts,
        slot: ExpertSlot,
        index: usize,
        (expert, rows): (usize, usize),
    ) -> MatrixPart {
        let tensor = self.expert_tensor(experts, slot, index, expert);
        match self.decoder.naming.is_gguf() {
            true => {
                let of = experts.count as usize * rows;
                MatrixPart { first: expert * rows, rows, ..MatrixPart::whole(tensor, of) }
            }
            false => MatrixPart::whole(tensor, rows),
        }
    }

    pub(super) fn expert_tensor(&self, experts: &Experts, slot: ExpertSlot, index: usize, expert: usize) -> String {
        expert_name(self.decoder.naming, experts.tensors, slot, index, expert)
    }
}

/// The order of gates and ups that alternate in a tensor: those of an expert's gate, then those of its up.
fn alternating(width: usize) -> Order {
    Order::Heads(HeadRows { size: 2 * width, stride: 2 * width, rotary: 2 * width, interleaved: true })
}

/// The value of the kernels' ACT; none of units without a gate.
fn activation(activation: Activation) -> Option<Const> {
    match activation {
        Activation::Silu => Some(int(0)),
        Activation::GeluTanh => Some(int(1)),
        Activation::Clamped => Some(int(2)),
        Activation::ReluSquared => None,
    }
}
