//! Small programs of every kind of op, from checked-in TTIR, with random BF16 weights; the device laws run on them. Every
//! device's tests include this file.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use std::ops::Range;
use vosti_contract::{Const, Role};
use vosti_core::{BufferDecl, Dtype, GroupDecl, LayerDecl, Op, PAGE, PartDecl, Program, RowSet};
use vosti_kernels::{Binding, Launch, Spec, capped, scores, specialise};
use vosti_wiring::{TensorData, WeightError, Weights};

pub const VOCAB: u32 = 256;
/// Logits of a list.
const LISTED: i64 = 64;
/// The embeddings of these tokens are not all finite, so that their keys and values are not.
pub const OVERFLOWING: u32 = 240;
const HIDDEN: usize = 64;
/// Key heads of the layer with a state, heads for each, and numbers of a key and of a value.
const KEY_HEADS: usize = 2;
const GROUP: usize = 2;
const KEY: usize = 32;
const VALUE: usize = 16;

/// Weights that a name decides.
pub struct Random;

fn kind(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

impl Weights for Random {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        Ok(match kind(name) {
            "embed" | "head" => vec![VOCAB as usize, HIDDEN],
            "norm" => vec![HIDDEN],
            "head_norm" => vec![16],
            "sinks" => vec![8],
            "cos" | "sin" => vec![512, 8],
            "qkv" => vec![192, HIDDEN],
            "out" => vec![HIDDEN, 128],
            "square" => vec![128, HIDDEN],
            "query" | "key" => vec![KEY_HEADS * KEY, HIDDEN],
            "value" => vec![KEY_HEADS * GROUP * VALUE, HIDDEN],
            "decay" | "strength" => vec![KEY_HEADS * GROUP, HIDDEN],
            other => return Err(format!("no weight {other}").into()),
        })
    }

    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        let shape = self.shape(name)?;
        let seed = name.bytes().fold(7u64, |s, b| (s ^ u64::from(b)).wrapping_mul(0x100000001b3));
        let mut random = SplitMix64::seed_from_u64(seed);
        let mut next = || (random.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let value = |i: usize| match kind(name) {
            "embed" if i / HIDDEN >= OVERFLOWING as usize => {
                next() * if i.is_multiple_of(3) { f32::INFINITY } else { 1.0 }
            }
            "norm" | "head_norm" => 1.0 + 0.2 * next(),
            // So that a state neither fades at once nor grows without end.
            "key" | "decay" | "strength" => 0.02 * next(),
            _ => 0.4 * next(),
        };
        let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
        let width: usize = shape[1..].iter().product();
        let data = match kind(name) {
            "norm" | "head_norm" | "cos" | "sin" | "sinks" => TensorData::F32(values),
            "query" | "key" | "value" | "decay" | "strength" => TensorData::F32(values),
            _ => TensorData::Bf16(values.iter().map(|x| (x.to_bits() >> 16) as u16).collect()),
        };
        Ok(data.part(rows.start * width..rows.end * width))
    }
}

/// A launch's weights by parameter, from their names in the order of the kernel's signature.
fn bound(spec: &Spec, weights: impl Iterator<Item = String>) -> BTreeMap<String, String> {
    let params = vosti_kernels::contract(&spec.kernel).unwrap().params.iter();
    params.filter(|p| matches!(p.role, Role::Weight(_))).map(|p| p.name.clone()).zip(weights).collect()
}

/// Ops over buffers of a program that is being built.
#[derive(Default)]
struct Builder {
    ops: Vec<Op>,
    buffers: Vec<BufferDecl>,
    bindings: Vec<Binding>,
    /// From here on the rows that feed logits alone.
    chosen: bool,
}

fn spec(kernel: &str, dims: &[(&str, Const)]) -> Spec {
    specialise("cpu", kernel, Dtype::Bf16, dims).unwrap()
}

fn wide_spec(kernel: &str, dims: &[(&str, Const)]) -> Spec {
    specialise("cpu", kernel, Dtype::F32, dims).unwrap()
}

fn int(value: i64) -> Const {
    Const::Int(value)
}

impl Builder {
    fn buffer(&mut self, width: usize, dtype: Dtype, rows: RowSet) -> u32 {
        self.buffers.push(BufferDecl { width: width as u32, dtype, rows });
        self.buffers.len() as u32 - 1
    }

    fn bind(&mut self, spec: Spec, weights: &[&str]) -> u32 {
        self.binding(Binding::one(spec.clone(), bound(&spec, weights.iter().map(|w| w.to_string()))))
    }

    fn binding(&mut self, binding: Binding) -> u32 {
        self.bindings.push(binding);
        self.bindings.len() as u32 - 1
    }

