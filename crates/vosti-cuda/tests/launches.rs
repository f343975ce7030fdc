//! The calls that the device makes to a driver, and the launches that it refuses first. On a stand-in: nothing here runs on a
//! GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use vosti_contract::Extent;
use vosti_core::GroupDecl;
use vosti_cubin::{Arch, Cubin};
use vosti_cuda::driver::{Driver, DriverError};
use vosti_cuda::launch::Code;
use vosti_cuda::{Config, Cuda, CudaDevice, CudaError, Pages, TensorData, WeightCache, WeightError, Weights};
use vosti_engine::{Engine, Event, Policy, Request, Sampling, SamplingParams};
use vosti_kernels::{Admitted, Binding, Proved, parse_stem};
use vosti_model::ModelPlan;
use vosti_stand_in::{StandIn, TARGET, WAITS, cubin, cubins, plan_with};

/// Zeros, as many as the matrices that are copied by descriptor have: other launches do not depend on them.
struct Nothing;

impl Weights for Nothing {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        Ok(vec![match name.rsplit('.').next().unwrap_or(name) {
            "embed" => VOCABULARY * 576,
            "qkv" => 960 * 576,
            "output" => 576 * 576,
            "gate_up" => 2 * 1536 * 576,
            "down" => 576 * 1536,
            _ => 1,
        }])
    }
    fn rows(&self, _: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        Ok(TensorData::Bf16(vec![0; rows.len()]))
    }
}

/// Few tokens, so that each matrix is one upload: the parts of a larger one come in any order.
const VOCABULARY: usize = 4096;

/// One layer of SmolLM2, with the specialisations of its GPU target, for contexts of two splits.
fn smol() -> ModelPlan {
    let changes = [("num_hidden_layers", 1), ("vocab_size", VOCABULARY)];
    plan_with("configs/smollm2-135m.json", &changes, TARGET, 2048)
}

fn dry() -> StandIn {
    let mut driver = StandIn::default();
    driver.dry = true;
    driver
}

fn admitted(plan: &ModelPlan) -> Admitted {
    Admitted::unproved(&plan.bindings).unwrap().with_draws(plan.draws.clone())
}

fn device(
    driver: StandIn,
    plan: &ModelPlan,
    cubins: &BTreeMap<String, Cubin>,
) -> Result<CudaDevice<StandIn>, CudaError> {
    let config = Config::new(128, 128, vec![4]);
    CudaDevice::new(driver, TARGET, &plan.program, &admitted(plan), cubins, &Nothing, config)
}

/// Making the device, a step of three prompts, a decode step that is recorded with room for four and one that is replayed.
#[test]
fn the_log_of_launches_is_as_it_was() {
    let plan = smol();
    let device = device(dry(), &plan, &cubins(&plan)).unwrap();
    let mut engine = Engine::new(device, plan.program.clone(), Policy::default()).unwrap();
    for length in [70, 3, 5] {
        engine.submit(Request::new((0..length).collect(), Sampling::greedy(3))).unwrap();
    }
    engine.run_until_idle(&mut |_| ()).unwrap();
    insta::assert_snapshot!(engine.device().driver().log().join("\n"));
}

/// A step copies a best token for each request, and the rows of requests that show them: adjacent rows in one copy, and one
/// wait for each step.
#[test]
fn only_best_tokens_and_the_rows_that_are_wanted_are_copied() {
    let plan = smol();
    let row = plan.program.vocab as usize * 4;
    let cases: [(&[bool], &[usize]); 4] = [
        (&[false, false, false], &[12]),
        (&[false, true, true, false], &[16, 2 * row]),
        (&[true, false, false, true], &[16, row, row]),
        (&[true, true], &[8, 2 * row]),
    ];
    for (shown, copied) in cases {
        let device = device(dry(), &plan, &cubins(&plan)).unwrap();
        let mut engine = Engine::new(device, plan.program.clone(), Policy::default()).unwrap();
        let before = engine.device().driver().log().len();
        for token_logits in shown {
            let request = Request::new(vec![1, 2], Sampling::greedy(1));
            engine.submit(Request { token_logits: *token_logits, ..request }).unwrap();
        }
        engine.run_until_idle(&mut |_| ()).unwrap();
        let log = engine.device().driver().log();
        let bytes = |line: &String| Some(line.strip_prefix("download ")?.rsplit_once(' ')?.1.parse::<usize>().unwrap());
        assert_eq!(log[before..].iter().filter_map(bytes).collect::<Vec<_>>(), copied, "{shown:?}");
        assert_eq!(log[before..].iter().filter(|line| *line == "wait").count(), 1);
    }
}

