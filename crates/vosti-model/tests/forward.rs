//! Programs, bindings and recipes have the meaning of transformers' models: a naive FP32 evaluator, written here from the
//! kernels' contracts, runs each tiny model's program, and its logits are compared with transformers' FP32 logits.
//!
//! This tests the families and the loaders without a device; the devices have their own goldens.

#[path = "common/states.rs"]
mod states;

use std::collections::HashMap;
use std::path::Path;

use safetensors::SafeTensors;
use vosti_contract::{Const, Dtype};
use vosti_core::Op;
use vosti_kernels::Launch;
use vosti_model::{ModelPlan, Target, TensorData, TensorFiles, WeightSource, Weights, families, plan};

/// One sequence, from position 0, all rows selected.
struct Evaluator<'a> {
    plan: &'a ModelPlan,
    weights: HashMap<String, Vec<f32>>,
    tokens: Vec<u32>,
    buffers: Vec<Vec<f32>>,
    /// Keys and values of each cache layer, `[position, kv_heads * head_dim]`.
    caches: Vec<(Vec<f32>, Vec<f32>)>,
    /// What went into the entries of each layer with a state: keys, values, log-decays, and strengths or steps.
    states: Vec<Vec<Vec<f32>>>,
}

impl<'a> Evaluator<'a> {
    fn new(plan: &'a ModelPlan, source: &dyn WeightSource, tokens: Vec<u32>) -> Self {
        let load = |name: &String| match source.load(name).unwrap().data {
            TensorData::F32(values) => (name.clone(), values),
            _ => panic!("{name} is not FP32"),
        };
        let rows = tokens.len();
        let buffers = plan.program.buffers.iter().map(|b| vec![0.0; rows * b.width as usize]).collect();
        let caches = vec![(Vec::new(), Vec::new()); plan.program.layers.len()];
        let states = vec![Vec::new(); plan.program.layers.len()];
        Self { plan, weights: plan.weights.keys().map(load).collect(), tokens, buffers, caches, states }
    }

    fn run(&mut self) {
        let mut last = None;
        for op in &self.plan.program.ops {
            // An op without a launch is done by the launch before.
            let launch = self.launch(op.uses().binding).or(last).unwrap();
            last = Some(launch);
            match op {
                Op::Embed { out, .. } => self.embed(launch, *out),
                Op::Rowwise { ins, outs, .. } => self.rowwise(launch, ins, outs),
                Op::StoreKv { ins, layer, .. } => self.store(launch, ins, *layer as usize),
                Op::Attend { q, layer, out, window, .. } => self.attend(launch, *q, *layer as usize, *out, *window),
            }
        }
    }

