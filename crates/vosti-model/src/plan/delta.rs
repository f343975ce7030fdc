//! The ops of a gated delta rule: projections, a short convolution of queries, keys and values, the rule itself over pages with a
//! state, and a gated norm.
//!
//! Where a model has several value heads for each key head, the first ones of all key heads come first, then the second ones, as
//! llama.cpp has them in its files of Qwen 3.5. Other files have those of one key head together, so their recipes reorder rows, and the
//! columns of the last projection. Read next: `kernels/delta_inputs.py`.

use vosti_contract::Const;
use vosti_core::Dtype;

use super::conv::Convolution;
use super::state::State;
use super::{Builder, Factor, MIXER, Output, int};
use crate::decoder::{DeltaRule, DeltaTensors};
use crate::error::Result;
use crate::recipe::{MatrixPart, Order, Turned};
use crate::tensor_names::Slot;

impl DeltaRule {
    /// Heads of values.
    fn heads(&self) -> u32 {
        self.key_heads * self.group
    }

    /// Columns of all queries, and of all keys.
    fn keys(&self) -> u32 {
        self.key_heads * self.head_dim
    }

    /// Columns of all values.
    fn values(&self) -> u32 {
        self.heads() * self.head_dim
    }

    /// Channels of the convolution.
    pub(crate) fn channels(&self) -> u32 {
        2 * self.keys() + self.values()
    }
}

/// What the rule takes of each row: queries, keys, values, log-decays and strengths.
struct Inputs {
    q: u32,
    k: u32,
    v: u32,
    g: u32,
    beta: u32,
}

