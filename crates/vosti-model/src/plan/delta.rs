//! The ops of a gated delta rule: projections, a short convolution of queries, keys and values, the rule itself over pages with a
//! state, and a gated norm.
//!
//! Where a model has several value heads for each key head, the first ones of all key heads come first, then the second ones, as
//! llama.cpp has them in its files. A Hugging Face file has those of one key head together, so its recipes reorder rows, and the
//! columns of the last projection. Read next: `kernels/delta_inputs.py`.

use vosti_core::{Dtype, GroupDecl, Op, PAGE, PartDecl};
use vosti_kernels::Const;

use super::conv::Convolution;
use super::{Builder, Factor, MIXER, Output, int};
use crate::decoder::DeltaRule;
use crate::error::Result;
use crate::recipe::{MatrixPart, Order, Recipe, Turned};
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
        let z = vec![self.values_part(Slot::DeltaGate, index, rule, rule.head_dim)];
        let z = self.delta_product(index, ("z", z, rule.values()), (stream, plain))?;
        self.held.push(z);
        let qkv = self.qkv_parts(Slot::DeltaQkv, index, rule);
        let qkv = self.delta_product(index, ("qkv", qkv, rule.channels()), (stream, plain))?;
        let inputs = self.delta_inputs(index, rule, qkv, ba)?;
        let results = self.recur(rule, &inputs)?;
        let buffer = self.norm_gated(index, rule, (results, z))?;
        self.held.clear();

        let mut output = self.rows(Slot::DeltaOut, index, self.decoder.hidden);
        output.columns = self.turned(rule, rule.head_dim);
        let projection = self.factor(&format!("layers.{index}.delta_out"), vec![output], rule.values());
        Ok(Output { buffer, width: rule.values(), projection })
    }

    /// A product of the normed stream, which is in `plain` in the activations' type.
    fn delta_product(
        &mut self,
        index: usize,
        (name, parts, width): (&str, Vec<MatrixPart>, u32),
        (stream, plain): (u32, u32),
    ) -> Result<u32> {
        let hidden = self.decoder.hidden;
        let factor = self.factor(&format!("layers.{index}.delta_{name}"), parts, hidden);
        let input = match factor.reads(self.target.act) == self.dtype(plain) {
            true => plain,
            false => self.enter(index, &MIXER, stream, &factor)?,
        };
        self.linear((input, hidden), &factor, width)
    }

    /// The product that gives strengths and decays before their functions, in FP32.
    fn strengths_and_decays(&mut self, index: usize, rule: &DeltaRule, input: u32) -> Result<u32> {
        let (hidden, width) = (self.decoder.hidden, 2 * rule.heads());
        let parts = [Slot::DeltaStrength, Slot::DeltaDecay].map(|slot| self.values_part(slot, index, rule, 1));
        let weight = self.matrix(&format!("layers.{index}.delta_ba"), parts.to_vec(), hidden);
        let dims = [&[("K", int(hidden)), ("N", int(width))], &vosti_kernels::capped(0.0, 1.0)[..]].concat();
        let k = self.bind("linear_logits", &dims, vec![weight])?;
        let out = self.scratch_as(width, Dtype::F32, &[input]);
        self.push_rowwise(k, vec![input], vec![out]);
        Ok(out)
    }

    /// Emits the convolution of queries, keys and values, and what the rule takes of it.
    fn delta_inputs(&mut self, index: usize, rule: &DeltaRule, qkv: u32, ba: u32) -> Result<Inputs> {
        let weights = self.qkv_parts(Slot::DeltaTaps, index, rule);
        let conv = Convolution { kernels: ["store_conv", "conv_silu"], taps: rule.taps, weights };
        let mixed = self.convolve(index, conv, qkv)?;

        let bias = vec![self.values_part(Slot::DeltaBias, index, rule, 1)];
        let bias = self.vector("dt_bias", &format!("layers.{index}.dt_bias"), bias, 0.0, 1.0);
        let part = self.values_part(Slot::DeltaRates, index, rule, 1);
        let recipe = match self.decoder.naming.is_gguf() {
            true => Recipe::Vector { parts: vec![part], offset: 0.0, divisor: 1.0 },
            false => Recipe::Rates { part },
        };
        let rate = self.weight("rate", &format!("layers.{index}.rate"), recipe);
        let dims = [
            ("KEY_HEADS", int(rule.key_heads)),
            ("GROUP", int(rule.group)),
            ("PARTS", int(rule.group + 2)),
            ("D", int(rule.head_dim)),
            ("SCALE", Const::Float(f64::from(rule.head_dim).powf(-0.5))),
        ];
        let k = self.bind("delta_inputs", &dims, vec![rate, bias])?;
        let mut outs = vec![];
        for width in [rule.keys(), rule.keys(), rule.values(), rule.heads(), rule.heads()] {
            let others = [&outs[..], &[mixed, ba]].concat();
            outs.push(self.scratch_as(width, Dtype::F32, &others));
        }
        self.push_rowwise(k, vec![mixed, ba], outs.clone());
        let [q, k, v, g, beta] = outs[..] else { unreachable!("there are five outputs") };
        Ok(Inputs { q, k, v, g, beta })
    }

    /// Emits the rule itself: the entries of its cache, and what they give for the queries. Returns the buffer of the results.
    fn recur(&mut self, rule: &DeltaRule, inputs: &Inputs) -> Result<u32> {
        let [k, g, d] = [rule.key_heads, rule.group, rule.head_dim].map(int);
        let page = PAGE as u32;
        let part = |heads, width| PartDecl { heads, width, dtype: Dtype::F32 };
        let dims = [("KEY_HEADS", k), ("GROUP", g), ("DK", d), ("DV", d), ("PAGE", int(page))];
        let [keys, values, decays] = [rule.head_dim, rule.head_dim, 1].map(|width| part(rule.heads(), width));
        let state = part(rule.heads(), rule.head_dim * rule.head_dim);
        let decl = GroupDecl { window: Some(page + 1), entry: vec![keys, values, decays], state: vec![state] };
        let layer = self.cache(decl);
        let Inputs { q, k, v, g, beta } = *inputs;
        let store = self.bind("store_delta", &dims, Vec::new())?;
        self.ops.push(Op::StoreKv { k: store, ins: vec![k, v, g, beta], layer, back: page });
        let read = self.bind("read_state", &dims, Vec::new())?;
        let out = self.scratch_as(rule.values(), Dtype::F32, &[q]);
        self.ops.push(Op::Attend { k: read, q, layer, out, window: Some(page + 1) });
        Ok(out)
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
        (!self.decoder.naming.is_gguf() && members > 1).then_some(Turned { groups, members, size })
    }
}
