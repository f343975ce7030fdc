//! The whole device: fast mode equals plain mode, whatever the threads, the batch, the chunks and the pages.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use vosti_contract::{Const, Role};
use vosti_core::{
    BufferDecl, Core, Draw, Dtype, GroupDecl, LayerDecl, Op, PartDecl, Program, Reads, RequestId, RowSet, Sampler,
    Select, Token,
};
use vosti_cpu::Isa;
use vosti_cpu::{Config, CpuDevice, Mode, Quantised, Storage, TensorData, WeightError, Weights};
use vosti_kernels::{Admitted, Binding, Launch, Spec, capped, scores, specialise};
use vosti_simd::storage::exponents;

struct Random(Dtype);

impl Weights for Random {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        Ok(match name.split('.').next().unwrap_or(name) {
            "embed" => vec![256, 64],
            "norm" => vec![64],
            "cos" | "sin" => vec![512, 8],
            "unread" => vec![16],
            "sinks" => vec![4],
            "qkv" => vec![128, 64],
            "down" => vec![64, 128],
            "out" => vec![64, 64],
            _ => vec![256, 64],
        })
    }

    fn by_position(&self, name: &str) -> bool {
        matches!(name, "cos" | "sin")
    }

    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        let shape = self.shape(name)?;
        let (len, columns) = (shape.iter().product::<usize>(), shape[1..].iter().product::<usize>());
        let seed = name.bytes().fold(7u64, |s, b| (s ^ u64::from(b)).wrapping_mul(0x100000001b3));
        let mut random = SplitMix64::seed_from_u64(seed);
        let mut next = || (random.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let vector = matches!(name.split('.').next(), Some("norm" | "cos" | "sin" | "unread" | "sinks"));
        let mut values: Vec<f32> =
            (0..len).map(|_| if name.starts_with("norm") { 1.0 + 0.2 * next() } else { 0.4 * next() }).collect();
        if name == "down.1" {
            // So that one panel has no code.
            values[len - 9] = 1e-30;
        }
        let data = match self.0 {
            Dtype::Bf16 if !vector => TensorData::Bf16(values.iter().map(|x| (x.to_bits() >> 16) as u16).collect()),
            _ => TensorData::F32(values),
        };
        Ok(data.part(rows.start * columns..rows.end * columns))
    }
}

