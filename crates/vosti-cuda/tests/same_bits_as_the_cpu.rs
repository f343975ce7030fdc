//! The device on a stand-in that executes TTIR gives the CPU device's logits, bit for bit. So every buffer is bound to the
//! right parameter, every step's metadata agrees with the plan, and recorded launches are the right ones. This shows nothing
//! about a GPU's arithmetic.

use std::ops::Range;
use vosti_core::Program;
use vosti_cpu::CpuDevice;
use vosti_cuda::{CudaDevice, TensorData, WeightError, Weights};
use vosti_engine::{Engine, Event, FloatDevice, Policy, Request, Sampling, SamplingParams, Speculation, math};
use vosti_kernels::Admitted;
use vosti_model::{ModelPlan, Order, Recipe};
use vosti_stand_in::{StandIn, TARGET, cubins, numbers, plan, plan_with};

/// Both devices' source of weights.
struct Random<'a>(&'a ModelPlan);

impl Random<'_> {
    fn part(&self, name: &str, rows: Range<usize>) -> (Vec<f32>, bool) {
        let shape = self.0.weights[name].shape();
        let width: usize = shape[1..].iter().product();
        let all = numbers(name, shape.iter().product());
        let recipe = &self.0.weights[name].recipe;
        // Norms are around one.
        let shift = if shape.len() == 1 { 1.0 } else { 0.0 };
        let row = |row: usize| &all[row / times(recipe) * width..][..width];
        (rows.flat_map(row).map(|x| x + shift).collect(), matches!(recipe, Recipe::Matrix { .. }))
    }
}

/// How often a weight has each row of its tensor: once for each slice of a head.
fn times(recipe: &Recipe) -> usize {
    let part = match recipe {
        Recipe::Matrix { parts, .. } | Recipe::Vector { parts, .. } => parts.first(),
        Recipe::Rates { part } => Some(part),
        _ => None,
    };
    match part.map(|part| part.order) {
        Some(Order::Turned(turned)) if turned.stride == 0 => turned.groups,
        _ => 1,
    }
}

fn bf16(values: Vec<f32>) -> Vec<u16> {
    values.into_iter().map(|x| (x.to_bits() >> 16) as u16).collect()
}

impl Weights for Random<'_> {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        Ok(self.0.weights[name].shape())
    }
    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        Ok(match self.part(name, rows) {
            (values, true) => TensorData::Bf16(bf16(values)),
            (values, false) => TensorData::F32(values),
        })
    }
}

fn pages(plan: &ModelPlan) -> Vec<usize> {
    vec![80; plan.program.groups.len()]
}

fn cuda(plan: &ModelPlan, driver: StandIn, graphs: bool) -> CudaDevice<StandIn> {
    let config = vosti_cuda::Config { graphs, ..vosti_cuda::Config::new(256, 96, pages(plan)) };
    cuda_with(plan, driver, config)
}

fn cuda_with(plan: &ModelPlan, driver: StandIn, config: vosti_cuda::Config) -> CudaDevice<StandIn> {
    let (program, admitted) =
        (&plan.program, Admitted::unproved(&plan.bindings).unwrap().with_draws(plan.draws.clone()));
    CudaDevice::new(driver, TARGET, program, &admitted, &cubins(plan), &Random(plan), config).unwrap()
}

fn cpu(plan: &ModelPlan) -> CpuDevice {
    let config = vosti_cpu::Config::new(96, 96, pages(plan), 1);
    CpuDevice::new(
        &plan.program,
        &Admitted::unproved(&plan.bindings).unwrap().with_draws(plan.draws.clone()),
        &Random(plan),
        config,
    )
    .unwrap()
}

/// Prompts that cross pages, chunks and splits of 64 keys, together, then decoding, one of them into its second split: each
/// with its length and the tokens that it generates.
const PROMPTS: [(usize, usize); 4] = [(70, 4), (3, 4), (90, 4), (62, 4)];

type Seen = Vec<(u64, usize, Vec<u32>)>;

/// The bits of every row of logits, and a fact about the device afterwards.
fn serve<D: FloatDevice, T>(
    device: D,
    plan: &ModelPlan,
    requests: &[(usize, usize)],
    after: impl Fn(&D) -> T,
) -> (Seen, T) {
    let policy = Policy { rows_step_max: 96, rows_sequence_max: 50, running_max: 96, ..Policy::default() };
    serve_by(policy, device, plan, requests, after)
}