/// A step that reads a list makes and copies the lists of all rows. A recording either makes lists or does not.
#[test]
fn lists_are_made_and_copied_in_steps_that_want_them() {
    let plan = smol();
    let listed = |top_k: u32| SamplingParams { temperature: 0.7, top_k, tokens_max: 3, ..SamplingParams::default() };
    let row = plan.program.vocab as usize * 4;
    // One request for each `top_k`; the sizes of each step's copies.
    let cases: [(&[u32], &[usize]); 4] =
        [(&[64], &[4, 256, 256]), (&[64, 20, 1], &[12, 768, 768]), (&[65], &[4, row]), (&[5, 0], &[8, 512, 512, 8])];
    for (asked, copied) in cases {
        let device = device(dry(), &plan, &cubins(&plan)).unwrap();
        assert_eq!(vosti_core::Device::top_max(&device), 64);
        let mut engine = Engine::new(device, plan.program.clone(), Policy::default()).unwrap();
        for top_k in asked {
            let request = Request::new(vec![1, 2], Sampling::new(listed(*top_k)).unwrap());
            engine.submit(Request { token_logits: false, ..request }).unwrap();
        }
        let wants = copied.len() > 2;
        while !engine.is_idle() {
            let before = engine.device().driver().log().len();
            engine.step(&mut |_| ()).unwrap();
            let log = engine.device().driver().log();
            let bytes =
                |line: &String| Some(line.strip_prefix("download ")?.rsplit_once(' ')?.1.parse::<usize>().unwrap());
            assert_eq!(log[before..].iter().filter_map(bytes).collect::<Vec<_>>(), copied, "{asked:?}");
            let launched = log[before..].iter().any(|line| line.starts_with("launch topk_combine"));
            let replayed = log[before..].iter().any(|line| line.starts_with("replay"));
            assert!(launched == wants || replayed, "{asked:?}");
        }
    }
    // Beside greedy requests, and then without: two recordings of one row count.
    let device = device(dry(), &plan, &cubins(&plan)).unwrap();
    let mut engine = Engine::new(device, plan.program.clone(), Policy::default()).unwrap();
    for sampling in [Sampling::new(listed(8)).unwrap(), Sampling::greedy(3)] {
        engine.submit(Request { token_logits: false, ..Request::new(vec![1, 2], sampling) }).unwrap();
        engine.run_until_idle(&mut |_| ()).unwrap();
    }
    let log = engine.device().driver().log();
    assert_eq!(log.iter().filter(|line| *line == "record").count(), 2);
}