/// A small Llama: hidden 64, 4 heads of 16, 2 KV heads, 2 layers, tied embedding.
fn program(act: Dtype) -> (Program, Vec<Binding>) {
    let spec = |kernel: &str, dims: &[(&str, Const)]| specialise("cpu", kernel, act, dims).unwrap();
    let (i, f) = (Const::Int, Const::Float);
    let heads = [("KV_HEADS", i(2)), ("GROUP", i(2)), ("D", i(16)), ("SINKS", i(1))];
    let groups = [("KV_HEADS", i(2)), ("GROUP", i(2)), ("D", i(16)), ("PAGE", i(64)), ("SINKS", i(1))];
    let part = spec("attend", &[&groups[..], &vosti_kernels::window(None), &scores(0.25, 0.0)].concat());
    // The first two bindings: attention, in two launches, and queries that are rotated where keys are stored.
    let sinks = BTreeMap::from([("sinks".to_string(), "sinks.0".to_string())]);
    let part = Launch { spec: part, higher: vec![], weights: sinks };
    let mut bindings = vec![Binding::split(part, spec("attend_combine", &heads), false).unwrap(), Binding::before()];
    let queries = 1;
    let mut bind = |spec: Spec, weights: &[&str], layer: u32| {
        let weights = weights
            .iter()
            .map(|w| if *w == "embed" || *w == "cos" || *w == "sin" { w.to_string() } else { format!("{w}.{layer}") });
        let params = vosti_kernels::contract(&spec.kernel).unwrap().params.iter();
        let params = params.filter(|p| matches!(p.role, Role::Weight(_))).map(|p| p.name.clone());
        let weights = params.zip(weights).collect();
        bindings.push(Binding::one(spec, weights));
        bindings.len() as u32 - 1
    };
    let norm = spec("rmsnorm", &[("H", i(64)), ("EPS", f(1e-6))]);
    let store = [
        ("HEADS", i(4)),
        ("KV_HEADS", i(2)),
        ("PROGRAMS", i(6)),
        ("HALF", i(8)),
        ("FIRST", i(0)),
        ("PAGE", i(64)),
        ("PACKED", i(8)),
        ("K_FIRST", i(4)),
        ("V_FIRST", i(6)),
        ("NORM", i(0)),
        ("V_NORM", i(0)),
        ("EPS", f(0.0)),
    ];
    let store = spec("rope_store", &store);
    let buffer = |width, rows| BufferDecl { width, dtype: act, rows };
    let widths = [64, 64, 64, 128, 64, 64, 128];
    let mut buffers: Vec<BufferDecl> = widths.iter().map(|w| buffer(*w, RowSet::All)).collect();
    for stream in &mut buffers[..2] {
        stream.dtype = Dtype::F32;
    }
    buffers.push(buffer(64, RowSet::Selected));
    buffers.push(BufferDecl { width: 256, dtype: Dtype::F32, rows: RowSet::Selected });
    buffers.push(buffer(64, RowSet::Selected));
    buffers.push(BufferDecl { width: 64, dtype: Dtype::F32, rows: RowSet::Selected });
    buffers.push(BufferDecl { width: 1, dtype: Dtype::F32, rows: RowSet::Selected });
    let row = |k, ins: &[u32], outs: &[u32], rows| Op::Rowwise { k, ins: ins.to_vec(), outs: outs.to_vec(), rows };
    let all = RowSet::All;
    let mut ops = vec![Op::Embed {
        k: bind(spec("embed", &[("V", i(256)), ("H", i(64)), ("SCALE", f(1.0))]), &["embed"], 0),
        out: 0,
    }];
    for layer in 0..2 {
        ops.push(row(bind(norm.clone(), &["norm"], 2 * layer), &[0], &[2], all));
        ops.push(row(bind(spec("linear", &[("K", i(64)), ("N", i(128))]), &["qkv"], layer), &[2], &[3], all));
        let k = bind(store.clone(), &["cos", "sin", "unread", "cos", "sin", "unread"], 0);
        ops.push(Op::StoreKv { k, ins: vec![3], layer, back: 0 });
        ops.push(row(queries, &[3], &[4], all));
        ops.push(Op::Attend { k: 0, q: 4, layer, out: 5, window: None });
        ops.push(row(
            bind(spec("linear_add", &[("K", i(64)), ("N", i(64)), ("SCALE", f(1.0))]), &["out"], layer),
            &[5, 0],
            &[1],
            all,
        ));
        ops.push(row(bind(norm.clone(), &["norm"], 2 * layer + 1), &[1], &[2], all));
        ops.push(row(
            bind(spec("linear_glu", &[("K", i(64)), ("N", i(128)), ("ACT", i(0))]), &["up"], layer),
            &[2],
            &[6],
            all,
        ));
        ops.push(row(
            bind(spec("linear_add", &[("K", i(128)), ("N", i(64)), ("SCALE", f(1.0))]), &["down"], layer),
            &[6, 1],
            &[0],
            all,
        ));
    }
    let gather = spec("gather", &[("K", i(64)), ("H", i(64))]);
    let logits = spec("linear_logits", &[&[("K", i(64)), ("N", i(256))], &capped(0.0, 1.0)[..]].concat());
    ops.push(row(bind(gather, &[], 0), &[5, 0], &[9, 10], RowSet::Selected));
    ops.push(row(bind(norm, &["norm"], 9), &[10], &[7], RowSet::Selected));
    ops.push(row(bind(logits, &["embed"], 0), &[7], &[8], RowSet::Selected));
    ops.push(row(bind(spec("argmax", &[("V", i(256))]), &[], 0), &[8], &[11], RowSet::Selected));
    let kernels = bindings.len() as u32;
    let groups =
        vec![GroupDecl { window: None, entry: vec![PartDecl { heads: 2, width: 16, dtype: act }; 2], state: vec![] }];
    let layers = (0..2).map(|_| LayerDecl { group: 0 }).collect();
    (Program { ops, buffers, groups, layers, logits: 8, vocab: 256, context: 512, kernels }, bindings)
}