fn serve_by<D: FloatDevice, T>(
    policy: Policy,
    device: D,
    plan: &ModelPlan,
    requests: &[(usize, usize)],
    after: impl Fn(&D) -> T,
) -> (Seen, T) {
    let mut engine = Engine::new(device, plan.program.clone(), policy).unwrap();
    for (i, (length, tokens)) in requests.iter().enumerate() {
        let prompt = (0..*length).map(|t| ((t * 37 + i * 11) % 256) as u32).collect();
        engine.submit(Request::new(prompt, Sampling::greedy(*tokens))).unwrap();
    }
    let mut seen = vec![];
    let mut note = |event: Event<'_>| {
        if let Event::Token { request, index, logits: Some(logits), .. } = event {
            seen.push((request.0, index, logits.iter().map(|x| x.to_bits()).collect()));
        }
    };
    engine.run_until_idle(&mut note).unwrap();
    seen.sort();
    let after = after(engine.device());
    (seen, after)
}

fn check(config: &str) {
    let plan = plan(config, "cpu", None);
    let (wanted, ()) = serve(cpu(&plan), &plan, &PROMPTS, |_| ());
    assert_eq!(wanted.len(), 16, "four requests of four tokens");
    let spread = wanted.iter().flat_map(|(_, _, row)| row).map(|bits| f32::from_bits(*bits));
    let (low, high) = spread.fold((f32::MAX, f32::MIN), |(low, high), x| (low.min(x), high.max(x)));
    assert!(low.is_finite() && high - low > 1.0, "logits of {low} to {high} would be equal for no reason");
    for graphs in [false, true] {
        let device = cuda(&plan, StandIn::default(), graphs);
        let (bits, ()) = serve(device, &plan, &PROMPTS, |_| ());
        assert!(bits == wanted, "{config}, graphs {graphs}: other bits than the CPU's");
    }
}

/// As many requests as a step has rows, ending one after the other: decode steps of every row count from 70 to 1.
#[test]
fn a_decode_step_of_any_row_count_has_the_cpu_devices_bits_in_a_few_recordings() {
    let plan = plan("tests/tiny/llama/config.json", "cpu", None);
    let requests: Vec<(usize, usize)> = (0..70).map(|i| (1, i + 1)).collect();
    let (wanted, ()) = serve(cpu(&plan), &plan, &requests, |_| ());
    let (bits, log) = serve(cuda(&plan, StandIn::fast(), true), &plan, &requests, |d| d.driver().log());
    assert!(bits == wanted, "other bits than the CPU's");
    let recordings = log.iter().filter(|line| *line == "record").count();
    assert_eq!(recordings, vosti_cuda::device::RECORDED_ROWS.len());
    let replays = log.iter().filter(|line| line.starts_with("replay")).count();
    assert_eq!(replays, 64, "larger steps are launched kernel by kernel");
}

/// A recording serves positions up to a power of two. A longer step makes another recording, and both give the bits of launches
/// that are not recorded.
#[test]
fn a_step_that_reaches_further_than_a_recording_has_another_one() {
    use vosti_cuda::device::RECORDED_LENGTH;
    let plan = plan_with("configs/smollm2-135m.json", &[("num_hidden_layers", 1)], TARGET, 8192);
    let policy = Policy { rows_step_max: 256, rows_sequence_max: 256, ..Policy::default() };
    let served = |graphs: bool| {
        let device = cuda(&plan, StandIn::fast(), graphs);
        serve_by(policy, device, &plan, &[(RECORDED_LENGTH - 2, 5)], |d| d.driver().log())
    };
    let (wanted, _) = served(false);
    let (seen, log) = served(true);
    assert!(seen == wanted && seen.len() == 5, "other bits than without recordings");
    let recorded = log.split(|line| line == "record").skip(1);
    let of = |launches: &[String], kernel: &str| launches.iter().find(|line| line.starts_with(kernel)).cloned();
    let grids: Vec<String> = recorded.map(|launches| of(launches, "launch attend ").unwrap()).collect();
    // A row, three KV heads, splits of 512 keys: as many as 2,048 positions have, then 4,096, and not 8,192.
    assert!(grids.len() == 2 && grids[0].contains("[1, 3, 4]") && grids[1].contains("[1, 3, 8]"), "{grids:?}");
}