/// A step that draws uploads three numbers for each row and copies the drawn tokens, and no row of logits; a step that draws none launches
/// and copies nothing for it. A recording either draws or does not.
#[test]
fn tokens_are_drawn_in_steps_that_want_them() {
    let plan = smol();
    let warm = SamplingParams { temperature: 0.7, tokens_max: 3, ..SamplingParams::default() };
    let row = plan.program.vocab as usize * 4;
    // What the requests of each case ask for; the sizes of each step's copies to the device behind its metadata, and to the host.
    let [drawn, nucleus] = [1.0, 0.9].map(|top_p| Sampling::new(SamplingParams { top_p, ..warm.clone() }).unwrap());
    let greedy = || Sampling::greedy(3);
    let cases: [(Vec<Sampling>, &[usize], &[usize]); 4] = [
        (vec![drawn.clone()], &[4, 4, 4], &[4, 4]),
        (vec![greedy(), drawn.clone(), drawn.clone()], &[12, 12, 12], &[12, 12]),
        (vec![greedy(), greedy()], &[], &[8]),
        (vec![drawn.clone(), nucleus], &[8, 8, 8], &[8, 8, row]),
    ];
    for (asked, up, down) in cases {
        let mut engine =
            Engine::new(device(dry(), &plan, &cubins(&plan)).unwrap(), plan.program.clone(), Policy::default())
                .unwrap();
        for sampling in &asked {
            engine.submit(Request { token_logits: false, ..Request::new(vec![1, 2], sampling.clone()) }).unwrap();
        }
        while !engine.is_idle() {
            let before = engine.device().driver().log().len();
            engine.step(&mut |_| ()).unwrap();
            let log = engine.device().driver().log();
            let copies = |way: &str| -> Vec<usize> {
                let bytes = |line: &String| Some(line.strip_prefix(way)?.rsplit_once(' ')?.1.parse().unwrap());
                log[before..].iter().filter_map(bytes).collect()
            };
            assert_eq!((&copies("upload ")[1..], &copies("download ")[..]), (up, down), "{asked:?}");
            let launched = log[before..].iter().any(|line| line.starts_with("launch draw"));
            let replayed = log[before..].iter().any(|line| line.starts_with("replay"));
            assert!(launched != up.is_empty() || replayed, "{asked:?}");
        }
    }
    let mut engine =
        Engine::new(device(dry(), &plan, &cubins(&plan)).unwrap(), plan.program.clone(), Policy::default()).unwrap();
    for sampling in [drawn, greedy()] {
        engine.submit(Request { token_logits: false, ..Request::new(vec![1, 2], sampling) }).unwrap();
        engine.run_until_idle(&mut |_| ()).unwrap();
    }
    assert_eq!(engine.device().driver().log().iter().filter(|line| *line == "record").count(), 2);
}

/// Each step has one upload, from the first byte of the metadata on: a prompt, a decode step that is recorded, and decode steps
/// that are replayed. A decode step of three requests has 18 arrays of 64 bytes each, four for the tiles of attention in each of two
/// heights and of its second launch, and an entry for each page.
#[test]
fn a_step_is_one_upload_of_the_metadata_that_it_uses() {
    let plan = smol();
    let device = device(dry(), &plan, &cubins(&plan)).unwrap();
    let mut engine = Engine::new(device, plan.program.clone(), Policy::default()).unwrap();
    let made = engine.device().driver().log();
    let metadata = made.iter().rfind(|line| line.starts_with("allocate #")).unwrap();
    let metadata = metadata["allocate ".len()..].split(' ').next().unwrap();
    for length in [70, 3, 5] {
        engine.submit(Request::new((0..length).collect(), Sampling::greedy(4))).unwrap();
    }
    let mut steps = vec![];
    while !engine.is_idle() {
        let before = engine.device().driver().log().len();
        engine.step(&mut |_| ()).unwrap();
        let log = engine.device().driver().log();
        let uploads = log[before..].iter().filter(|line| line.starts_with("upload")).cloned();
        steps.push(uploads.collect::<Vec<_>>());
    }
    // 78 rows in 320 bytes, 3 logits in 64, and three times four arrays of at most 78 tiles in 320.
    let prompt = 2 * 64 + 3 * 320 + 64 + 3 * 4 * 320 + 4 * 4;
    let decode = 18 * 64 + 4 * 4;
    let bytes = [prompt, decode, decode, decode];
    assert_eq!(steps, bytes.map(|bytes| vec![format!("upload {metadata} {bytes}")]));
}

/// A recording serves steps of any length: it has the programs of the longest. Other launches have those of the step.
#[test]
fn a_recording_has_the_splits_of_the_longest_context() {
    let plan = smol();
    let mut engine = Engine::new(
        device(dry(), &plan, &cubins(&plan)).unwrap(),
        plan.program.clone(),
        Policy { rows_step_max: 128, ..Policy::default() },
    )
    .unwrap();
    engine.submit(Request::new((0..70).collect(), Sampling::greedy(3))).unwrap();
    engine.run_until_idle(&mut |_| ()).unwrap();
    let log = engine.device().driver().log();
    let grids = |lines: &[String], kernel: &str| -> Vec<String> {
        let grid = |line: &String| {
            line.strip_prefix(&format!("launch {kernel} grid ["))?.split(']').next().map(str::to_string)
        };
        lines.iter().filter_map(grid).collect()
    };
    let (prompt, recorded) = log.split_at(log.iter().position(|line| line == "record").unwrap());
    // 70 rows in high tiles, which have room for 32.
    assert_eq!((grids(prompt, "attend"), grids(prompt, "attend_combine")), (vec!["3, 3, 1".to_string()], vec![]));
    let combined = vec!["1, 3, 1".to_string()];
    assert_eq!((grids(recorded, "attend"), grids(recorded, "attend_combine")), (vec!["1, 3, 4".to_string()], combined));
}