struct Keep;

impl Sampler for Keep {
    type Logits = [f32];
    type Top = [(Token, f32)];
    type State = Vec<Vec<u32>>;
    fn vocab(&self) -> u32 {
        256
    }
    fn reads(&self, _: &Vec<Vec<u32>>) -> Reads {
        Reads::Row
    }

    fn guess(&self, _: &Vec<Vec<u32>>, _: usize) -> Draw {
        unreachable!("only rows are read")
    }

    fn sample_best(&self, _: &mut Vec<Vec<u32>>, best: Token) -> (Token, bool) {
        (best, true)
    }

    fn sample_drawn(&self, _: &mut Vec<Vec<u32>>, drawn: Token) -> (Token, bool) {
        (drawn, true)
    }

    fn sample_top(&self, _: &mut Vec<Vec<u32>>, top: &[(Token, f32)]) -> (Token, bool) {
        (top[0].0, true)
    }

    fn sample(&self, state: &mut Vec<Vec<u32>>, logits: &[f32]) -> (Token, bool) {
        state.push(logits.iter().map(|x| x.to_bits()).collect());
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        (best as u32, false)
    }
}

type Engine = Core<CpuDevice, Keep>;

const STORAGE: [Storage; 2] = [Storage::Expanded, Storage::AsTheyCome];

fn engine(act: Dtype, change: impl FnOnce(&mut Config)) -> Engine {
    engine_of(&admitted(act), act, change)
}

fn engine_of(admitted: &Admitted, act: Dtype, change: impl FnOnce(&mut Config)) -> Engine {
    let (program, _) = program(act);
    let mut config = Config::new(160, 8, vec![40], 1);
    change(&mut config);
    let device = CpuDevice::new(&program, admitted, &Random(act), config).unwrap();
    Core::new(device, Keep, program).unwrap()
}

fn admitted(act: Dtype) -> Admitted {
    Admitted::unproved(&program(act).1).unwrap()
}

fn admit(core: &mut Engine, length: usize, seed: u32) -> RequestId {
    core.admit((0..length as u32).map(|i| (i * 37 + seed * 11) % 256).collect(), 0, Vec::new()).unwrap()
}

fn step(core: &mut Engine, rows: &[(RequestId, usize)]) {
    for (request, count) in rows {
        let end = core.request(*request).unwrap().cached() + count;
        while core.request(*request).unwrap().table(0).len() * 64 < end {
            core.take_page(*request, 0).unwrap();
        }
    }
    core.plan_begin().unwrap();
    rows.iter().for_each(|(r, n)| core.plan_rows(*r, *n, &[], Select::Last).unwrap());
    core.run().unwrap();
    core.commit().unwrap();
}

/// Logits of three requests: prompts of 130, 70 and 5 tokens and four tokens after each.
fn alone(core: &mut Engine) -> Vec<Vec<Vec<u32>>> {
    [(130, 1), (70, 2), (5, 3)]
        .map(|(length, seed)| {
            let request = admit(core, length, seed);
            step(core, &[(request, length)]);
            (0..4).for_each(|_| step(core, &[(request, 1)]));
            let logits = core.request(request).unwrap().state().clone();
            core.abort(request).unwrap();
            logits
        })
        .to_vec()
}

