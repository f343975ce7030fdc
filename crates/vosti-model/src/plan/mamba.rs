//! The ops of a Mamba 2 layer: projections, a short convolution of values, keys and queries, the state over pages, and a gated norm.
//!
//! The files have one matrix for all that the layer takes of a row: the gate, then values, keys and queries, then the steps, which here
//! are a product of their own in FP32. Read next: `kernels/mamba_inputs.py`.

use vosti_contract::Const;
use vosti_core::Dtype;

use super::conv::Convolution;
use super::state::State;
use super::{Builder, Factor, MIXER, Output, int};
use crate::decoder::Mamba;
use crate::error::Result;
use crate::recipe::{MatrixPart, Order, Turned};
use crate::tensor_names::Slot;

impl Mamba {
    /// Heads of values.
    fn heads(&self) -> u32 {
        self.groups * self.members
    }

    /// Columns of all values.
    fn values(&self) -> u32 {
        self.heads() * self.head_dim
    }

    /// Columns of all keys, and of all queries.
    fn keys(&self) -> u32 {
        self.groups * self.state
    }

    /// Channels of the convolution.
    fn channels(&self) -> u32 {
        self.values() + 2 * self.keys()
    }
}

/// What the state and its results take of each row.
struct Inputs {
    q: u32,
    k: u32,
    x: u32,
    g: u32,
    dt: u32,
}