    fn launch(&self, k: u32) -> Option<&'a Launch> {
        self.plan.bindings[k as usize].launches.first()
    }

    fn weight(&self, launch: &Launch, parameter: &str) -> &[f32] {
        &self.weights[&launch.weights[parameter]]
    }

    fn embed(&mut self, launch: &Launch, out: u32) {
        let (h, scale) = (int(launch, "H"), float(launch, "SCALE"));
        let table = self.weight(launch, "w");
        let rows = self.tokens.iter().flat_map(|t| table[*t as usize * h..][..h].iter().map(|v| v * scale));
        self.buffers[out as usize] = rows.collect();
    }

    fn rowwise(&mut self, launch: &Launch, ins: &[u32], outs: &[u32]) {
        if launch.spec.kernel.starts_with("topk") {
            return; // Lists come after the logits, and only logits are compared.
        }
        if launch.spec.kernel == "gather" {
            // All rows are selected.
            for (from, to) in ins.iter().zip(outs) {
                self.buffers[*to as usize] = self.buffers[*from as usize].clone();
            }
            return;
        }
        if launch.spec.kernel == "route" {
            let (ids, shares) = self.route(launch, &self.buffers[ins[0] as usize]);
            (self.buffers[outs[0] as usize], self.buffers[outs[1] as usize]) = (ids, shares);
            return;
        }
        match launch.spec.kernel.as_str() {
            "delta_inputs" => return self.delta_inputs(launch, ins, outs),
            "mamba_inputs" => return self.mamba_inputs(launch, ins, outs),
            _ => {}
        }
        let x = &self.buffers[ins[0] as usize];
        let y = ins.get(1).map(|i| &self.buffers[*i as usize]);
        let result = match launch.spec.kernel.as_str() {
            "rmsnorm" => self.norm(launch, x),
            "rmsnorm_groups" => {
                let (h, w) = (int(launch, "H"), self.weight(launch, "w"));
                let group = |(i, x)| normed(x, float(launch, "EPS"), Some(&w[i * h % w.len()..][..h]));
                x.chunks(h).enumerate().flat_map(group).collect()
            }
            "per_layer_gate" => {
                let (h, layers, layer) = (int(launch, "H"), int(launch, "LAYERS"), int(launch, "LAYER"));
                let own = |i: usize| (i * layers + layer) * h..(i * layers + layer + 1) * h;
                let embedded = &self.buffers[ins[2] as usize];
                let row = |(i, gates): (usize, &[f32])| {
                    let norm = normed(&y.unwrap()[own(i)], float(launch, "EPS"), Some(self.weight(launch, "w")));
                    let input = add(&norm, &embedded[own(i)]);
                    gates.iter().zip(input).map(|(g, v)| activation(1, *g) * v).collect::<Vec<_>>()
                };
                x.chunks(h).enumerate().flat_map(row).collect()
            }
            "skip_gated" => {
                let (skip, d, z) = (self.weight(launch, "skip"), int(launch, "D"), &self.buffers[ins[2] as usize]);
                let total = |(i, result): (usize, &f32)| result + skip[i / d % skip.len()] * y.unwrap()[i];
                x.iter().enumerate().map(total).zip(z).map(|(v, z)| v * z / (1.0 + (-z).exp())).collect()
            }
            "rmsnorm_add" => add(&self.norm(launch, y.unwrap()), x),
            "rmsnorm_add_scaled" => {
                let factor = self.weight(launch, "factor");
                let sum = add(&self.norm(launch, y.unwrap()), x);
                sum.iter().enumerate().map(|(i, v)| v * factor[i % factor.len()]).collect()
            }
            "linear" => self.linear(launch, x, int(launch, "N")),
            "linear_add" => {
                let scale = float(launch, "SCALE");
                let scaled: Vec<f32> = self.linear(launch, x, int(launch, "N")).iter().map(|v| v * scale).collect();
                add(&scaled, y.unwrap())
            }
            "linear_bias" => {
                let bias = self.weight(launch, "bias");
                let sums = self.linear(launch, x, bias.len());
                sums.iter().enumerate().map(|(i, v)| v + bias[i % bias.len()]).collect()
            }
            "round_stream" => x.clone(),
            "norm_gated" => self.norm_gated(launch, x, y.unwrap()),
            "gate_heads" => {
                let (heads, d) = (int(launch, "HEADS") * int(launch, "D"), int(launch, "D"));
                let gates = y.unwrap().chunks(int(launch, "PACKED") * d);
                let gates = gates.flat_map(|row| &row[int(launch, "FIRST") * d..][..heads]);
                x.iter().zip(gates).map(|(v, g)| v / (1.0 + (-g).exp())).collect()
            }
            "gate_rows" => {
                let rows = x.chunks(int(launch, "N")).zip(y.unwrap());
                rows.flat_map(|(row, g)| row.iter().map(move |v| v / (1.0 + (-g).exp()))).collect()
            }
            "relu_squared" => x.iter().map(|v| v.max(0.0) * v.max(0.0)).collect(),
            "spread" => x.chunks(int(launch, "N")).flat_map(|row| row.repeat(int(launch, "TOPK"))).collect(),
            "norm_qk" => self.norm_qk(launch, x),
            "linear_logits" => {
                let cap = float(launch, "CAP");
                let logits = self.linear(launch, x, int(launch, "N"));
                logits.into_iter().map(|v| if cap > 0.0 { cap * (v / cap).tanh() } else { v }).collect()
            }
            "linear_glu" => self.glu(launch, x),
            "expert_glu" => self.expert_glu(launch, x, y.unwrap()),
            "expert_down" => {
                let (k, n) = (int(launch, "K"), int(launch, "N"));
                let entries = x.chunks(k).zip(y.unwrap());
                entries
                    .flat_map(|(row, id)| product(row, &self.weight(launch, "w")[*id as usize * n * k..], n))
                    .collect()
            }
            "combine_scaled" => {
                let (h, topk) = (int(launch, "H"), int(launch, "TOPK"));
                let (shares, ids) = (y.unwrap(), &self.buffers[ins[2] as usize]);
                let factor = self.weight(launch, "factor");
                let entry = |e: usize, c: usize| shares[e] * factor[ids[e] as usize] * x[e * h + c];
                let row = |t: usize| (0..h).map(move |c| (t * topk..(t + 1) * topk).map(|e| entry(e, c)).sum());
                (0..shares.len() / topk).flat_map(row).collect()
            }
            "add_bias" => {
                let bias = self.weight(launch, "bias");
                x.iter().enumerate().map(|(i, v)| v + bias[i % bias.len()]).collect()
            }
            "combine" | "combine_bias" => {
                let (h, topk) = (int(launch, "H"), int(launch, "TOPK"));
                let (scale, stream) = (float(launch, "SCALE"), &self.buffers[ins[2] as usize]);
                let ids = ins.get(3).map(|i| &self.buffers[*i as usize]);
                let bias = |entry: usize, c: usize| {
                    ids.map_or(0.0, |ids| self.weight(launch, "bias")[ids[entry] as usize * h + c])
                };
                let sum = |i: usize| {
                    let (t, c) = (i / h, i % h);
                    let entries = t * topk..(t + 1) * topk;
                    entries.map(|entry| y.unwrap()[entry] * (x[entry * h + c] + bias(entry, c))).sum::<f32>()
                };
                stream.iter().enumerate().map(|(i, v)| v + scale * sum(i)).collect()
            }
            "argmax" => x.chunks(int(launch, "V")).map(best).collect(),
            "rope_q" | "rope_store" => self.rotate(launch, "", x, int(launch, "FIRST"), int(launch, "HEADS")),
            other => panic!("{other}"),
        };
        self.buffers[outs[0] as usize] = result;
    }

    fn norm(&self, launch: &Launch, x: &[f32]) -> Vec<f32> {
        let (h, eps) = (int(launch, "H"), float(launch, "EPS"));
        x.chunks(h).flat_map(|row| normed(row, eps, Some(self.weight(launch, "w")))).collect()
    }

    /// Queries and keys each normed whole.
    fn norm_qk(&self, launch: &Launch, x: &[f32]) -> Vec<f32> {
        let (q, kv, eps) = (int(launch, "Q"), int(launch, "KV"), float(launch, "EPS"));
        let row = |row: &[f32]| {
            let queries = normed(&row[..q], eps, Some(self.weight(launch, "q_w")));
            let keys = normed(&row[q..q + kv], eps, Some(self.weight(launch, "k_w")));
            [queries, keys, row[q + kv..].to_vec()].concat()
        };
        x.chunks(q + 2 * kv).flat_map(row).collect()
    }

    fn linear(&self, launch: &Launch, x: &[f32], n: usize) -> Vec<f32> {
        let k = int(launch, "K");
        let w = self.weight(launch, "w");
        let dot = |row: &[f32], j: usize| row.iter().zip(&w[j * k..]).map(|(a, b)| a * b).sum::<f32>();
        x.chunks(k).flat_map(|row| (0..n).map(move |j| dot(row, j))).collect()
    }

    fn glu(&self, launch: &Launch, x: &[f32]) -> Vec<f32> {
        let n = int(launch, "N");
        let act = |g: f32| activation(int(launch, "ACT"), g);
        let both = self.linear(launch, x, 2 * n);
        both.chunks(2 * n).flat_map(|row| (0..n).map(|j| act(row[j]) * row[n + j]).collect::<Vec<_>>()).collect()
    }

    /// The chosen experts of each row, as numbers, and their shares.
    fn route(&self, launch: &Launch, logits: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (e, topk, normed) = (int(launch, "E"), int(launch, "TOPK"), int(launch, "NORMED") == 1);
        let (sigmoid, scale, bias) = (int(launch, "SIGMOID") == 1, float(launch, "SCALE"), self.weight(launch, "bias"));
        let (mut ids, mut shares) = (Vec::new(), Vec::new());
        for row in logits.chunks(e) {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let score = |v: &f32| if sigmoid { 1.0 / (1.0 + (-v).exp()) } else { (v - most).exp() };
            let scores: Vec<f32> = row.iter().map(score).collect();
            let key = |i: usize| if sigmoid { scores[i] + bias[i] } else { row[i] };
            let mut order: Vec<usize> = kept(launch, key).collect();
            order.sort_by(|a, b| key(*b).total_cmp(&key(*a)));
            let total: f32 = match (normed, sigmoid) {
                (true, _) => order[..topk].iter().map(|i| scores[*i]).sum(),
                (false, true) => 1.0,
                (false, false) => scores.iter().sum(),
            };
            ids.extend(order[..topk].iter().map(|i| *i as f32));
            shares.extend(order[..topk].iter().map(|i| scale * scores[*i] / total));
        }
        (ids, shares)
    }

    fn expert_glu(&self, launch: &Launch, x: &[f32], ids: &[f32]) -> Vec<f32> {
        let (k, n, w) = (int(launch, "K"), int(launch, "N"), self.weight(launch, "w"));
        let topk = ids.len() / (x.len() / k);
        let unit = |(entry, id): (usize, &f32)| {
            let both = product(&x[entry / topk * k..][..k], &w[*id as usize * 2 * n * k..], 2 * n);
            let clamped = |j: usize| {
                let bias = &self.weight(launch, "bias")[*id as usize * 2 * n..];
                let (gate, up) = ((both[j] + bias[j]).min(7.0), (both[n + j] + bias[n + j]).clamp(-7.0, 7.0));
                gate / (1.0 + (-1.702 * gate).exp()) * (up + 1.0)
            };
            match int(launch, "ACT") {
                2 => (0..n).map(clamped).collect::<Vec<_>>(),
                act => (0..n).map(|j| activation(act, both[j]) * both[n + j]).collect(),
            }
        };
        ids.iter().enumerate().flat_map(unit).collect()
    }

    /// `side`: how the names of the tables and of the norm begin.
    fn rotate(&self, launch: &Launch, side: &str, x: &[f32], first: usize, heads: usize) -> Vec<f32> {
        let d = 2 * int(launch, "HALF");
        let [cos, sin, w] = ["cos", "sin", "norm_w"].map(|name| self.weight(launch, &format!("{side}{name}")));
        let mut out = Vec::new();
        for (position, row) in x.chunks(int(launch, "PACKED") * d).enumerate() {
            for head in 0..heads {
                let mut v = row[(first + head) * d..][..d].to_vec();
                if int(launch, "NORM") == 1 {
                    v = normed(&v, float(launch, "EPS"), Some(w));
                }
                let angle = |i: usize| (cos[position * d / 2 + i], sin[position * d / 2 + i]);
                out.extend((0..d / 2).map(|i| v[i] * angle(i).0 - v[i + d / 2] * angle(i).1));
                out.extend((0..d / 2).map(|i| v[i + d / 2] * angle(i).0 + v[i] * angle(i).1));
            }
        }
        out
    }

    fn store(&mut self, launch: &Launch, ins: &[u32], layer: usize) {
        let qkv = ins[0];
        if ["store_delta", "store_mamba"].contains(&launch.spec.kernel.as_str()) {
            self.states[layer] = ins.iter().map(|i| self.buffers[*i as usize].clone()).collect();
            return;
        }
        if launch.spec.kernel == "store_conv" {
            self.caches[layer] = (self.buffers[qkv as usize].clone(), Vec::new());
            return;
        }
        if launch.spec.kernel == "store_gated" {
            let gated =
                |row: &[f32]| (0..row.len() / 3).map(|c| row[c] * row[2 * row.len() / 3 + c]).collect::<Vec<_>>();
            let rows = self.buffers[qkv as usize].chunks(6 * int(launch, "KV_HEADS") * int(launch, "D"));
            self.caches[layer] = (rows.flat_map(gated).collect(), Vec::new());
            return;
        }
        let x = &self.buffers[qkv as usize];
        let (heads, d, packed) = (int(launch, "KV_HEADS"), 2 * int(launch, "HALF"), int(launch, "PACKED"));
        let keys = self.rotate(launch, "k_", x, int(launch, "K_FIRST"), heads);
        let columns = x.chunks(packed * d).flat_map(|row| row[int(launch, "V_FIRST") * d..][..heads * d].to_vec());
        let mut values: Vec<f32> = columns.collect();
        if int(launch, "V_NORM") == 1 {
            values = values.chunks(d).flat_map(|v| normed(v, float(launch, "EPS"), None)).collect();
        }
        self.caches[layer] = (keys, values);
    }

    /// A convolution over the last rows of the cache: times the gate of the output, or through a SiLU.
    fn short_conv(&mut self, launch: &Launch, fused: u32, layer: usize, out: u32) {
        let taps = self.weight(launch, "taps");
        let (width, channels) = (int(launch, "WINDOW"), 2 * int(launch, "KV_HEADS") * int(launch, "D"));
        let bias = launch.weights.get("bias").map(|name| &self.weights[name]);
        let cell = |p: usize, c: usize| {
            let seen = (0..width).filter(|w| p + 1 + w >= width);
            let sum = seen
                .map(|w| taps[c * width + w] * self.caches[layer].0[(p + 1 + w - width) * channels + c])
                .sum::<f32>();
            let sum = sum + bias.map_or(0.0, |bias| bias[c]);
            match launch.spec.kernel.as_str() {
                "conv_silu" | "conv_silu_bias" => sum / (1.0 + (-sum).exp()),
                _ => self.buffers[fused as usize][p * 3 * channels + channels + c] * sum,
            }
        };
        let result = (0..self.tokens.len()).flat_map(|p| (0..channels).map(move |c| (p, c)));
        self.buffers[out as usize] = result.map(|(p, c)| cell(p, c)).collect();
    }

    fn attend(&mut self, launch: &Launch, q: u32, layer: usize, out: u32, window: Option<u32>) {
        if launch.spec.kernel == "read_state" {
            return self.recurrence(launch, q, layer, out);
        }
        if ["short_conv", "conv_silu", "conv_silu_bias"].contains(&launch.spec.kernel.as_str()) {
            assert_eq!(window, Some(int(launch, "WINDOW") as u32));
            return self.short_conv(launch, q, layer, out);
        }
        let (kv_heads, group, d) = (int(launch, "KV_HEADS"), int(launch, "GROUP"), int(launch, "D"));
        let heads = kv_heads * group;
        let known = (int(launch, "USE") == 1).then(|| int(launch, "WINDOW") as u32);
        assert_eq!(known, window);
        // If there is a cap, the slope contains half of it and the base of the exponential.
        let (slope, cap) = (float(launch, "SLOPE") * std::f32::consts::LN_2, float(launch, "CAP"));
        let scale = if int(launch, "CAPPED") == 1 { slope * cap / 2.0 } else { slope };
        let (keys, values) = &self.caches[layer];
        let mut result = Vec::new();
        for (p, row) in self.buffers[q as usize].chunks(heads * d).enumerate() {
            let first = window.map_or(0, |w| (p + 1).saturating_sub(w as usize));
            for head in 0..heads {
                let at = |j: usize| (j * kv_heads + head / group) * d;
                let query = &row[head * d..][..d];
                let score = |j: usize| {
                    let score = scale * query.iter().zip(&keys[at(j)..]).map(|(a, b)| a * b).sum::<f32>();
                    if cap > 0.0 { cap * (score / cap).tanh() } else { score }
                };
                let scores: Vec<f32> = (first..=p).map(score).collect();
                let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let shares: Vec<f32> = scores.iter().map(|s| (s - top).exp()).collect();
                let sink =
                    (int(launch, "SINKS") == 1).then(|| self.weight(launch, "sinks")[head] * std::f32::consts::LN_2);
                let total: f32 = shares.iter().sum::<f32>() + sink.map_or(0.0, |sink| (sink - top).exp());
                let mix = |i: usize| (first..=p).zip(&shares).map(|(j, s)| s * values[at(j) + i]).sum::<f32>() / total;
                result.extend((0..d).map(mix));
            }
        }
        self.buffers[out as usize] = result;
    }
}

