//! Layers whose pages carry a state compute their recurrence, with one result however a request is cut into steps: the kernels
//! of such layers against the recurrence in FP64, on the interpreter and as this device runs them.

mod common;
use common::{Rng, difference, fast};
use vosti_contract::{Const, Dtype};
use vosti_cpu::Isa;
use vosti_cpu::plan::compile;
use vosti_kernels::specialise;
use vosti_tile::interp::{Buffer, Options, run};
use vosti_tile::{Kernel, fold, lift};

const KEY_HEADS: usize = 2;
const GROUP: usize = 3;
const HEADS: usize = KEY_HEADS * GROUP;
/// Numbers of a key and of a value.
const KEY: usize = 32;
const VALUE: usize = 16;
const PAGE: usize = vosti_core::PAGE;
const TOKENS: usize = 3 * PAGE + 5;

fn text(kernel: &str) -> Kernel {
    let dims = [("KEY_HEADS", KEY_HEADS), ("GROUP", GROUP), ("DK", KEY), ("DV", VALUE), ("PAGE", PAGE)];
    let dims = dims.map(|(name, value)| (name, Const::Int(value as i64)));
    let spec = specialise("cpu", kernel, Dtype::F32, &dims).unwrap();
    fold(&lift(&vosti_kernels::ttir(&spec).unwrap()).unwrap())
}

/// The inputs of a request, by position.
struct Inputs {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    g: Vec<f32>,
    strength: Vec<f32>,
}

fn inputs(seed: u64) -> Inputs {
    let mut rng = Rng::new(seed);
    let mut list = |n: usize| (0..n).map(|_| rng.float()).collect::<Vec<f32>>();
    let mut unit = |n: usize| {
        let mut all = list(n);
        for key in all.chunks_mut(KEY) {
            let norm = key.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-3);
            key.iter_mut().for_each(|x| *x /= norm);
        }
        all
    };
    let (q, k) = (unit(TOKENS * KEY_HEADS * KEY), unit(TOKENS * KEY_HEADS * KEY));
    let v = list(TOKENS * HEADS * VALUE);
    let g = list(TOKENS * HEADS).into_iter().map(|x| -0.2 * x.abs()).collect();
    let strength = list(TOKENS * HEADS).into_iter().map(|x| (x * 0.5).abs().min(1.0)).collect();
    Inputs { q, k, v, g, strength }
}

/// The recurrence, token by token. `delta`: a token first takes away what the state says of its key.
fn recurrence(of: &Inputs, delta: bool) -> Vec<f64> {
    let mut out = vec![0.0; TOKENS * HEADS * VALUE];
    for head in 0..HEADS {
        let mut state = [[0f64; VALUE]; KEY];
        for t in 0..TOKENS {
            let at = t * HEADS + head;
            let key = &of.k[(t * KEY_HEADS + head / GROUP) * KEY..][..KEY];
            let query = &of.q[(t * KEY_HEADS + head / GROUP) * KEY..][..KEY];
            let fade = f64::from(of.g[at]).exp();
            state.iter_mut().flatten().for_each(|x| *x *= fade);
            for e in 0..VALUE {
                let said: f64 = (0..KEY).map(|d| f64::from(key[d]) * state[d][e]).sum();
                let said = if delta { said } else { 0.0 };
                let u = f64::from(of.strength[at]) * (f64::from(of.v[at * VALUE + e]) - said);
                (0..KEY).for_each(|d| state[d][e] += f64::from(key[d]) * u);
                out[at * VALUE + e] = (0..KEY).map(|d| f64::from(query[d]) * state[d][e]).sum();
            }
        }
    }
    out
}

/// How a kernel runs: on the interpreter, or compiled if it compiles.
type Runner<'a> = &'a dyn Fn(&Kernel, Vec<Buffer>, [usize; 3]) -> Vec<Buffer>;

fn interpreted(kernel: &Kernel, mut buffers: Vec<Buffer>, grid: [usize; 3]) -> Vec<Buffer> {
    run(kernel, &mut buffers, grid, &Options::default()).unwrap();
    buffers
}