impl Builder<'_> {
    /// Emits the whole mixer but its last projection. `stream` is the residual stream.
    pub(super) fn mamba(&mut self, index: usize, mamba: &Mamba, stream: u32) -> Result<Output> {
        let plain = self.enter(index, &MIXER, stream, &Factor::of_activations())?;
        self.held.push(plain);
        let [z, xbc, steps] = self.mamba_parts(index, mamba);
        let steps = self.exact_product(&format!("layers.{index}.mamba_dt"), steps, plain)?;
        self.held.push(steps);
        let z = self.product_beside(index, ("mamba_z", z), (stream, plain))?;
        self.held.push(z);
        let xbc = self.product_beside(index, ("mamba_xbc", xbc), (stream, plain))?;
        let conv = Convolution {
            kernels: ["store_conv", "conv_silu_bias"],
            taps: mamba.taps,
            weights: vec![self.rows(Slot::MambaTaps, index, mamba.channels())],
            bias: Some(self.rows(Slot::MambaTapsBias, index, mamba.channels())),
        };
        let xbc = self.convolve(index, conv, xbc)?;
        let Inputs { q, k, x, g, dt } = self.mamba_inputs(index, mamba, xbc, steps)?;
        self.held.push(x);
        let (Mamba { groups, members, state, head_dim, .. }, slices) = (*mamba, self.slices(mamba.head_dim));
        let (group, value) = (members * slices, head_dim / slices);
        let state = State { store: "store_mamba", key_heads: groups, group, key: state, value };
        let results = self.recur(&state, vec![k, x, g, dt], q)?;
        let output = vec![self.rows(Slot::MambaOut, index, self.decoder.hidden)];
        let projection = self.factor(&format!("layers.{index}.mamba_out"), output, mamba.values());
        let gated = self.mamba_gated(index, mamba, [results, x, z])?;
        let buffer = if mamba.normed { self.mamba_norm(index, mamba, gated, &projection)? } else { gated };
        self.held.clear();
        Ok(Output { buffer, width: mamba.values(), projection })
    }

    /// The gate's rows of the layer's matrix, those of what goes through the convolution, and those of the steps.
    fn mamba_parts(&self, index: usize, mamba: &Mamba) -> [Vec<MatrixPart>; 3] {
        let [z, x, k, q, steps] = self.decoder.scales.mamba;
        let (values, keys) = (mamba.values(), mamba.keys());
        let through = match x == k && k == q {
            true => vec![(mamba.channels(), x)],
            false => vec![(values, x), (keys, k), (keys, q)],
        };
        let whole = self.rows(Slot::MambaIn, index, values + mamba.channels() + mamba.heads());
        let mut first = 0;
        let [z, through, steps] = [vec![(values, z)], through, vec![(mamba.heads(), steps)]].map(|ranges| {
            let part = |(width, scale): (u32, f32)| {
                let part = MatrixPart { first, rows: width as usize, scale, ..whole.clone() };
                first += part.rows;
                part
            };
            ranges.into_iter().map(part).collect::<Vec<_>>()
        });
        let steps = steps.into_iter().map(|part| self.of_slices(mamba, part)).collect();
        [z, through, steps]
    }

    /// A part with a row for each head, as the slices of the heads have it: each row once for each slice.
    fn of_slices(&self, mamba: &Mamba, part: MatrixPart) -> MatrixPart {
        let (heads, slices) = (mamba.heads() as usize, self.slices(mamba.head_dim) as usize);
        match slices {
            1 => part,
            _ => MatrixPart { rows: heads * slices, order: Order::Turned(Turned::repeated(heads, slices)), ..part },
        }
    }

    fn mamba_inputs(&mut self, index: usize, mamba: &Mamba, xbc: u32, steps: u32) -> Result<Inputs> {
        let heads = mamba.heads() * self.slices(mamba.head_dim);
        let of_heads = |slot| self.of_slices(mamba, self.rows(slot, index, mamba.heads()));
        let (bias, rate) = (vec![of_heads(Slot::MambaBias)], of_heads(Slot::MambaRates));
        let bias = self.vector("dt_bias", &format!("layers.{index}.dt_bias"), bias, 0.0, 1.0);
        let rate = self.rates(index, rate);
        let dims = [
            ("HEADS", int(heads)),
            ("INNER", int(mamba.values())),
            ("KEYS", int(mamba.keys())),
            ("WIDTH", int(mamba.channels())),
        ];
        let k = self.bind("mamba_inputs", &dims, vec![rate, bias])?;
        let mut outs = vec![];
        for width in [mamba.keys(), mamba.keys(), mamba.values(), heads, heads] {
            let others = [&outs[..], &[xbc, steps]].concat();
            outs.push(self.scratch_as(width, Dtype::F32, &others));
        }
        self.push_rowwise(k, vec![xbc, steps], outs.clone());
        let [q, k, x, g, dt] = outs[..] else { unreachable!("there are five outputs") };
        Ok(Inputs { q, k, x, g, dt })
    }

    /// Emits the skip of the values and the gate of the results, in FP32.
    fn mamba_gated(&mut self, index: usize, mamba: &Mamba, [results, x, z]: [u32; 3]) -> Result<u32> {
        let skip = vec![self.rows(Slot::MambaSkip, index, mamba.heads())];
        let skip = self.vector("skip", &format!("layers.{index}.skip"), skip, 0.0, 1.0);
        let dims = [("HEADS", int(mamba.heads())), ("D", int(mamba.head_dim))];
        let k = self.bind("skip_gated", &dims, vec![skip])?;
        let gated = self.scratch_as(mamba.values(), Dtype::F32, &[results, x, z]);
        self.push_rowwise(k, vec![results, x, z], vec![gated]);
        Ok(gated)
    }

    /// Emits the norm of gated results in the type that the projection reads.
    fn mamba_norm(&mut self, index: usize, mamba: &Mamba, gated: u32, projection: &Factor) -> Result<u32> {
        let part = vec![self.rows(Slot::MambaNorm, index, mamba.values())];
        let weight = self.vector("w", &format!("layers.{index}.mamba_norm"), part, 0.0, 1.0);
        let dims = [
            ("GROUPS", int(mamba.groups)),
            ("H", int(mamba.values() / mamba.groups)),
            ("EPS", Const::Float(self.decoder.eps)),
        ];
        let dtype = projection.reads(self.target.act);
        let k = self.bind_as("rmsnorm_groups", dtype, &dims, vec![weight])?;
        let out = self.scratch_as(mamba.values(), dtype, &[gated]);
        self.push_rowwise(k, vec![gated], vec![out]);
        Ok(out)
    }
}
