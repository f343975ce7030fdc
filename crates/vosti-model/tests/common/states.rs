//! What the evaluator of `forward.rs` computes for layers with a state.

use std::iter;

use vosti_core::Op;
use vosti_kernels::Launch;

use super::{Evaluator, float, int, normed};

impl Evaluator<'_> {
    /// A gated delta rule, or Mamba 2, by the recurrence that defines it, row by row: no pages, no chunks.
    pub fn recurrence(&mut self, launch: &Launch, q: u32, layer: usize, out: u32) {
        let corrects = self.plan.program.ops.iter().any(|op| match op {
            Op::StoreKv { k, layer: own, .. } => {
                *own as usize == layer && self.launch(*k).unwrap().spec.kernel == "store_delta"
            }
            _ => false,
        });
        let [heads, group, d, e] = ["KEY_HEADS", "GROUP", "DK", "DV"].map(|name| int(launch, name));
        let [keys, values, decays, strengths] = &self.states[layer][..] else { panic!("four inputs") };
        let mut result = vec![0.0; self.tokens.len() * heads * group * e];
        for head in 0..heads * group {
            let mut state = vec![0.0f32; d * e];
            for t in 0..self.tokens.len() {
                let vector = |all: &[f32]| all[(t * heads + head / group) * d..][..d].to_vec();
                let (query, key) = (vector(&self.buffers[q as usize]), vector(keys));
                let at = t * heads * group + head;
                state.iter_mut().for_each(|s| *s *= decays[at].exp());
                for c in 0..e {
                    let known: f32 = if corrects { (0..d).map(|i| state[i * e + c] * key[i]).sum() } else { 0.0 };
                    let new = strengths[at] * (values[at * e + c] - known);
                    (0..d).for_each(|i| state[i * e + c] += key[i] * new);
                    result[at * e + c] = (0..d).map(|i| state[i * e + c] * query[i]).sum();
                }
            }
        }
        self.buffers[out as usize] = result;
    }

    /// What a gated delta rule takes of each row.
    pub fn delta_inputs(&mut self, launch: &Launch, ins: &[u32], outs: &[u32]) {
        let [heads, group, d, copies] = ["KEY_HEADS", "GROUP", "D", "COPIES"].map(|name| int(launch, name));
        let (rate, bias) = (self.weight(launch, "rate"), self.weight(launch, "dt_bias"));
        let (qkv, ba) = (&self.buffers[ins[0] as usize], &self.buffers[ins[1] as usize]);
        let mut results: [Vec<f32>; 5] = Default::default();
        for (row, ba) in qkv.chunks((group + 2) * heads * d).zip(ba.chunks(2 * group * heads)) {
            let head = |part: usize, head: usize| &row[(part * heads + head) * d..][..d];
            let unit = |x: &[f32]| {
                let scale = 1.0 / (x.iter().map(|v| v * v).sum::<f32>() + 1e-6).sqrt();
                x.iter().map(|v| v * scale).collect::<Vec<_>>()
            };
            for h in 0..heads {
                results[0].extend(unit(head(0, h)).iter().map(|v| v * float(launch, "SCALE")));
                results[1].extend(unit(head(1, h)));
                for m in 0..group {
                    results[2].extend(head(2 + m, h));
                    let own = m * heads + h;
                    let decay = rate[own] * (ba[group * heads + own] + bias[own]).exp().ln_1p();
                    results[3].extend(iter::repeat_n(decay, copies));
                    results[4].extend(iter::repeat_n(1.0 / (1.0 + (-ba[own]).exp()), copies));
                }
            }
        }
        for (out, result) in outs.iter().zip(results) {
            self.buffers[*out as usize] = result;
        }
    }

    /// What a Mamba 2 layer takes of each row.
    pub fn mamba_inputs(&mut self, launch: &Launch, ins: &[u32], outs: &[u32]) {
        let [heads, inner, keys] = ["HEADS", "INNER", "KEYS"].map(|name| int(launch, name));
        let (rate, bias) = (self.weight(launch, "rate"), self.weight(launch, "dt_bias"));
        let (xbc, steps) = (&self.buffers[ins[0] as usize], &self.buffers[ins[1] as usize]);
        let part = |first: usize, width: usize| {
            xbc.chunks(inner + 2 * keys).flat_map(|row| row[first..][..width].to_vec()).collect::<Vec<f32>>()
        };
        let steps: Vec<f32> = steps.iter().enumerate().map(|(i, v)| (v + bias[i % heads]).exp().ln_1p()).collect();
        let decays = steps.iter().enumerate().map(|(i, step)| rate[i % heads] * step).collect();
        let results = [part(inner + keys, keys), part(inner, keys), part(0, inner), decays, steps];
        for (out, result) in outs.iter().zip(results) {
            self.buffers[*out as usize] = result;
        }
    }

    /// The norm of each head's results, times the SiLU of its gate, in the gates' order.
    pub fn norm_gated(&self, launch: &Launch, x: &[f32], z: &[f32]) -> Vec<f32> {
        let [heads, group, d] = ["KEY_HEADS", "GROUP", "D"].map(|name| int(launch, name));
        let rows = x.chunks(heads * group * d).zip(z.chunks(heads * group * d));
        rows.flat_map(|(x, z)| {
            (0..heads * group).flat_map(move |own| {
                let from = own % heads * group + own / heads;
                let normed = normed(&x[from * d..][..d], float(launch, "EPS"), Some(self.weight(launch, "norm_w")));
                normed.into_iter().zip(&z[own * d..][..d]).map(|(v, z)| v * z / (1.0 + (-z).exp())).collect::<Vec<_>>()
            })
        })
        .collect()
    }
}