/// The experts that a row may choose: all of them, or those of the groups whose two largest keys have the largest sums.
fn kept(launch: &Launch, key: impl Fn(usize) -> f32) -> impl Iterator<Item = usize> {
    let (groups, members) = (int(launch, "GROUPS"), int(launch, "MEMBERS"));
    let worth = |group: usize| {
        let mut keys: Vec<f32> = (group * members..(group + 1) * members).map(&key).collect();
        keys.sort_by(|a, b| b.total_cmp(a));
        keys[0] + keys[1]
    };
    let mut order: Vec<usize> = (0..groups).collect();
    order.sort_by(|a, b| worth(*b).total_cmp(&worth(*a)));
    let all = if groups == 0 { 0..int(launch, "E") } else { 0..0 };
    let kept = order.into_iter().take(int(launch, "KEPT")).flat_map(move |g| g * members..(g + 1) * members);
    all.chain(kept)
}

/// A row times the first `n` rows of a matrix.
fn product(row: &[f32], w: &[f32], n: usize) -> Vec<f32> {
    w.chunks(row.len()).take(n).map(|own| row.iter().zip(own).map(|(a, b)| a * b).sum()).collect()
}

fn best(row: &[f32]) -> f32 {
    (0..row.len()).rev().max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as f32
}

fn normed(row: &[f32], eps: f32, weight: Option<&[f32]>) -> Vec<f32> {
    let mean = row.iter().map(|v| v * v).sum::<f32>() / row.len() as f32;
    let scale = 1.0 / (mean + eps).sqrt();
    row.iter().enumerate().map(|(i, v)| v * scale * weight.map_or(1.0, |w| w[i])).collect()
}

