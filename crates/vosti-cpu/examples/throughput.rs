//! Throughput of a Llama-shaped program (SmolLM2-135M's dimensions, random weights) on the CPU device.
//!
//! `cargo run --release -p vosti-cpu --example throughput -- [threads] [depth] [repeats]`: prefill of 512 and decode
//! at batch 1, 4 and 8, each at `depth`, in tokens/s, and the time of each kernel in a step.
//! The real models are measured by `cargo xtask bench cpu`; this one needs no download.

use std::ops::Range;
use std::time::Instant;

use vosti_core::{
    BufferDecl, Core, Dtype, GroupDecl, LayerDecl, Op, Program, RequestId, RowSet, Sampler, Select, Token,
};
use vosti_cpu::{Config, CpuDevice, TensorData, WeightError, Weights};
use vosti_kernels::{Act, Binding, Const, Launch, specialise};

const HIDDEN: u32 = 576;
const HEADS: i64 = 9;
const KV_HEADS: i64 = 3;
const HEAD: i64 = 64;
const QKV: u32 = 960;
const INNER: u32 = 1536;
const LAYERS: u32 = 30;
const VOCAB: u32 = 49152;
const CONTEXT: u32 = 8192;

struct Random;

impl Weights for Random {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        Ok(match name.split('.').next().unwrap_or(name) {
            "embed" => vec![VOCAB as usize, HIDDEN as usize],
            "norm" => vec![HIDDEN as usize],
            "cos" | "sin" => vec![CONTEXT as usize, HEAD as usize / 2],
            "qkv" => vec![QKV as usize, HIDDEN as usize],
            "out" => vec![HIDDEN as usize, HIDDEN as usize],
            "gate_up" => vec![2 * INNER as usize, HIDDEN as usize],
            _ => vec![HIDDEN as usize, INNER as usize],
        })
    }

    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        let columns = self.shape(name)?[1..].iter().product::<usize>();
        let (first, len) = (rows.start * columns, rows.len() * columns);
        let start = 88172645463325252u64 + first as u64;
        let mut state = name.bytes().fold(start, |s, b| (s ^ u64::from(b)).wrapping_mul(0x100000001b3));
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        Ok(match name.split('.').next().unwrap_or(name) {
            "norm" => TensorData::F32((0..len).map(|_| 1.0 + 0.2 * next()).collect()),
            "cos" | "sin" => {
                let angle = |i: usize| {
                    let (position, pair) = (i / (HEAD as usize / 2), i % (HEAD as usize / 2));
                    position as f64 * 100000f64.powf(-2.0 * pair as f64 / HEAD as f64)
                };
                let f = |i| if name == "cos" { angle(i).cos() } else { angle(i).sin() };
                TensorData::F32((first..first + len).map(|i| f(i) as f32).collect())
            }
            _ => TensorData::Bf16((0..len).map(|_| ((0.08 * next()).to_bits() >> 16) as u16).collect()),
        })
    }
}