/// Timed launches are the same as others, each between two marks.
#[test]
fn launches_that_are_timed_are_those_of_a_recording() {
    let plan = smol();
    let launched = |timed: bool| {
        let mut device = device(dry(), &plan, &cubins(&plan)).unwrap();
        if timed {
            device.time_launches();
        }
        let mut engine = Engine::new(device, plan.program.clone(), Policy::default()).unwrap();
        engine.submit(Request::new((0..70).collect(), Sampling::greedy(2))).unwrap();
        engine.run_until_idle(&mut |_| ()).unwrap();
        let log = engine.device().driver().log();
        let lines = log.into_iter().filter(|line| line.starts_with("launch ")).collect::<Vec<_>>();
        (lines, engine.device().take_times())
    };
    let ((recorded, none), (timed, times)) = (launched(false), launched(true));
    assert_eq!(recorded, timed);
    assert!(none.is_empty() && times.len() > 8, "{times:?}");
    // The stand-in's clock goes by launches.
    let seconds: f64 = times.iter().map(|(_, seconds)| seconds).sum();
    assert!((seconds * 1e6 - timed.len() as f64).abs() < 1e-3, "{seconds} {}", timed.len());
    assert!(times.iter().all(|(name, _)| plan_has(&plan, name)), "{times:?}");
}

fn plan_has(plan: &ModelPlan, name: &str) -> bool {
    vosti_model::plan::specs(plan).iter().any(|spec| spec.to_string() == name)
}

#[test]
fn a_device_for_few_rows_is_asked_for_no_more_programs() {
    let plan = smol();
    let config = Config::new(6, 6, vec![6]);
    let cubins = cubins(&plan);
    let device = CudaDevice::new(dry(), TARGET, &plan.program, &admitted(&plan), &cubins, &Nothing, config).unwrap();
    let mut engine = Engine::new(device, plan.program.clone(), Policy::default()).unwrap();
    for _ in 0..5 {
        engine.submit(Request::new(vec![1], Sampling::greedy(3))).unwrap();
    }
    engine.run_until_idle(&mut |_| ()).unwrap();
    let log = engine.device().driver().log();
    let tiles: BTreeSet<&str> = log
        .iter()
        .filter_map(|line| line.strip_prefix("launch attend grid ["))
        .filter_map(|line| line.split(',').next())
        .collect();
    assert_eq!(tiles, BTreeSet::from(["6"]), "five rows, room for eight would be more than the buffers have");
}

type Change = fn(&mut StandIn, &mut BTreeMap<String, Cubin>);

#[test]
fn a_device_or_a_bundle_that_does_not_fit_is_one_message() {
    let cases: [(&str, Change); 14] = [
        ("for cuda-sm90, and stand-in has compute capability 8.0", |d, _| d.about.capability = (8, 0)),
        ("compute capability 10.0; run `vosti prepare`", |d, _| d.about.capability = (10, 0)),
        ("lower --context or the rows of a step", |d, _| d.free = 16 << 20),
        ("the weights alone are", |d, _| d.free = 100),
        ("bytes did not fit into GPU memory (cuMemAlloc_v2), with a context of 2048 and steps of 128 rows", |d, _| {
            d.largest = 1 << 16;
        }),
        ("of page-locked memory: allow more", |d, _| d.locked = 1 << 20),
        ("needs 98304 bytes of shared memory, a block has 98000", |d, _| d.about.shared_bytes_max = 98_000),
        ("a block has 97448", |d, _| (d.about.shared_bytes_max, d.attributes.shared_static) = (99_000, 1552)),
        ("makes no tensor maps, which kernels of this bundle copy by: update the driver, or prepare", |d, _| {
            d.maps = false
        }),
        ("no tensor map can be", |_, cubins| {
            let copied = cubins.values_mut().find(|cubin| !cubin.record.metadata.descriptors.is_empty()).unwrap();
            copied.record.metadata.descriptors[0].param = 1;
        }),
        ("spills 16 bytes", |d, _| d.attributes.local_bytes = 16),
        ("128 threads have 64 each", |d, _| d.attributes.threads_max = 64),
        ("no machine code for linear", |_, cubins| cubins.retain(|name, _| !name.starts_with("linear-"))),
        ("assembled for sm_100a", |_, cubins| {
            cubins.values_mut().for_each(|cubin| cubin.record.metadata.target = "sm_100a".into());
        }),
    ];
    let plan = smol();
    for (says, change) in cases {
        let (mut driver, mut cubins) = (dry(), cubins(&plan));
        change(&mut driver, &mut cubins);
        let message = device(driver, &plan, &cubins).map(drop).unwrap_err().to_string();
        assert!(message.contains(says) && !message.contains('\n'), "{says}: {message}");
    }
}