/// The same requests packed together, prompts in chunks, on other pages.
fn together(core: &mut Engine) -> Vec<Vec<Vec<u32>>> {
    let filler = admit(core, 300, 9);
    step(core, &[(filler, 100)]);
    let requests = [(130, 1), (70, 2), (5, 3)].map(|(length, seed)| (admit(core, length, seed), length));
    let mut left: HashMap<RequestId, usize> = requests.iter().copied().collect();
    for chunk in [33, 64, 7, 90] {
        let mut rows = vec![(filler, 3)];
        for (request, _) in &requests {
            let n = left[request].min(chunk).min(50);
            if n > 0 {
                rows.push((*request, n));
                *left.get_mut(request).unwrap() -= n;
            } else {
                rows.push((*request, 1));
            }
        }
        step(core, &rows);
    }
    for _ in 0..8 {
        let rows: Vec<_> = requests.iter().map(|(r, _)| (*r, left[r].clamp(1, 40))).collect();
        rows.iter().for_each(|(r, n)| *left.get_mut(r).unwrap() -= (*n).min(left[r]));
        step(core, &rows);
    }
    requests.map(|(r, _)| core.request(r).unwrap().state()[..5].to_vec()).to_vec()
}

#[test]
fn fast_equals_plain_for_any_threads_batch_and_instruction_set() {
    let isas = Isa::tried();
    for act in [Dtype::Bf16, Dtype::F32] {
        let want = alone(&mut engine(act, |c| c.mode = Mode::Plain));
        assert!(want.iter().flatten().flatten().all(|x| f32::from_bits(*x).is_finite()));
        assert_ne!(want[0][0], want[1][0]);
        for threads in [1, 2, 5] {
            let sets = isas.iter().flat_map(|isa| STORAGE.map(|storage| (*isa, storage)));
            for (isa, storage) in sets {
                let change =
                    |c: &mut Config| (c.threads, c.isa, c.poison, c.storage) = (threads, Some(isa), Some(5), storage);
                let mut core = engine(act, change);
                assert_eq!(core.device().interpreted(), Vec::<String>::new());
                assert!(alone(&mut core) == want, "{act:?} {threads} {isa:?} {storage:?} alone");
                assert!(together(&mut core) == want, "{act:?} {threads} {isa:?} {storage:?} together");
            }
        }
    }
}

/// Attention's scratch has room for 512 rows: its launches run once for each 512, and tiles end there.
#[test]
fn steps_of_more_rows_than_scratch_has_room_for_give_the_same_bits() {
    let prompts = [(401, 1), (399, 2), (470, 3), (5, 4)];
    let decode = |core: &mut Engine, requests: &[RequestId]| {
        let rows: Vec<_> = requests.iter().map(|r| (*r, 1)).collect();
        (0..3).for_each(|_| step(core, &rows));
        requests.iter().map(|r| core.request(*r).unwrap().state().clone()).collect::<Vec<_>>()
    };
    let mut small = engine(Dtype::Bf16, |_| ());
    let want = prompts.map(|(length, seed)| {
        let request = admit(&mut small, length, seed);
        (0..length).step_by(90).for_each(|start| step(&mut small, &[(request, (length - start).min(90))]));
        let logits = decode(&mut small, &[request]).remove(0);
        small.abort(request).unwrap();
        logits
    });
    for (threads, mode) in [(1, Mode::Plain), (1, Mode::Fast), (3, Mode::Fast)] {
        let large = |c: &mut Config| (c.rows_max, c.threads, c.mode, c.poison) = (1_300, threads, mode, Some(9));
        let mut core = engine(Dtype::Bf16, large);
        let rows = prompts.map(|(length, seed)| (admit(&mut core, length, seed), length));
        step(&mut core, &rows);
        assert!(decode(&mut core, &rows.map(|(request, _)| request)) == want, "{threads} {mode:?}");
    }
}