fn add(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(x, y)| x + y).collect()
}

/// The function of a gate: GELU if `act` is 1, else SiLU.
fn activation(act: usize, g: f32) -> f32 {
    match act {
        1 => 0.5 * g * (1.0 + (0.797_884_6 * (g + 0.044715 * g * g * g)).tanh()),
        _ => g / (1.0 + (-g).exp()),
    }
}

fn int(launch: &Launch, name: &str) -> usize {
    match launch.spec.constants[name] {
        Const::Int(v) => v as usize,
        Const::Float(v) => panic!("{name} = {v}"),
    }
}

fn float(launch: &Launch, name: &str) -> f32 {
    match launch.spec.constants[name] {
        Const::Float(v) => v as f32,
        Const::Int(v) => panic!("{name} = {v}"),
    }
}

/// The largest value; NaN if there is one, so that no bound holds.
fn most(values: impl Iterator<Item = f32>) -> f32 {
    values.fold(0.0, |most, value| if value > most || value.is_nan() { value } else { most })
}

fn check(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny").join(name);
    let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    let decoder = families::from_config("config.json", &config).unwrap();
    let plan = plan(&decoder, &Target::named("cpu").with_act(Dtype::F32).with_choices(), None).unwrap();
    let files = TensorFiles::open_folder(&folder).unwrap();
    let golden = std::fs::read(folder.join("golden.safetensors")).unwrap();
    let golden = SafeTensors::deserialize(&golden).unwrap();
    let words = |name: &str| -> Vec<u32> {
        let tensor = golden.tensor(name).unwrap();
        tensor.data().chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let expected: Vec<f32> = words("logits_f32").into_iter().map(f32::from_bits).collect();
    let mut evaluator = Evaluator::new(&plan, &Weights::new(&files, &plan), words("tokens"));
    evaluator.run();
    let got = &evaluator.buffers[plan.program.logits as usize];
    assert_eq!(got.len(), expected.len());
    let largest = most(expected.iter().map(|v| v.abs()));
    assert!(largest > 1.0 && largest < 100.0, "the golden has no sane spread: {largest}");
    let off = most(got.iter().zip(&expected).map(|(a, b)| (a - b).abs()));
    assert!(off <= 1e-4 * largest, "{name}: off by {off} of {largest}");
}

/// A test for each tiny model.
macro_rules! each_computes_transformers_logits {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            check($name);
        })*
    };
}