impl Builder<'_> {
    /// Emits the whole mixer but its last projection. `stream` is the residual stream.
    pub(super) fn delta_rule(&mut self, index: usize, rule: &DeltaRule, stream: u32) -> Result<Output> {
        let plain = self.enter(index, &MIXER, stream, &Factor::of_activations())?;
        self.held.push(plain);
        let ba = self.strengths_and_decays(index, rule, plain)?;
        self.held.push(ba);
        let (qkv, z) = self.projections(index, rule);
        let z = self.product_beside(index, ("delta_z", z), (stream, plain))?;
        self.held.push(z);
        let qkv = self.product_beside(index, ("delta_qkv", qkv), (stream, plain))?;
        let Inputs { q, k, v, g, beta } = self.delta_inputs(index, rule, qkv, ba)?;
        let (DeltaRule { key_heads, head_dim, .. }, slices) = (*rule, self.slices(rule.head_dim));
        let (group, value) = (rule.group * slices, head_dim / slices);
        let state = State { store: "store_delta", key_heads, group, key: head_dim, value };
        let results = self.recur(&state, vec![k, v, g, beta], q)?;
        let buffer = self.norm_gated(index, rule, (results, z))?;
        self.held.clear();

        let mut output = self.rows(Slot::DeltaOut, index, self.decoder.hidden);
        output.columns = self.turned(rule, rule.head_dim);
        let projection = self.factor(&format!("layers.{index}.delta_out"), vec![output], rule.values());
        Ok(Output { buffer, width: rule.values(), projection })
    }

    /// The product that gives strengths and decays before their functions, in FP32.
    fn strengths_and_decays(&mut self, index: usize, rule: &DeltaRule, input: u32) -> Result<u32> {
        let (group, slot) = (rule.group, Slot::DeltaPairs);
        let parts = match rule.tensors {
            DeltaTensors::Apart | DeltaTensors::Turned => {
                [Slot::DeltaStrength, Slot::DeltaDecay].map(|slot| self.values_part(slot, index, rule, 1))
            }
            DeltaTensors::Paired | DeltaTensors::Fused => {
                [0, group].map(|first| self.of_key_heads(slot, index, rule, (first, 2 * group), (group, 1)))
            }
        };
        self.exact_product(&format!("layers.{index}.delta_ba"), parts.to_vec(), input)
    }

    /// Emits the convolution of queries, keys and values, and what the rule takes of it.
    fn delta_inputs(&mut self, index: usize, rule: &DeltaRule, qkv: u32, ba: u32) -> Result<Inputs> {
        let weights = self.qkv_parts(Slot::DeltaTaps, index, rule);
        let conv = Convolution { kernels: ["store_conv", "conv_silu"], taps: rule.taps, weights, bias: None };
        let mixed = self.convolve(index, conv, qkv)?;

        let bias = vec![self.values_part(Slot::DeltaBias, index, rule, 1)];
        let bias = self.vector("dt_bias", &format!("layers.{index}.dt_bias"), bias, 0.0, 1.0);
        let rate = self.values_part(Slot::DeltaRates, index, rule, 1);
        let rate = self.rates(index, rate);
        let dims = [
            ("KEY_HEADS", int(rule.key_heads)),
            ("GROUP", int(rule.group)),
            ("PARTS", int(rule.group + 2)),
            ("D", int(rule.head_dim)),
            ("COPIES", int(self.slices(rule.head_dim))),
            ("SCALE", Const::Float(f64::from(rule.head_dim).powf(-0.5))),
        ];
        let k = self.bind("delta_inputs", &dims, vec![rate, bias])?;
        let mut outs = vec![];
        let copies = rule.heads() * self.slices(rule.head_dim);
        for width in [rule.keys(), rule.keys(), rule.values(), copies, copies] {
            let others = [&outs[..], &[mixed, ba]].concat();
            outs.push(self.scratch_as(width, Dtype::F32, &others));
        }
        self.push_rowwise(k, vec![mixed, ba], outs.clone());
        let [q, k, v, g, beta] = outs[..] else { unreachable!("there are five outputs") };
        Ok(Inputs { q, k, v, g, beta })
    }

    /// Emits the norm of the results, multiplied by their gates.
    fn norm_gated(&mut self, index: usize, rule: &DeltaRule, (results, z): (u32, u32)) -> Result<u32> {
        let part = vec![self.rows(Slot::DeltaNorm, index, rule.head_dim)];
        let weight = self.vector("norm_w", &format!("layers.{index}.delta_norm"), part, 0.0, 1.0);
        let dims = [
            ("KEY_HEADS", int(rule.key_heads)),
            ("GROUP", int(rule.group)),
            ("D", int(rule.head_dim)),
            ("EPS", Const::Float(self.decoder.eps)),
        ];
        let k = self.bind("norm_gated", &dims, vec![weight])?;
        let out = self.scratch(rule.values(), &[results, z]);
        self.push_rowwise(k, vec![results, z], vec![out]);
        Ok(out)
    }

    /// The rows of queries, keys and values, and those of the gates.
    fn projections(&self, index: usize, rule: &DeltaRule) -> (Vec<MatrixPart>, Vec<MatrixPart>) {
        let DeltaRule { group, head_dim, .. } = *rule;
        if rule.tensors != DeltaTensors::Fused {
            let z = vec![self.values_part(Slot::DeltaGate, index, rule, head_dim)];
            return (self.qkv_parts(Slot::DeltaQkv, index, rule), z);
        }
        let all = 2 * (1 + group) * head_dim;
        let part = |heads: u32, members| {
            self.of_key_heads(Slot::DeltaQkvz, index, rule, (heads * head_dim, all), (members, head_dim))
        };
        (vec![part(0, 1), part(1, 1), part(2, group)], vec![part(2 + group, group)])
    }

    /// Of a tensor that has `all` rows for each key head: `members` times `size` of them, from the row `first` on.
    fn of_key_heads(
        &self,
        slot: Slot,
        index: usize,
        rule: &DeltaRule,
        (first, all): (u32, u32),
        (members, size): (u32, u32),
    ) -> MatrixPart {
        let [groups, members, size, stride] = [rule.key_heads, members, size, all].map(|n| n as usize);
        let order = Order::Turned(Turned { groups, members, size, stride });
        let (first, rows) = (first as usize, groups * members * size);
        MatrixPart { first, rows, order, ..self.rows(slot, index, rule.key_heads * all) }
    }

    /// The rows of a tensor that has queries, keys and values.
    fn qkv_parts(&self, slot: Slot, index: usize, rule: &DeltaRule) -> Vec<MatrixPart> {
        let keys = 2 * rule.keys() as usize;
        let whole = self.rows(slot, index, rule.channels());
        let values = MatrixPart { first: keys, ..self.values_part(slot, index, rule, rule.head_dim) };
        vec![MatrixPart { rows: keys, ..whole.clone() }, MatrixPart { of: whole.of, ..values }]
    }

    /// All rows of a tensor that has `size` rows for each value head.
    fn values_part(&self, slot: Slot, index: usize, rule: &DeltaRule, size: u32) -> MatrixPart {
        let order = self.turned(rule, size).map_or(Order::Stored, Order::Turned);
        MatrixPart { order, ..self.rows(slot, index, rule.heads() * size) }
    }

    /// How the files' value heads differ from the program's, of `size` rows or columns each.
    fn turned(&self, rule: &DeltaRule, size: u32) -> Option<Turned> {
        let [groups, members, size] = [rule.key_heads, rule.group, size].map(|n| n as usize);
        (rule.tensors != DeltaTensors::Turned && members > 1).then_some(Turned::dense(groups, members, size))
    }
}