#[test]
fn editing_one_operation_changes_the_output_of_both_modes() {
    let (_, bindings) = program(Dtype::Bf16);
    let edits = [
        ("linear_glu", "arith.divf", "arith.mulf"),
        ("attend", "arith.maxnumf %top", "arith.minnumf %top"),
        ("attend_combine", "arith.divf", "arith.mulf"),
        ("rmsnorm", "math.rsqrt", "math.sqrt"),
        ("linear_add", "arith.addf", "arith.subf"),
    ];
    let want = alone(&mut engine(Dtype::Bf16, |_| ()));
    for (kernel, from, to) in edits {
        let spec = bindings.iter().flat_map(|b| &b.launches).map(|l| &l.spec).find(|s| s.kernel == kernel).unwrap();
        let text = vosti_kernels::ttir(spec).unwrap();
        assert!(text.contains(from), "{kernel}");
        let edited = admitted(Dtype::Bf16).with_text(spec, &text.replacen(from, to, 1));
        let with = |mode| alone(&mut engine_of(&edited, Dtype::Bf16, |c| c.mode = mode));
        let (fast, plain) = (with(Mode::Fast), with(Mode::Plain));
        assert!(fast == plain, "{kernel}");
        assert!(fast != want, "{kernel}");
    }
}

#[test]
fn a_tied_weight_is_held_once() {
    let core = engine(Dtype::Bf16, |_| ());
    let (weights, _) = core.device().bytes();
    let matrices = 2 * (256 * 64 + 2 * (128 * 64 + 64 * 64 + 256 * 64 + 64 * 128));
    assert!(weights >= matrices && weights < matrices + 64 * 1024, "{weights} for {matrices}");
}

#[test]
fn tables_are_as_long_as_requests_may_be_and_longer_ones_are_refused() {
    let of = |positions| engine(Dtype::Bf16, |c| c.positions = positions);
    let bytes = |positions| of(positions).device().bytes().0;
    assert_eq!(bytes(None) - bytes(Some(140)), 2 * (512 - 140) * 8 * 4);
    assert!(alone(&mut of(Some(140))) == alone(&mut of(None)));
    let mut core = of(Some(140));
    let request = admit(&mut core, 141, 1);
    (0..3).for_each(|_| core.take_page(request, 0).unwrap());
    core.plan_begin().unwrap();
    core.plan_rows(request, 141, &[], Select::Last).unwrap();
    let error = format!("{:?}", core.run().unwrap_err());
    assert!(error.contains("position 140: the device was made for 140"), "{error}");
}

#[test]
fn weights_in_13_bits_take_less_and_a_panel_without_stays() {
    let bytes = |isa, storage| engine(Dtype::Bf16, |c| (c.isa, c.storage) = (Some(isa), storage)).device().bytes().0;
    for isa in Isa::tried() {
        let (plain, stored) = STORAGE.map(|storage| bytes(*isa, storage)).into();
        // Matrices, panels of each, and their width: the tied embedding, projections, outputs, perceptrons; of the last,
        // `down.1`, the panel has too many exponents. The list of panels takes 64 bytes.
        let matrices = [(1, 4, 64), (2, 2, 64), (2, 1, 64), (2, 4, 64), (2, 1, 128)];
        let lists = 64 * matrices.iter().map(|matrix| matrix.0).sum::<usize>();
        let saved = |(_, n, width): &(_, usize, usize)| n * (64 * width * 2 - exponents::panel_bytes(*width));
        let saved = matrices.iter().map(|matrix| matrix.0 * saved(matrix)).sum::<usize>() - saved(&(1, 1, 128));
        // Regions are as large as their parts.
        let encodes = vosti_simd::micro::kernels(*isa).encode.is_some();
        assert_eq!(stored, plain + lists - if encodes { saved } else { 0 }, "{isa:?}");
    }
}