fn program() -> (Program, Vec<Binding>) {
    let spec =
        |kernel: &str, dims: &[(&str, Const)]| specialise("cpu", kernel, Act::Bf16, dims).expect("a specialisation");
    let i = |v: i64| Const::Int(v);
    let (eps, none) = (Const::Float(1e-5), Const::Float(0.0));
    let mut bindings = Vec::new();
    let mut bind = |spec, weights: &[String]| {
        bindings.push(Binding { launches: vec![Launch { spec, weights: weights.to_vec() }] });
        bindings.len() as u32 - 1
    };
    let w = |name: &str, layer: u32| format!("{name}.{layer}");
    let table = ["cos".to_string(), "sin".to_string()];
    let act = |width, rows| BufferDecl { width, dtype: Dtype::Act, rows };
    let mut buffers = vec![
        act(HIDDEN, RowSet::All),
        act(HIDDEN, RowSet::All),
        act(HIDDEN, RowSet::All),
        act(QKV, RowSet::All),
        act(HIDDEN, RowSet::All),
        act(HIDDEN, RowSet::All),
        act(INNER, RowSet::All),
        act(HIDDEN, RowSet::Selected),
    ];
    buffers.push(BufferDecl { width: VOCAB, dtype: Dtype::F32, rows: RowSet::Selected });
    let rowwise =
        |k, ins: &[u32], outs: &[u32]| Op::Rowwise { k, ins: ins.to_vec(), outs: outs.to_vec(), rows: RowSet::All };
    let h = i(i64::from(HIDDEN));
    let embed = spec("embed", &[("V", i(i64::from(VOCAB))), ("H", h), ("SCALE", Const::Float(1.0))]);
    let norm = spec("rmsnorm", &[("H", h), ("EPS", eps)]);
    let qkv = spec("linear", &[("K", h), ("N", i(i64::from(QKV)))]);
    let rope = spec(
        "rope_q",
        &[
            ("HEADS", i(HEADS)),
            ("D", i(HEAD)),
            ("STRIDE", i(i64::from(QKV))),
            ("OFFSET", i(0)),
            ("NORM", i(0)),
            ("EPS", none),
        ],
    );
    let store = spec(
        "store_kv",
        &[
            ("KV_HEADS", i(KV_HEADS)),
            ("D", i(HEAD)),
            ("PAGE", i(64)),
            ("STRIDE", i(i64::from(QKV))),
            ("K_OFFSET", i(HEADS * HEAD)),
            ("V_OFFSET", i((HEADS + KV_HEADS) * HEAD)),
            ("NORM", i(0)),
            ("V_NORM", i(0)),
            ("EPS", none),
        ],
    );
    let attend = spec(
        "attend",
        &[
            ("HEADS", i(HEADS)),
            ("KV_HEADS", i(KV_HEADS)),
            ("D", i(HEAD)),
            ("PAGE", i(64)),
            ("WINDOW", i(0)),
            ("SCALE", Const::Float(0.125)),
            ("SOFTCAP", none),
        ],
    );
    let out = spec("linear_add", &[("K", h), ("N", h)]);
    let glu = spec("linear_glu", &[("K", h), ("N", i(i64::from(INNER))), ("ACT", i(0))]);
    let down = spec("linear_add", &[("K", i(i64::from(INNER))), ("N", h)]);
    let gather = spec("rmsnorm_gather", &[("H", h), ("EPS", eps)]);
    let logits = spec("linear_logits", &[("K", h), ("N", i(i64::from(VOCAB))), ("SOFTCAP", none)]);
    let mut ops = vec![Op::Embed { k: bind(embed, &["embed".into()]), out: 0 }];
    for layer in 0..LAYERS {
        ops.push(rowwise(bind(norm.clone(), &[w("norm", 2 * layer)]), &[0], &[2]));
        ops.push(rowwise(bind(qkv.clone(), &[w("qkv", layer)]), &[2], &[3]));
        ops.push(rowwise(bind(rope.clone(), &table), &[3], &[4]));
        ops.push(Op::StoreKv { k: bind(store.clone(), &table), ins: vec![3], layer });
        ops.push(Op::Attend { k: bind(attend.clone(), &[]), q: 4, layer, out: 5, window: None });
        ops.push(rowwise(bind(out.clone(), &[w("out", layer)]), &[5, 0], &[1]));
        ops.push(rowwise(bind(norm.clone(), &[w("norm", 2 * layer + 1)]), &[1], &[2]));
        ops.push(rowwise(bind(glu.clone(), &[w("gate_up", layer)]), &[2], &[6]));
        ops.push(rowwise(bind(down.clone(), &[w("down", layer)]), &[6, 1], &[0]));
    }
    let selected = |k, ins: &[u32], outs: &[u32]| Op::Rowwise {
        k,
        ins: ins.to_vec(),
        outs: outs.to_vec(),
        rows: RowSet::Selected,
    };
    ops.push(selected(bind(gather, &["norm.last".into()]), &[0], &[7]));
    ops.push(selected(bind(logits, &["embed".into()]), &[7], &[8]));
    let kernels = bindings.len() as u32;
    let program = Program {
        ops,
        buffers,
        groups: vec![GroupDecl { window: None, kv_heads: KV_HEADS as u32, head_dim: HEAD as u32 }],
        layers: (0..LAYERS).map(|_| LayerDecl { group: 0 }).collect(),
        logits: 8,
        vocab: VOCAB,
        context: CONTEXT,
        kernels,
    };
    (program, bindings)
}

struct Cycle;