/// One layer of SmolLM2 with the GPU target's kernels, whose matrix products come with row tiles of 16 to 256: a prompt in
/// steps of few, more and many rows runs several of them.
#[test]
fn row_tiles_of_every_height_give_the_same_bits() {
    let plan = plan("configs/smollm2-135m.json", TARGET, Some(1));
    let in_steps_of = |rows: usize| {
        let policy = Policy { rows_step_max: rows, rows_sequence_max: rows, ..Policy::default() };
        let device = cuda(&plan, StandIn::fast(), true);
        let (seen, log) = serve_by(policy, device, &plan, &[(150, 2)], |d| d.driver().log());
        let linear = log.iter().filter(|line| line.starts_with("launch linear grid"));
        // Threads and shared memory tell the heights apart.
        let kernel = linear.collect::<Vec<_>>()[0].split_once("threads").unwrap().1.split(" params").next().unwrap();
        (kernel.to_string(), seen)
    };
    let (first, seen) = in_steps_of(16);
    let mut kernels = vec![first];
    for rows in [24, 60, 100, 150] {
        let (kernel, others) = in_steps_of(rows);
        assert!(others == seen, "{rows} rows");
        kernels.push(kernel);
    }
    kernels.sort();
    kernels.dedup();
    assert!(kernels.len() >= 2, "{kernels:?}");
}

/// A GPU target's attention has query tiles of two heights, over a window and where a launch folds its splits. A prompt, of SmolLM2 one that
/// reaches a second split, runs the high ones in its steps of many rows and the low ones in its last step, of few. It has the bits of
/// the CPU device, which runs the low ones.
#[test]
fn query_tiles_of_both_heights_give_the_cpu_devices_bits() {
    for (config, rows) in [("tests/tiny/gemma3/config.json", 240), ("configs/smollm2-135m.json", 256)] {
        let layers = if rows == 256 { &[("num_hidden_layers", 1)][..] } else { &[] };
        let plan = plan_with(config, layers, TARGET, 2 * rows as u32 + 16);
        let request = [(2 * rows + 8, 2)];
        let (wanted, ()) = serve(cpu(&plan), &plan, &request, |_| ());
        let policy = Policy { rows_step_max: rows, rows_sequence_max: rows, ..Policy::default() };
        let device = cuda(&plan, StandIn::fast(), true);
        let (seen, log) = serve_by(policy, device, &plan, &request, |d| d.driver().log());
        assert!(seen == wanted, "{config}: other bits than the CPU's");
        // Threads tell the heights apart.
        let launches = log.iter().filter(|line| line.starts_with("launch attend "));
        let high: Vec<bool> = launches.map(|line| line.contains("threads 256")).collect();
        let many = 2 * plan.program.layers.len();
        assert!(high[..many].iter().all(|high| *high) && !high[many..].contains(&true), "{config}: {high:?}");
    }
}

/// The premise of attention's proof: a spare tile has no rows and no page table.
#[test]
fn tiles_to_spare_have_no_rows() {
    let plan = plan("tests/tiny/llama/config.json", "cpu", None);
    let tiles = |device: &CudaDevice<StandIn>| {
        let driver = device.driver();
        let log = driver.log();
        // As the recording has them, behind the queries: each tile's table, first row, rows, position.
        let recorded = log.iter().rfind(|line| line.starts_with("launch attend ")).unwrap();
        let places = recorded.split_once("params ").unwrap().1.split(' ').skip(1).take(4);
        places.map(|place| driver.ints(place, 4)).collect::<Vec<_>>()
    };
    let (_, [table, row, rows, pos]) =
        serve(cuda(&plan, StandIn::fast(), true), &plan, &[(2, 9), (3, 9), (40, 9)], |d| {
            <[Vec<i32>; 4]>::try_from(tiles(d)).unwrap()
        });
    assert_eq!((table.as_slice(), row.as_slice()), (&[0, 1, 2, -1][..], &[0, 1, 2, 0][..]));
    assert_eq!((rows.as_slice(), pos.as_slice()), (&[1, 1, 1, 0][..], &[9, 10, 47, 0][..]));
}