/// The weights above, in blocks of a format: what is read expanded is what the blocks say.
struct InBlocks(&'static vosti_kernels::Format);

impl InBlocks {
    fn all(&self, name: &str) -> Option<(Quantised, usize)> {
        let shape = Random(Dtype::Bf16).shape(name).unwrap();
        let matrix = !matches!(name.split('.').next(), Some("norm" | "cos" | "sin" | "unread" | "sinks"));
        // Every panel but the last of the embedding, and no panel of one layer's outputs.
        (matrix && name != "out.1" && shape[1].is_multiple_of(self.0.chunk)).then(|| {
            let seed = name.bytes().fold(7u64, |s, b| (s ^ u64::from(b)).wrapping_mul(0x100000001b3));
            (quantised(self.0, shape[0], shape[1], seed), if name == "embed" { 192 } else { shape[0] })
        })
    }
}

fn quantised(format: &'static vosti_kernels::Format, rows: usize, columns: usize, seed: u64) -> Quantised {
    let mut random = SplitMix64::seed_from_u64(seed);
    let mut out = Quantised::new(format, columns);
    let mut half = |scale: f32| {
        let number = scale * ((random.next_u64() >> 40) as f32 / (1 << 24) as f32 + 0.5);
        (number.to_bits() >> 13 & 0x3ff | ((number.to_bits() >> 23) - 112) << 10) as u16
    };
    let blocks = rows * columns / format.chunk;
    out.scales = (0..blocks).map(|_| half(0.4 / (1 << format.bits) as f32)).collect();
    out.minima = (0..if format.minimum { blocks } else { 0 }).map(|_| half(0.2)).collect();
    out.codes = (0..rows * columns).map(|_| (random.next_u64() & ((1 << format.bits) - 1)) as u8).collect();
    out
}

impl Weights for InBlocks {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        Random(Dtype::Bf16).shape(name)
    }

    fn by_position(&self, name: &str) -> bool {
        Random(Dtype::Bf16).by_position(name)
    }

    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        let Some((all, _)) = self.all(name) else { return Random(Dtype::Bf16).rows(name, rows) };
        let value = |i: usize| {
            let half =
                |bits: u16| f32::from_bits((u32::from(bits >> 10 & 31) + 112) << 23 | u32::from(bits & 0x3ff) << 13);
            let minimum = all.minima.get(i / self.0.chunk).map_or(0.0, |m| half(*m));
            let number = half(all.scales[i / self.0.chunk]) * self.0.value(all.codes[i]) - minimum;
            let bits = number.to_bits();
            ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
        };
        Ok(TensorData::Bf16((rows.start * all.columns..rows.end * all.columns).map(value).collect()))
    }

    fn format(&self, name: &str, rows: Range<usize>) -> Result<Option<&'static vosti_kernels::Format>, WeightError> {
        Ok(self.all(name).filter(|(_, most)| rows.end <= *most).map(|_| self.0))
    }

    fn quantised(&self, name: &str, rows: Range<usize>, room: &mut Quantised) -> Result<bool, WeightError> {
        let Some((mut all, most)) = self.all(name).filter(|(_, most)| rows.end <= *most) else { return Ok(false) };
        let blocks = all.columns / self.0.chunk;
        all.scales = all.scales[rows.start * blocks..rows.end * blocks].to_vec();
        if self.0.minimum {
            all.minima = all.minima[rows.start * blocks..rows.end * blocks].to_vec();
        }
        all.codes = all.codes[rows.start * all.columns..rows.end * all.columns].to_vec();
        assert!(rows.end <= most);
        *room = all;
        Ok(true)
    }
}

/// A table of embeddings that no dot reads (another matrix gives the logits here) takes the bytes of its blocks, and is not expanded.
#[test]
fn a_table_that_tokens_alone_read_is_kept_as_it_comes() {
    let format =
        vosti_kernels::quantised::FORMATS.iter().find(|format| format.bits == 4 && !format.two_levels()).unwrap();
    let engine = |tied: bool, storage| {
        let (program, mut bindings) = program(Dtype::Bf16);
        let launches = bindings.iter_mut().flat_map(|binding| &mut binding.launches);
        for launch in launches.filter(|launch| !tied && launch.spec.kernel == "linear_logits") {
            launch.weights.insert("w".into(), "head".into());
        }
        let mut config = Config::new(160, 8, vec![40], 2);
        config.storage = storage;
        let admitted = Admitted::unproved(&bindings).unwrap();
        let device = CpuDevice::new(&program, &admitted, &InBlocks(format), config).unwrap();
        Core::new(device, Keep, program).unwrap()
    };
    let mut kept = engine(false, Storage::AsTheyCome);
    let more = kept.device().bytes().0 - engine(true, Storage::AsTheyCome).device().bytes().0;
    assert!(more < 256 * 64, "the head and what the table takes more than with a head: {more} bytes");
    let want = alone(&mut engine(false, Storage::Expanded));
    assert!(alone(&mut kept) == want);
    assert!(together(&mut kept) == want);
}