#[test]
fn what_the_launcher_does_not_do_is_refused_when_it_is_loaded() {
    type Change = fn(&mut Cubin);
    let cases: [(&str, Change); 4] = [
        ("a cooperative launch", |i| i.record.metadata.launch_cooperative_grid = true),
        ("clusters of blocks", |i| i.record.metadata.num_ctas = 2),
        ("would pass 6 parameters of 8 bytes, its PTX takes 5", |i| i.record.facts.params = 5),
        ("CUDA_ERROR_NOT_FOUND", |i| i.record.metadata.name = "other".into()),
    ];
    for (says, change) in cases {
        let mut cubin = linear();
        change(&mut cubin);
        let message = Code::load(&mut dry(), &cubin, &proved(), Arch::Sm90).map(drop).unwrap_err().to_string();
        assert!(message.contains(says), "{says}: {message}");
    }
}

/// A kernel that waits for the launches before it may begin early. One whose record claims that it waits is refused by
/// the stand-in.
#[test]
fn only_a_kernel_that_waits_begins_early() {
    for (claims, waits) in [(true, true), (false, true), (false, false), (true, false)] {
        let (mut driver, mut cubin) = (dry(), linear());
        cubin.record.metadata.launch_pdl = claims;
        if !waits {
            cubin.code.drain(..WAITS.len());
        }
        let code = Code::load(&mut driver, &cubin, &proved(), Arch::Sm90).unwrap();
        let launched = code.launch(&mut driver, Extent { rows: 9, tiles: 0, length: 0 }, &POINTERS, &[]);
        assert_eq!(launched.is_ok(), waits || !claims);
        assert_eq!(driver.log().iter().any(|line| line.contains(" early ")), claims && waits);
    }
}

/// By default, static and dynamic shared memory have 48 KiB together. The stand-in refuses a launch that needs more and did
/// not raise the limit.
#[test]
fn shared_memory_that_is_in_the_code_counts_when_more_is_asked_for() {
    for (fixed, asked) in [(0, false), (16, true)] {
        let (mut driver, mut cubin) = (dry(), linear());
        (driver.attributes.shared_static, cubin.record.metadata.shared) = (fixed, 48 << 10);
        let code = Code::load(&mut driver, &cubin, &proved(), Arch::Sm90).unwrap();
        code.launch(&mut driver, Extent { rows: 9, tiles: 0, length: 0 }, &POINTERS, &[]).unwrap();
        assert_eq!(driver.log().iter().any(|line| line.starts_with("allow")), asked);
    }
}

const LINEAR: &str = "linear-bf16-BK64-BM64-BN64-K576-N960-SWAP1";

fn linear() -> Cubin {
    cubin(&parse_stem(LINEAR).unwrap())
}

fn proved() -> Arc<Proved> {
    let spec = parse_stem(LINEAR).unwrap();
    Admitted::unproved(&[Binding::one(spec.clone(), BTreeMap::new())]).unwrap().kernel(&spec).unwrap().clone()
}

/// Four parameters and two for scratch.
const POINTERS: [u64; 6] = [0x1000, 0x2000, 0x3000, 0x4000, 0, 0];