    fn rowwise(&mut self, spec: Spec, weights: &[&str], ins: &[u32], width: usize) -> u32 {
        let dtype = if spec.kernel == "linear_add" { Dtype::F32 } else { spec.act };
        let rows = if self.chosen { RowSet::Selected } else { RowSet::All };
        let (k, out) = (self.bind(spec, weights), self.buffer(width, dtype, rows));
        self.ops.push(Op::Rowwise { k, ins: ins.to_vec(), outs: vec![out], rows });
        out
    }

    fn embed(&mut self) -> u32 {
        let dims = [("V", int(i64::from(VOCAB))), ("H", int(HIDDEN as i64)), ("SCALE", Const::Float(1.0))];
        let (k, out) = (self.bind(spec("embed", &dims), &["embed"]), self.buffer(HIDDEN, Dtype::F32, RowSet::All));
        self.ops.push(Op::Embed { k, out });
        out
    }

    fn norm(&mut self, x: u32) -> u32 {
        self.rowwise(spec("rmsnorm", &[("H", int(64)), ("EPS", Const::Float(1e-6))]), &["norm.0"], &[x], HIDDEN)
    }

    /// What the heads see, 128 wide.
    fn attention(&mut self, x: u32, layer: u32, window: Option<u32>) -> u32 {
        let dims = |names: &[(&'static str, i64)]| -> Vec<(&'static str, Const)> {
            names.iter().map(|(name, value)| (*name, int(*value))).collect()
        };
        let name = |weight: &str| format!("{weight}.{layer}");
        let linear = spec("linear", &dims(&[("K", 64), ("N", 192)]));
        let normed = self.norm(x);
        let qkv = self.rowwise(linear, &[&name("qkv")], &[normed], 192);
        let eps = ("EPS", Const::Float(1e-6));
        let mut store =
            dims(&[("HEADS", 8), ("KV_HEADS", 2), ("PROGRAMS", 10), ("HALF", 8), ("PAGE", 64), ("PACKED", 12)]);
        store.extend(dims(&[("FIRST", 0), ("K_FIRST", 8), ("V_FIRST", 10), ("NORM", 1), ("V_NORM", 0)]));
        store.push(eps);
        let norm = name("head_norm");
        let k = self.bind(spec("rope_store", &store), &["cos", "sin", &norm, "cos", "sin", &norm]);
        self.ops.push(Op::StoreKv { k, ins: vec![qkv], layer, back: 0 });
        let (k, q) = (self.binding(Binding::before()), self.buffer(128, Dtype::Bf16, RowSet::All));
        self.ops.push(Op::Rowwise { k, ins: vec![qkv], outs: vec![q], rows: RowSet::All });
        let groups = dims(&[("KV_HEADS", 2), ("GROUP", 4), ("D", 16), ("PAGE", 64), ("SINKS", 1)]);
        let first =
            spec("attend", &[&groups[..], &vosti_kernels::window(window), &scores(0.2041241452319315, 0.0)].concat());
        let k = match window {
            Some(_) => self.bind(first, &[&name("sinks")]),
            // In two launches: splits of 64 keys.
            None => {
                let heads = dims(&[("KV_HEADS", 2), ("GROUP", 4), ("D", 16), ("SINKS", 1)]);
                let combine = spec("attend_combine", &heads);
                let weights = bound(&first, [name("sinks")].into_iter());
                let first = Launch { spec: first, higher: vec![], weights };
                self.binding(Binding::split(first, combine, false).unwrap())
            }
        };
        let seen = self.buffer(128, Dtype::Bf16, RowSet::All);
        self.ops.push(Op::Attend { k, q, layer, out: seen, window });
        seen
    }

    /// What a gated delta rule reads, 128 wide.
    fn recurrence(&mut self, x: u32, layer: u32) -> u32 {
        let norm = wide_spec("rmsnorm", &[("H", int(64)), ("EPS", Const::Float(1e-6))]);
        let normed = self.rowwise(norm, &["norm.0"], &[x], HIDDEN);
        let heads = KEY_HEADS * GROUP;
        let parts = [("query", KEY_HEADS * KEY), ("key", KEY_HEADS * KEY), ("value", heads * VALUE)];
        let parts = parts.into_iter().chain([("decay", heads), ("strength", heads)]);
        let projected: Vec<u32> = parts
            .map(|(name, n)| {
                let linear = wide_spec("linear", &[("K", int(64)), ("N", int(n as i64))]);
                self.rowwise(linear, &[&format!("{name}.{layer}")], &[normed], n)
            })
            .collect();
        let dims = [("KEY_HEADS", KEY_HEADS), ("GROUP", GROUP), ("DK", KEY), ("DV", VALUE), ("PAGE", PAGE)];
        let dims = dims.map(|(name, value)| (name, int(value as i64)));
        let k = self.bind(wide_spec("store_delta", &dims), &[]);
        self.ops.push(Op::StoreKv { k, ins: projected[1..].to_vec(), layer, back: PAGE as u32 });
        let (k, out) = (self.bind(wide_spec("read_state", &dims), &[]), heads * VALUE);
        let out = self.buffer(out, Dtype::F32, RowSet::All);
        self.ops.push(Op::Attend { k, q: projected[0], layer, out, window: Some(PAGE as u32 + 1) });
        let rounded = self.rowwise(spec("round_stream", &[("H", int(64))]), &[], &[out], HIDDEN);
        self.rowwise(spec("linear", &[("K", int(64)), ("N", int(128))]), &["square.1"], &[rounded], 128)
    }

    /// `x` projected and added to the stream.
    fn add(&mut self, wide: u32, x: u32, weight: &str) -> u32 {
        self.rowwise(
            spec("linear_add", &[("K", int(128)), ("N", int(64)), ("SCALE", Const::Float(1.0))]),
            &[weight],
            &[wide, x],
            HIDDEN,
        )
    }

    fn list(&mut self, spec: Spec, ins: Vec<u32>) -> Vec<u32> {
        let k = self.bind(spec, &[]);
        let outs = [0; 2].map(|_: u32| self.buffer(LISTED as usize, Dtype::F32, RowSet::Selected)).to_vec();
        self.ops.push(Op::Rowwise { k, ins, outs: outs.clone(), rows: RowSet::Selected });
        outs
    }

    /// The chosen rows of what is 128 wide and of the stream, joined, and their logits.
    fn finish(mut self, wide: u32, x: u32, weight: &str) -> (Program, Vec<Binding>) {
        let k = self.bind(spec("gather", &[("K", int(128)), ("H", int(64))]), &[]);
        self.chosen = true;
        let chosen = self.buffer(128, Dtype::Bf16, RowSet::Selected);
        let stream = self.buffer(HIDDEN, Dtype::F32, RowSet::Selected);
        self.ops.push(Op::Rowwise { k, ins: vec![wide, x], outs: vec![chosen, stream], rows: RowSet::Selected });
        let x = self.add(chosen, stream, weight);
        let row = self.norm(x);
        let head = [&[("K", int(64)), ("N", int(i64::from(VOCAB)))], &capped(0.0, 1.0)[..]].concat();
        let k = self.bind(spec("linear_logits", &head), &["head"]);
        let logits = self.buffer(VOCAB as usize, Dtype::F32, RowSet::Selected);
        self.ops.push(Op::Rowwise { k, ins: vec![row], outs: vec![logits], rows: RowSet::Selected });
        let k = self.bind(spec("argmax", &[("V", int(i64::from(VOCAB)))]), &[]);
        let best = self.buffer(1, Dtype::F32, RowSet::Selected);
        self.ops.push(Op::Rowwise { k, ins: vec![logits], outs: vec![best], rows: RowSet::Selected });
        let dims = [("V", i64::from(VOCAB)), ("PARTS", 1), ("PART", i64::from(VOCAB)), ("K", LISTED)];
        let found = self.list(spec("topk_part", &dims.map(|(name, value)| (name, int(value)))), vec![logits]);
        self.list(spec("topk_combine", &[("N", int(LISTED)), ("K", int(LISTED))]), found);
        let part = PartDecl { heads: 2, width: 16, dtype: Dtype::Bf16 };
        let group = |window| GroupDecl { window, entry: vec![part; 2], state: vec![] };
        let heads = (KEY_HEADS * GROUP) as u32;
        let part = |width: usize| PartDecl { heads, width: width as u32, dtype: Dtype::F32 };
        let recurring = GroupDecl {
            window: Some(PAGE as u32 + 1),
            entry: vec![part(KEY), part(VALUE), part(1)],
            state: vec![part(KEY * VALUE)],
        };
        let program = Program {
            ops: self.ops,
            buffers: self.buffers,
            groups: vec![group(Some(50)), group(None), recurring],
            layers: (0..3).map(|group| LayerDecl { group }).collect(),
            logits,
            vocab: VOCAB,
            context: 400,
            kernels: self.bindings.len() as u32,
        };
        (program, self.bindings)
    }
}

/// Rows alone.
pub fn rowwise() -> (Program, Vec<Binding>) {
    let mut b = Builder::default();
    let x = b.embed();
    let normed = b.norm(x);
    let wide = b.rowwise(spec("linear", &[("K", int(64)), ("N", int(128))]), &["square.0"], &[normed], 128);
    b.finish(wide, x, "out.9")
}

/// Attention, in a window and without, and a layer whose pages have a state.
pub fn attending() -> (Program, Vec<Binding>) {
    let mut b = Builder::default();
    let x = b.embed();
    let seen = b.attention(x, 0, Some(50));
    let x = b.add(seen, x, "out.0");
    let read = b.recurrence(x, 2);
    let x = b.add(read, x, "out.2");
    let seen = b.attention(x, 1, None);
    b.finish(seen, x, "out.1")
}