#[test]
fn weights_kept_in_blocks_give_the_bits_of_their_expansion() {
    let isas = Isa::tried();
    for format in vosti_kernels::quantised::FORMATS.iter().filter(|format| !format.two_levels()) {
        let engine = |isa, mode, storage, threads| {
            let (program, _) = program(Dtype::Bf16);
            let mut config = Config::new(160, 8, vec![40], threads);
            (config.isa, config.mode, config.storage, config.poison) = (Some(isa), mode, storage, Some(3));
            let device = CpuDevice::new(&program, &admitted(Dtype::Bf16), &InBlocks(format), config).unwrap();
            Core::new(device, Keep, program).unwrap()
        };
        let mut expanded = engine(Isa::detect(), Mode::Fast, Storage::Expanded, 2);
        let want = alone(&mut expanded);
        assert!(want.iter().flatten().flatten().all(|x| f32::from_bits(*x).is_finite()));
        for isa in isas {
            let mut core = engine(*isa, Mode::Fast, Storage::AsTheyCome, 2);
            assert!(core.device().bytes().0 < expanded.device().bytes().0);
            assert!(alone(&mut core) == want, "{} {isa:?} alone", format.name);
            assert!(together(&mut core) == want, "{} {isa:?} together", format.name);
        }
        let mut plain = engine(Isa::detect(), Mode::Plain, Storage::AsTheyCome, 1);
        assert!(alone(&mut plain) == want, "{} one operation at a time", format.name);
    }
}

#[test]
fn what_weights_will_take_is_known_before_they_are_read() {
    let isas = Isa::tried();
    for format in vosti_kernels::quantised::FORMATS.iter().filter(|format| !format.two_levels()) {
        for (isa, storage) in isas.iter().flat_map(|isa| [(isa, Storage::AsTheyCome), (isa, Storage::Expanded)]) {
            let ((program, _), admitted) = (program(Dtype::Bf16), admitted(Dtype::Bf16));
            let mut config = Config::new(160, 8, vec![40], 1);
            (config.isa, config.storage) = (Some(*isa), storage);
            let needs = CpuDevice::needs(&program, &admitted, &InBlocks(format), &config).unwrap();
            let device = CpuDevice::new(&program, &admitted, &InBlocks(format), config).unwrap();
            let (told, taken) = (needs.weights, device.bytes().0 as u64);
            match storage {
                Storage::Expanded => assert_eq!(told, taken, "{} {isa:?}", format.name),
                // Of panels that come in BF16, one has too many exponents for 13 bits.
                Storage::AsTheyCome => {
                    assert!((taken - taken / 20..=taken).contains(&told), "{} {isa:?}: {told} {taken}", format.name)
                }
            }
        }
    }
}

#[test]
fn a_program_without_best_tokens_is_refused() {
    let refused = |change: fn(&mut Program)| {
        let (mut program, _) = program(Dtype::Bf16);
        change(&mut program);
        let device =
            CpuDevice::new(&program, &admitted(Dtype::Bf16), &Random(Dtype::Bf16), Config::new(8, 8, vec![1], 1));
        let error = device.map(drop).unwrap_err().to_string();
        assert!(error.contains("by one op that reads nothing else and writes one number"), "{error}");
    };
    refused(|program| drop(program.ops.pop()));
    // A second reader of logits; a wider buffer; a second writer.
    refused(|program| program.ops.extend(program.ops.last().cloned()));
    refused(|program| program.buffers[11].width = 2);
    refused(|program| program.ops.push(Op::Rowwise { k: 0, ins: vec![7], outs: vec![11], rows: RowSet::Selected }));
}