impl Sampler for Cycle {
    type Logits = [f32];
    type State = u32;
    fn vocab(&self) -> u32 {
        VOCAB
    }
    fn sample(&self, state: &mut u32, logits: &[f32]) -> (Token, bool) {
        assert!(logits.iter().take(64).all(|x| x.is_finite()));
        *state = (*state * 31 + 7) % VOCAB;
        (*state, false)
    }
}

type Bench = Core<CpuDevice, Cycle>;

/// Per kernel, its shortest time in a step: what a busy neighbour disturbs least.
#[derive(Default)]
struct Times(Vec<(String, f64)>);

impl Times {
    fn add(&mut self, core: &Bench) {
        let now = core.device().take_times();
        if self.0.is_empty() {
            self.0 = now;
            return;
        }
        for (least, (_, seconds)) in self.0.iter_mut().zip(now) {
            least.1 = least.1.min(seconds);
        }
    }

    fn print(&self) {
        for (spec, seconds) in &self.0 {
            println!("    {:9.1} us  {spec}", seconds * 1e6);
        }
        println!("    {:9.1} us  in all", self.0.iter().map(|t| t.1).sum::<f64>() * 1e6);
    }
}

fn step(core: &mut Bench, rows: &[(RequestId, usize)]) -> f64 {
    for (request, count) in rows {
        let cached = core.request(*request).expect("live").cached();
        while core.request(*request).expect("live").table(0).len() * 64 < cached + count {
            core.take_page(*request, 0).expect("a page");
        }
    }
    core.plan_begin().expect("no step in flight");
    for (request, count) in rows {
        core.plan_rows(*request, *count, &[], Select::Last).expect("rows");
    }
    let start = Instant::now();
    core.run().expect("a step");
    let time = start.elapsed().as_secs_f64();
    core.commit().expect("records");
    time
}

/// A request whose first `depth` positions are cached, in chunks of 512.
fn admitted(core: &mut Bench, depth: usize, more: usize, seed: u32) -> RequestId {
    let prompt = (0..depth + more).map(|i| (i as u32 * 131 + seed) % VOCAB).collect();
    let request = core.admit(prompt, 0, seed).expect("admitted");
    let mut at = 0;
    while at < depth {
        let rows = 512.min(depth - at);
        step(core, &[(request, rows)]);
        at += rows;
    }
    request
}

fn main() {
    let number = |i: usize, default: usize| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (threads, depth) = (number(1, 2), number(2, 0));
    let (program, bindings) = program();
    let pages = 8 * (depth + 640).div_ceil(64) + 16;
    let start = Instant::now();
    let config = Config::new(512, 8, vec![pages], threads);
    let device = CpuDevice::new(&program, &bindings, &Random, config).unwrap_or_else(|e| panic!("{e}"));
    println!("made in {:.1} s; interpreted: {:?}", start.elapsed().as_secs_f64(), device.interpreted());
    let mut core = Core::new(device, Cycle, program).unwrap_or_else(|e| panic!("{e:?}"));
    let repeats = number(3, 5);
    for round in 0..2 {
        let mut times = Vec::new();
        let mut least = Times::default();
        for seed in 0..repeats as u32 {
            let request = admitted(&mut core, depth, 512, seed);
            core.device().take_times();
            times.push(step(&mut core, &[(request, 512)]));
            least.add(&core);
            core.abort(request).expect("aborted");
        }
        times.sort_by(f64::total_cmp);
        println!(
            "round {round}: prefill 512 at {depth}: median {:.0} best {:.0} tokens/s",
            512.0 / times[times.len() / 2],
            512.0 / times[0]
        );
        if round == 1 {
            least.print();
        }
    }
    for batch in [1, 4, 8] {
        let requests: Vec<RequestId> = (0..batch).map(|seed| admitted(&mut core, depth.max(1), 1, seed)).collect();
        let rows: Vec<(RequestId, usize)> = requests.iter().map(|r| (*r, 1)).collect();
        core.device().take_times();
        let mut least = Times::default();
        let mut times = Vec::new();
        for _ in 0..64 {
            times.push(step(&mut core, &rows));
            least.add(&core);
        }
        times.sort_by(f64::total_cmp);
        let (median, best) = (f64::from(batch) / times[32], f64::from(batch) / times[0]);
        println!("decode batch {batch} at {depth}: median {median:.1} best {best:.1} tokens/s");
        least.print();
        requests.iter().for_each(|r| core.abort(*r).expect("aborted"));
    }
}