#[test]
fn the_premises_of_the_code_are_checked_at_every_launch() {
    let mut driver = dry();
    let mut code = Code::load(&mut driver, &linear(), &proved(), Arch::Sm90).unwrap();
    let rows = |rows| Extent { rows, tiles: 0, length: 0 };
    let mut launch = |code: &Code, pointers: &[u64], extent| code.launch(&mut driver, extent, pointers, &[]);
    launch(&code, &POINTERS, rows(9)).unwrap();
    let with = |i: usize, at: u64| {
        let mut pointers = POINTERS;
        pointers[i] = at;
        pointers
    };
    let refused = |result: Result<(), CudaError>, says: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(says), "{message}");
    };
    refused(launch(&code, &with(0, 0x1008), rows(9)), "`x` at 0x1008");
    refused(launch(&code, &with(3, 0), rows(9)), "`out` at 0x0");
    refused(launch(&code, &POINTERS[..5], rows(9)), "5 parameters");
    refused(launch(&code, &POINTERS, rows(1 << 38)), "programs on axis 0");
    code.scratch[0] = vosti_cuda::launch::Scratch { bytes: 384, align: 128 };
    refused(launch(&code, &POINTERS, rows(9)), "scratch at 0x0");
    refused(launch(&code, &with(4, 0x40), rows(9)), "scratch at 0x40");
    launch(&code, &with(4, 0x80), rows(9)).unwrap();
    // A grid without programs is no launch: a driver refuses it.
    launch(&code, &POINTERS, rows(0)).unwrap();
    let log = driver.log();
    assert_eq!(log.iter().filter(|line| line.starts_with("launch")).count(), 2, "{log:?}");
}

#[test]
fn scratch_is_as_large_as_the_largest_grid() {
    let plan = smol();
    let mut cubins = cubins(&plan);
    let name = "linear-bf16-BK64-BM64-BN64-K576-N960-SWAP1";
    cubins.get_mut(name).unwrap().record.metadata.global_scratch_size = 384;
    cubins.get_mut(name).unwrap().record.metadata.global_scratch_align = 128;
    let device = device(dry(), &plan, &cubins).unwrap();
    // 128 rows in tiles of 64, 960 columns in tiles of 64.
    let log = device.driver().log();
    let last = log.iter().rfind(|line| line.starts_with("allocate")).unwrap();
    assert!(last.ends_with(&format!(" {}", 2 * 15 * 384)), "{last}");
}

/// The proof of row tiles assumes that their dots use one kind of instruction.
#[test]
fn row_tiles_of_another_kind_of_instruction_are_refused() {
    let plan = smol();
    let mut cubins = cubins(&plan);
    let name = "linear-bf16-BK64-BM64-BN64-K576-N960-SWAP1";
    cubins.get_mut(name).unwrap().record.facts.matrix_kinds = vec!["mma.sync".into()];
    let refused = device(dry(), &plan, &cubins).map(drop).unwrap_err().to_string();
    assert!(refused.contains(name) && refused.contains("the kernel that it may replace has"), "{refused}");
}

#[test]
fn after_a_failure_nothing_more_is_run() {
    let plan = smol();
    // A kernel that fails after its launch has returned fails the step that it is of: `run` waits for all of it.
    let cases = [
        (Some(0), "CUDA_ERROR_LAUNCH_FAILED", 1),
        (Some(14), "CUDA_ERROR_LAUNCH_FAILED", 2),
        (None, "CUDA_ERROR_ILLEGAL_ADDRESS", 1),
    ];
    for (fails_in, what, prompts) in cases {
        let mut device = device(dry(), &plan, &cubins(&plan)).unwrap();
        device.driver_mut().fails_in = fails_in;
        device.driver_mut().fails_late = fails_in.is_none();
        let mut engine = Engine::new(device, plan.program.clone(), Policy::default()).unwrap();
        for length in 0..prompts {
            engine.submit(Request::new((0..length + 2).collect(), Sampling::greedy(3))).unwrap();
        }
        let error = engine
            .run_until_idle(&mut |event| {
                assert!(fails_in.is_some() || matches!(event, Event::Started { .. }), "an event of a step that failed");
            })
            .unwrap_err()
            .to_string();
        assert!(error.contains(what), "{error}");
        let launched = engine.device().driver().log().len();
        assert!(engine.step(&mut |_| ()).is_err());
        assert_eq!(engine.device().driver().log().len(), launched, "it was asked for more");
    }
}