/// The outputs of a request that is cut into steps at these positions. Each step also has a tile without rows.
fn served(store: &Kernel, read: &Kernel, of: &Inputs, cuts: &[usize], runner: Runner) -> Vec<f32> {
    const TABLE: [i32; 4] = [2, 0, 5, 3];
    let mut pool: Vec<Buffer> = [PAGE * HEADS * KEY, PAGE * HEADS * VALUE, PAGE * HEADS, HEADS * KEY * VALUE]
        .map(|n| Buffer::F32((0..6 * n).map(|i| (i % 7) as f32 - 3.0).collect()))
        .to_vec();
    /// Of a query tile.
    const ROWS: usize = 4;
    let mut out = vec![];
    let mut from = 0;
    for &to in cuts.iter().chain([&TOKENS]) {
        let rows = |all: &[f32], width: usize| Buffer::F32(all[from * width..to * width].to_vec());
        let tables = |tiles: Vec<[i32; 4]>| {
            let column = |i: usize| Buffer::I32(tiles.iter().map(|tile| tile[i]).collect());
            [column(0), column(1), column(2), column(3), Buffer::I32(TABLE.to_vec())]
        };
        let tiles = vec![[-1, 0, 0, 0], [0, 0, (to - from) as i32, from as i32]];
        let mut buffers = vec![
            rows(&of.k, KEY_HEADS * KEY),
            rows(&of.v, HEADS * VALUE),
            rows(&of.g, HEADS),
            rows(&of.strength, HEADS),
        ];
        buffers.extend(tables(tiles));
        buffers.extend(pool.iter().cloned());
        buffers = runner(store, buffers, [2, KEY_HEADS, GROUP]);
        pool = buffers.split_off(9);

        let tiles: Vec<[i32; 4]> = (from..to)
            .step_by(ROWS)
            .map(|at| [0, (at - from) as i32, ROWS.min(to - at) as i32, at as i32])
            .chain([[-1, 0, 0, 0]])
            .collect();
        let programs = tiles.len();
        let mut buffers = vec![rows(&of.q, KEY_HEADS * KEY)];
        buffers.extend(tables(tiles));
        buffers.extend(pool.iter().cloned());
        buffers.push(Buffer::F32(vec![0.0; (to - from) * HEADS * VALUE]));
        buffers = runner(read, buffers, [programs, KEY_HEADS, GROUP]);
        let Some(Buffer::F32(list)) = buffers.pop() else { panic!() };
        out.extend(list);
        from = to;
    }
    out
}

fn bits(list: &[f32]) -> Vec<u32> {
    list.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_state_in_pages_is_the_recurrence_however_steps_are_cut() {
    let read = text("read_state");
    for (name, delta) in [("store_delta", true), ("store_mamba", false)] {
        let (store, of) = (text(name), inputs(7));
        let whole = served(&store, &read, &of, &[], &interpreted);
        let wanted = recurrence(&of, delta);
        let square = |list: &mut dyn Iterator<Item = f64>| list.map(|x| x * x).sum::<f64>().sqrt();
        let apart = square(&mut whole.iter().zip(&wanted).map(|(x, y)| f64::from(*x) - y));
        let apart = apart / square(&mut wanted.iter().copied());
        println!("{name}: {apart:.1e} from the recurrence in FP64, relative to the outputs' norm");
        assert!(apart < 2e-6, "{name}: {apart}");
        let one_by_one: Vec<usize> = (1..TOKENS).collect();
        for cuts in [&one_by_one[..], &[1, 63, 64, 65, 160], &[PAGE], &[127, 129], &[3, 3 * PAGE]] {
            let other = served(&store, &read, &of, cuts, &interpreted);
            assert_eq!(bits(&whole), bits(&other), "{name}: steps that end at {cuts:?}");
        }
    }
}

#[test]
fn this_device_has_the_interpreters_bits() {
    let read = text("read_state");
    for name in ["store_delta", "store_mamba"] {
        let (store, of) = (text(name), inputs(9));
        for isa in Isa::tried() {
            let runner = |kernel: &Kernel, buffers: Vec<Buffer>, grid: [usize; 3]| {
                let want = interpreted(kernel, buffers.clone(), grid);
                match compile(kernel, *isa) {
                    Ok(plan) => {
                        let got = fast(kernel, &plan, &buffers, grid, *isa, false, Some(3)).unwrap();
                        assert_eq!(difference(kernel, &got, &want), None, "{name} {isa:?}");
                    }
                    Err(error) => panic!("{name} {isa:?} has no plan: {error}"),
                }
                want
            };
            served(&store, &read, &of, &[5, 70], &runner);
        }
    }
}