each_computes_transformers_logits! {
    a_llama_with_scaled_rope_and_tied_embeddings "llama"
    a_llama_with_groups_of_three_and_its_own_head "llama-untied"
    a_gpt_oss_with_sinks_and_biases "gpt-oss"
    a_qwen3 "qwen3"
    a_gemma3_with_windows_and_softcap "gemma3"
    a_gemma4_with_keys_as_values "gemma4"
    a_gemma4_with_shared_caches "gemma4-shared"
    a_gemma4_with_experts_beside_its_perceptrons "gemma4-moe"
    a_gemma4_with_per_layer_embeddings_and_shared_caches "gemma4-e2b"
    a_gemma4_with_per_layer_embeddings "gemma4-e4b"
    a_qwen2_with_biases "qwen2"
    a_ministral_with_windows "ministral"
    a_ministral3_with_yarn_and_queries_scaled_by_position "ministral3"
    a_phi3_with_fused_tensors_partial_rotation_and_longrope "phi3"
    a_gemma2_with_soft_caps "gemma2"
    an_olmo2_with_norms_of_whole_queries "olmo2"
    an_olmo3_with_windows_and_yarn "olmo3"
    a_granite_with_multipliers "granite"
    a_dense_granite4 "granite4"
    a_granite4_with_mamba_layers "granite4-h"
    a_granite4_with_mamba_layers_and_experts "granite4-moe"
    a_nemotron_h_of_single_parts "nemotron-h"
    a_nemotron_nano_with_heads_of_80 "nemotron-nano"
    a_nemotron3_with_experts_without_gates "nemotron3"
    a_mamba2_without_attention "mamba2"
    a_minimax_m2_with_norms_of_heads_of_which_half_turns "minimax-m2"
    a_falcon_h1_with_attention_beside_its_states "falcon-h1"
    a_smollm3_with_a_layer_without_rotation "smollm3"
    a_qwen3_5_with_a_gated_delta_rule "qwen3_5"
    an_lfm2_with_convolutions "lfm2"
    an_lfm2_with_experts "lfm2-moe"
    an_ernie4_5_with_interleaved_heads "ernie4_5"
    a_qwen3_with_experts_and_a_dense_layer "qwen3-moe"
    an_olmoe_with_shares_that_do_not_add_up "olmoe"
    a_mixtral "mixtral"
    a_granite_with_experts "granite-moe"
    a_glm_with_a_sigmoid_router_and_a_shared_expert "glm4-moe"
    a_ling_with_groups_of_experts "ling"
    a_qwen3_5_with_experts_beside_a_gated_perceptron "qwen3_5-moe"
    a_qwen3_next_with_ten_experts_of_a_row "qwen3-next"
}