/// `Pages::Fill` takes as many pages as fit beside weights and buffers.
#[test]
fn the_pool_takes_what_is_free_and_says_so_if_that_is_nothing() {
    let plan = smol();
    let cubins = cubins(&plan);
    let with = |free: u64, pages: Pages| {
        let mut driver = dry();
        driver.free = free;
        let config = Config { pages, ..Config::new(128, 128, vec![]) };
        CudaDevice::new(driver, TARGET, &plan.program, &admitted(&plan), &cubins, &Nothing, config)
    };
    let fill = |free| with(free, Pages::Fill { percent: 90 });
    let taken = |device: &CudaDevice<StandIn>| {
        let log = device.driver().log();
        let sizes = log.iter().filter(|line| line.starts_with("allocate")).map(|line| line.rsplit_once(' ').unwrap().1);
        sizes.map(|size| size.parse::<u64>().unwrap()).sum::<u64>()
    };
    let one = with(1 << 40, Pages::Each(vec![1])).unwrap();
    // Keys and values of 64 tokens, 3 heads of 64, two bytes each, one layer.
    let (page, rest) = (2 * 64 * 3 * 64 * 2, taken(&one) - 2 * 64 * 3 * 64 * 2);
    let device = fill(rest + 1000 * page).unwrap();
    assert_eq!(vosti_core::Device::pages(&device, 0), 900);
    assert_eq!(taken(&device), rest + 900 * page);
    assert_eq!(vosti_core::Device::pages(&fill(rest + page).unwrap(), 0), 1);
    for free in [rest, rest + page - 1] {
        let message = fill(free).map(drop).unwrap_err().to_string();
        assert!(message.contains("too little GPU memory"), "{message}");
    }
}

#[test]
fn devices_of_one_model_share_its_weights() {
    let plan = smol();
    let cubins = cubins(&plan);
    let driver = dry();
    let weights = Arc::new(WeightCache::new(driver.another().unwrap()));
    let make = || {
        let config = Config { weights: Some(weights.clone()), ..Config::new(8, 8, vec![1]) };
        let driver = driver.another().unwrap();
        CudaDevice::new(driver, TARGET, &plan.program, &admitted(&plan), &cubins, &Nothing, config).unwrap()
    };
    let uploads = || driver.log().iter().filter(|line| line.starts_with("upload")).count();
    let first = make();
    let once = uploads();
    assert!(once > 0 && first.bytes().0 == weights.bytes());
    let second = make();
    assert_eq!((uploads(), second.bytes().0), (once, weights.bytes()), "weights were uploaded again");
}

#[test]
fn page_counts_must_be_those_of_the_program() {
    let mut plan = smol();
    plan.program.groups.push(GroupDecl { window: None, entry: vec![], state: vec![] });
    let message = device(dry(), &plan, &cubins(&plan)).map(drop).unwrap_err().to_string();
    assert!(message.contains("1 page counts for 2 cache groups"), "{message}");
}

/// Without a GPU, the message says that there is none. With a GPU, another message says that it is not the 10,000th. A machine
/// gives one of these messages; the words of all are compared.
#[test]
fn a_machine_without_a_gpu_is_told_so() {
    let opened = Cuda::open(9999).map(drop).unwrap_err();
    let missing = DriverError::NoSuchDevice { index: 9999, count: 1 };
    for error in [opened, DriverError::NoDriver, DriverError::NoDevice, missing] {
        let words = match error {
            DriverError::NoDriver => ["libcuda is not found", "run on the CPU"],
            DriverError::NoDevice => ["finds no GPU", "run on the CPU"],
            DriverError::NoSuchDevice { .. } => ["there is no GPU 9999", "nvidia-smi -L"],
            other => panic!("{other}"),
        };
        let message = error.to_string();
        assert!(words.iter().all(|word| message.contains(word)) && !message.contains('\n'), "{message}");
    }
}