/// Split attention has room for 512 rows: a step of 800 has its launches twice, each with its part of the metadata. Against
/// chunks of 50 rows on the CPU device.
#[test]
fn a_step_of_more_rows_than_scratch_has_room_for_has_the_cpu_devices_bits() {
    let plan = plan("tests/tiny/llama/config.json", "cpu", None);
    let requests = [(130, 3), (270, 3), (250, 3), (150, 3)];
    let (wanted, ()) = serve(cpu(&plan), &plan, &requests, |_| ());
    let device = cuda_with(&plan, StandIn::fast(), vosti_cuda::Config::new(800, 96, pages(&plan)));
    let policy = Policy { rows_step_max: 800, rows_sequence_max: 800, ..Policy::default() };
    let (bits, log) = serve_by(policy, device, &plan, &requests, |d| d.driver().log());
    assert!(bits == wanted, "other bits than the CPU's");
    let step = log.iter().take_while(|line| !line.starts_with("download")).collect::<Vec<_>>();
    let parts = step.iter().filter(|line| line.starts_with("launch attend ")).count();
    assert_eq!(parts, 2 * plan.program.layers.len(), "all rows are in one step");
}

/// One launch of attention folds its own splits where the work is shared out evenly, and two do it elsewhere: four splits of 64 keys.
/// A device of one multiprocessor always folds; one of 132 does not where a program has more than two pages of keys; in recordings
/// none does.
#[test]
fn attention_in_one_launch_and_in_two_has_the_cpu_devices_bits() {
    let mut plan = plan("tests/tiny/llama/config.json", "cpu", None);
    let requests = [(70, 4), (3, 4), (200, 4), (62, 4)];
    let (wanted, ()) = serve(cpu(&plan), &plan, &requests, |_| ());
    for binding in &mut plan.bindings {
        if let [first, _] = &binding.launches[..] {
            binding.folded = vec![first.spec.folding()];
        }
    }
    for (multiprocessors, graphs) in [(1, false), (1, true), (132, false)] {
        let mut driver = StandIn::fast();
        driver.about.multiprocessors = multiprocessors;
        let (bits, log) = serve(cuda(&plan, driver, graphs), &plan, &requests, |d| d.driver().log());
        assert!(bits == wanted, "{multiprocessors}, {graphs}: other bits than the CPU's");
        let many = |kernel: &str| log.iter().filter(|line| line.starts_with(&format!("launch {kernel} "))).count();
        let (all, split) = (many("attend"), many("attend_combine"));
        assert_eq!(split > 0, graphs || multiprocessors > 1, "{multiprocessors}, {graphs}: {split} of {all}");
        assert!(split < all);
    }
}

#[test]
fn a_llama_has_the_cpu_devices_bits() {
    check("tests/tiny/llama/config.json");
}

/// A GPU's programs have 64 columns of a state each, so the plan cuts a head of 128 values into two slices, with keys of their own.
#[test]
fn slices_of_a_state_give_the_whole_states_bits() {
    check_slices("qwen3_5", &[("linear_key_head_dim", 128), ("linear_value_head_dim", 128)], [4, 8]);
}

/// The same of Mamba 2, whose steps are rows of a matrix: there are as many of them as slices.
#[test]
fn slices_of_a_mambas_state_give_the_whole_states_bits() {
    let sizes = [("mamba_n_heads", 4), ("mamba_d_ssm", 512), ("mamba_d_head", 128), ("mamba_d_state", 256)];
    check_slices("falcon-h1", &sizes, [4, 8]);
}

fn check_slices(model: &str, sizes: &[(&str, usize)], heads: [u32; 2]) {
    let of = |target| plan_with(&format!("tests/tiny/{model}/config.json"), sizes, target, 512);
    let (whole, sliced) = (of("cpu"), of(TARGET));
    let found = [&whole, &sliced]
        .map(|plan| plan.program.groups.iter().flat_map(|group| &group.state).map(|part| part.heads).max());
    assert_eq!(found, heads.map(Some));
    let prompts = [(70, 2), (3, 3)];
    let (wanted, ()) = serve(cpu(&whole), &whole, &prompts, |_| ());
    let (bits, ()) = serve(cuda(&sliced, StandIn::default(), true), &sliced, &prompts, |_| ());
    assert!(bits == wanted, "slices have other bits");
}

#[test]
fn a_gemma_with_windows_has_the_cpu_devices_bits() {
    check("tests/tiny/gemma3/config.json");
}

/// Layers with windows and layers without have heads of other sizes, so query tiles of other heights; in the one, keys are
/// also the values of the full layers, in the others, later layers read an earlier one's cache; of these one has per-layer embeddings.
#[test]
fn gemma_4_with_heads_of_two_sizes_has_the_cpu_devices_bits() {
    check("tests/tiny/gemma4/config.json");
    check("tests/tiny/gemma4-shared/config.json");
    check("tests/tiny/gemma4-e2b/config.json");
}

/// Tokens by request and index: two greedy requests, one that draws from whole rows, and one from the 20 largest logits.
/// `shown` of them ask for their rows.
fn tokens<D: FloatDevice>(device: D, plan: &ModelPlan, shown: [bool; 4], speculation: Speculation) -> Vec<Vec<u32>> {
    let policy = Policy { rows_step_max: 96, rows_sequence_max: 50, speculation, ..Policy::default() };
    let mut engine = Engine::new(device, plan.program.clone(), policy).unwrap();
    let warm = SamplingParams { temperature: 1.0, tokens_max: 12, seed: 3, ..SamplingParams::default() };
    let top_k = SamplingParams { top_k: 20, top_p: 0.95, ..warm.clone() };
    let drawn = [warm, top_k].map(|params| Sampling::new(params).unwrap());
    let samplings = [Sampling::greedy(12), Sampling::greedy(12)].into_iter().chain(drawn);
    for (i, (sampling, token_logits)) in samplings.zip(shown).enumerate() {
        // Prompts that repeat themselves, so that there are drafts.
        let prompt = (0..70 - 9 * i).map(|t| ((t % 5 * 37 + i * 11) % 256) as u32).collect();
        engine.submit(Request { token_logits, ..Request::new(prompt, sampling) }).unwrap();
    }
    let mut tokens = vec![vec![]; 4];
    let mut note = |event: Event<'_>| {
        if let Event::Token { request, token, logits, .. } = event {
            let i = request.0 as usize;
            assert_eq!(logits.is_some(), shown[i], "rows are reported to whom they were promised");
            if let Some(logits) = logits.filter(|_| i < 2) {
                assert_eq!(token, math::first_largest(logits), "a greedy token is its row's first largest logit");
            }
            tokens[i].push(token);
        }
    };
    engine.run_until_idle(&mut note).unwrap();
    let drafts = engine.counters().drafts_proposed;
    assert_eq!(drafts > 0, speculation != Speculation::Off, "{drafts} drafts");
    tokens
}

/// The program without its last two ops.
fn without_lists(program: &Program) -> Program {
    let ops = program.ops[..program.ops.len() - 2].to_vec();
    Program { ops, ..program.clone() }
}

#[test]
fn tokens_are_the_same_whether_or_not_their_rows_are_shown() {
    let plan = plan("tests/tiny/llama/config.json", "cpu", None);
    let ngram = Speculation::Ngram { ngram_min: 1, ngram_max: 3, drafts_max: 4 };
    // A program without lists, on a device that draws nothing: every draw is the host's, from a whole row.
    let rows = ModelPlan { program: without_lists(&plan.program), draws: None, ..plan.clone() };
    let wanted = tokens(cpu(&rows), &rows, [true; 4], Speculation::Off);
    assert_ne!(wanted[2], wanted[3]);
    assert!(wanted.iter().all(|tokens| tokens.len() == 12));
    for speculation in [Speculation::Off, ngram] {
        for shown in [[true; 4], [false; 4], [false, true, false, true], [true, false, true, false]] {
            assert_eq!(tokens(cpu(&plan), &plan, shown, speculation), wanted, "CPU, {shown:?} {speculation:?}");
            let device = cuda(&plan, StandIn::fast(), true);
            assert_eq!(tokens(device, &plan, shown, speculation), wanted, "stand-in, {shown:?} {speculation:?}");
        }
    }
}
