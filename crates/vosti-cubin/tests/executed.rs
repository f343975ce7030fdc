//! What Triton makes for sm80 is executed on a processor and has the tile interpreter's bits; what is broken in it is found.
//! Needs Triton, and no GPU. `cargo xtask execute` runs every text of a target.

mod controls;

use controls::{CONTROLS, Control, OF_SM90, OF_SM100, UNNOTICED};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use vosti_cubin::execute::compiled;
use vosti_cubin::toolchain::REQUIREMENT;
use vosti_cubin::{Artifact, Executed, Toolchain, execute};
use vosti_kernels::{Spec, parse_stem};
use vosti_model::plan::specs;
use vosti_model::{ModelPlan, Target};
use vosti_ptx::{Cases, Compiled, Edit, Seen};

const TARGET: &str = "cuda-sm80";
/// The bundle of the first is executed whole; of the others the kernels that no model before has.
const MODELS: [&str; 13] = [
    "llama",
    "gemma2",
    "olmo2",
    "gemma4",
    "gemma4-moe",
    "gemma4-e2b",
    "qwen2",
    "mixtral",
    "gpt-oss",
    "lfm2",
    "qwen3_5-moe",
    "granite4-h",
    "nemotron3",
];

/// Products whose loops go once around their buffers, with ragged edges, experts of which a row chooses many, a router with groups,
/// attention over several pages ahead, many splits or a window, rows of several tiles of columns, layers with a state, and
/// choices and draws of several parts.
const LONG: [&str; 32] = [
    "linear-bf16-BK64-BM16-BN64-K712-N200-SWAP1",
    "linear-bf16-BK64-BM128-BN128-K328-N136-SWAP1",
    "expert_glu-bf16-ACT2-BK64-BM64-BN64-E3-K328-N72-SWAP1-TOPK2-WHOLE1",
    "expert_glu-bf16-ACT0-BK64-BM16-BN64-E9-K136-N72-SWAP1-TOPK10-WHOLE1",
    "expert_down-bf16-BK64-BM16-BN64-E9-K712-LANES16-N72-SWAP1-TOPK6-WHOLE1",
    "linear_glu-bf16-ACT0-BK64-BM16-BN64-K712-N72-SWAP1",
    "linear_add-bf16-BK64-BM16-BN64-K1096-N72-SCALE1.0-SWAP1",
    "route-bf16-BM1-E120-EP128-GROUPS8-KEPT3-MEMBERS15-NORMED1-PLACES16-SCALE2.5-SIGMOID1-TOPK6",
    "linear_int-bf16-BLOCKS5-BM64-BN64-HALVES1-N72-OFFSETS1-WIDE1",
    "attend-bf16-BQ16-CAP0.0-CAPPED0-D64-DP64-GP4-GROUP3-HEIGHT16-KV_HEADS2-PAGE64-ROWS512-SINKS1-SLOPE0.18033688-SPAN0.0-SPLIT512-USE0-WINDOW1",
    "attend-bf16-BQ16-CAP0.0-CAPPED0-D64-DP64-GP4-GROUP3-HEIGHT16-KV_HEADS2-PAGE64-ROWS512-SINKS1-SLOPE0.18033688-SPAN0.0-SPLIT512-USE2-WINDOW1",
    "rmsnorm-bf16-BH4096-BM1-EPS1e-5-H200",
    "store_delta-bf16-ACROSS1-DK32-DV16-GROUP2-KEY_HEADS2-PAGE64",
    "store_mamba-bf16-DK32-DP16-DV16-GROUP2-KEY_HEADS2-PAGE64",
    "rope_store-bf16-BM16-EPS1e-6-FIRST0-HALF20-HEADS4-HP32-KV_HEADS2-K_FIRST4-NORM1-PACKED8-PAGE64-PROGRAMS6-V_FIRST6-V_NORM1",
    "draw_part-bf16-BM1-PART256-PARTS3-V700",
    "draw_combine-bf16-BM1-PARTS200-WIDTH256",
    "argmax-bf16-BM1-BV8192-V9000",
    "topk_part-bf16-BM1-K64-PART4096-PARTS3-V9000",
    "attend-bf16-BQ16-CAP50.0-CAPPED1-D40-DP64-GP4-GROUP3-HEIGHT16-KV_HEADS2-PAGE64-ROWS512-SINKS1-SLOPE0.18033688-SPAN100.0-SPLIT512-USE1-WINDOW100",
    "attend_combine-bf16-BQ1-D64-DP64-GP4-GROUP3-HEIGHT1-KV_HEADS2-ROWS512-SINKS0-SPLIT512",
    "embed-bf16-BH1024-BM16-H1224-SCALE8.0-V256",
    "gather-bf16-BH1024-BM4-H1224-K1288",
    "combine_bias-bf16-BH1024-BM4-E6-H1224-SCALE1.0-TOPK4",
    "rmsnorm_add-bf16-BH4096-BM1-EPS1e-6-H4296",
    "norm_gated-bf16-BM4-D40-DP64-EPS1e-6-GROUP2-KEY_HEADS2",
    "per_layer_gate-bf16-BH256-BM1-EPS1e-6-H600-LAYER1-LAYERS3",
    "quantise-bf16-BB32-BLOCKS40-BM1-WIDE0",
    "conv_silu-bf16-BQ16-D40-DP64-GROUP2-HEIGHT16-KV_HEADS2-PAGE64-WINDOW4",
    "store_conv-bf16-BM16-D40-DP64-KV_HEADS2-PAGE64",
    "rope_store-bf16-BM16-EPS0.0-FIRST0-HALF20-HEADS4-HP32-KV_HEADS2-K_FIRST4-NORM0-PACKED8-PAGE64-PROGRAMS6-V_FIRST6-V_NORM0",
    EDITED,
];

/// A kernel whose text is edited at random.
const EDITED: &str = "read_state-bf16-BK32-BQ16-DK32-DP16-DV16-GROUP2-HEIGHT16-KEY_HEADS2-PAGE64";

/// Kernels of models whose matrices are in blocks of integers.
const INTEGERS: [&str; 7] = [
    "expert_int_down-bf16-BLOCKS2-BM16-BN64-E3-HALVES0-LANES32-N72-OFFSETS1-TOPK2-WIDE1",
    "expert_int_glu-bf16-ACT0-BLOCKS3-BM16-BN64-E3-HALVES1-N40-OFFSETS0-PLACES2-TOPK2-WIDE0",
    "linear_int_add-bf16-BLOCKS3-BM64-BN64-HALVES0-N72-OFFSETS0-SCALE1.0-WIDE0",
    "linear_int_bias-bf16-BLOCKS2-BM64-BN64-HALVES1-N64-OFFSETS0-WIDE1",
    "linear_int_glu-bf16-ACT0-BLOCKS2-BM64-BN32-HALVES0-N40-OFFSETS1-WIDE1",
    "linear_int_logits-bf16-BLOCKS2-BM64-BN64-CAP30.0-CAPPED1-HALVES0-N72-OFFSETS0-SLOPE0.0625-SPAN60.0-WIDE1",
    "quantise-bf16-BB32-BLOCKS5-BM1-WIDE1",
];

/// Kernels of sm90: those whose matrix products are a warpgroup's, one whose loop is shorter than its pipeline, those that controls
/// break, experts of which a row chooses many, layers with a state, and products whose tiles are copied by descriptor.
const SM90: [&str; 12] = [
    "linear-bf16-BK64-BM64-BN64-K712-N200-SWAP1",
    "linear_add-bf16-BK64-BM16-BN64-K128-N64-SCALE1.0-SWAP1",
    "linear_int-bf16-BLOCKS5-BM64-BN64-HALVES1-N72-OFFSETS1-WIDE1",
    "attend-bf16-BQ16-CAP0.0-CAPPED0-D64-DP64-GP4-GROUP3-HEIGHT16-KV_HEADS2-PAGE64-ROWS512-SINKS0-SLOPE0.18033688-SPAN0.0-SPLIT512-USE0-WINDOW1",
    "attend-bf16-BQ16-CAP0.0-CAPPED0-D64-DP64-GP4-GROUP3-HEIGHT16-KV_HEADS2-PAGE64-ROWS512-SINKS0-SLOPE0.18033688-SPAN0.0-SPLIT512-USE2-WINDOW1",
    "expert_glu-bf16-ACT0-BK64-BM64-BN64-E12-K136-N72-SWAP1-TOPK10-WHOLE1",
    "expert_down-bf16-BK64-BM16-BN64-E9-K136-LANES16-N72-SWAP1-TOPK10-WHOLE1",
    "read_state-bf16-BK32-BQ16-DK32-DP16-DV16-GROUP2-HEIGHT16-KEY_HEADS2-PAGE64",
    "store_delta-bf16-ACROSS1-DK32-DV16-GROUP2-KEY_HEADS2-PAGE64",
    "store_mamba-bf16-DK32-DP16-DV16-GROUP2-KEY_HEADS2-PAGE64",
    "linear_bias-bf16-BK64-BM128-BN128-K328-N136-SWAP1",
    "linear_glu-bf16-ACT0-BK64-BM128-BN128-K200-N72-SWAP1",
];

/// Kernels of sm100 whose products are in tensor memory: with 64 and 128 rows, one and two products side by side, attention with 64
/// and 128 lanes, which stores its splits or folds them, and experts. And a reduction of floats in one instruction.
const SM100: [&str; 9] = [
    "topk_combine-bf16-BM1-BN64-K64-N40",
    "linear-bf16-BK64-BM16-BN64-K712-N200-SWAP1",
    "linear_add-bf16-BK64-BM256-BN128-K328-N136-SCALE1.0-SWAP1",
    "linear_bias-bf16-BK64-BM64-BN64-K328-N136-SWAP1",
    "linear_glu-bf16-ACT0-BK64-BM128-BN128-K200-N72-SWAP1",
    "attend-bf16-BQ16-CAP0.0-CAPPED0-D64-DP64-GP4-GROUP3-HEIGHT16-KV_HEADS2-PAGE64-ROWS512-SINKS0-SLOPE0.18033688-SPAN0.0-SPLIT512-USE0-WINDOW1",
    "attend-bf16-BQ32-CAP0.0-CAPPED0-D64-DP64-GP4-GROUP3-HEIGHT32-KV_HEADS2-PAGE64-ROWS512-SINKS0-SLOPE0.18033688-SPAN0.0-SPLIT512-USE2-WINDOW1",
    "expert_glu-bf16-ACT0-BK64-BM64-BN64-E12-K136-N72-SWAP1-TOPK10-WHOLE1",
    "expert_down-bf16-BK64-BM16-BN64-E9-K136-LANES16-N72-SWAP1-TOPK10-WHOLE1",
];

/// The plan of a tiny model.
fn plan(name: &str) -> ModelPlan {
    let path = format!("{}/../vosti-model/tests/tiny/{name}/config.json", env!("CARGO_MANIFEST_DIR"));
    let config = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let decoder = vosti_model::families::from_config("config.json", &config).unwrap();
    vosti_model::plan(&decoder, &Target::named(TARGET).with_choices(), Some(512)).unwrap()
}

/// The specialisations that are executed here.
fn all() -> Vec<Spec> {
    let mut found: BTreeMap<String, Spec> = BTreeMap::new();
    for (first, name) in MODELS.iter().enumerate().map(|(at, name)| (at == 0, name)) {
        for spec in specs(&plan(name)) {
            if first || !found.values().any(|other| other.kernel == spec.kernel) {
                found.insert(spec.to_string(), spec);
            }
        }
    }
    found.extend(LONG.iter().chain(&INTEGERS).map(|stem| (stem.to_string(), parse_stem(stem).unwrap())));
    found.into_values().collect()
}

/// Runs something on each item, on all cores, and gives what was found.
fn on_all_cores<T: Sync, F: Send>(items: &[T], work: impl Fn(&T) -> F + Sync) -> Vec<F> {
    let next = AtomicUsize::new(0);
    let one = || std::iter::from_fn(|| items.get(next.fetch_add(1, Ordering::Relaxed))).map(&work).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// All of them, compiled once for all tests; none without Triton.
fn artifacts() -> Option<&'static [Artifact]> {
    static ARTIFACTS: LazyLock<Option<Vec<Artifact>>> = LazyLock::new(|| {
        let tool = Toolchain::with_python(vosti_test_tools::python(REQUIREMENT)?);
        let specs = all();
        let parts: Vec<&[Spec]> = specs.chunks(specs.len().div_ceil(2)).collect();
        let compiled = on_all_cores(&parts, |part| tool.compile_checked_in(TARGET, part).unwrap());
        Some(compiled.into_iter().flatten().collect())
    });
    ARTIFACTS.as_deref()
}

#[test]
fn what_the_compiler_made_has_the_tile_interpreters_bits() {
    let Some(artifacts) = artifacts() else { return };
    let wrong = on_all_cores(artifacts, |artifact| match execute(artifact) {
        Ok(Some(Executed::Ptx)) => None,
        Ok(None) => Some(format!("{} has an instruction that is not known", artifact.spec)),
        Err(error) => Some(error.to_string()),
    });
    let (many, wrong) = (wrong.len(), wrong.into_iter().flatten().collect::<Vec<_>>());
    assert!(wrong.is_empty(), "{} of {many}:\n{}", wrong.len(), wrong.join("\n"));
    // Every kernel that the target has a text of.
    let kernels: BTreeSet<&str> = artifacts.iter().map(|artifact| artifact.spec.kernel.as_str()).collect();
    let texts = vosti_model::inventory(TARGET).unwrap();
    let missing: BTreeSet<&str> =
        texts.iter().map(|text| text.kernel.as_str()).filter(|name| !kernels.contains(name)).collect();
    println!("{many} kernels executed");
    assert_eq!(missing, BTreeSet::new());
}

/// What the execution says of a broken text, or none if it has the interpreter's bits.
fn said(control: &Control, artifact: &Artifact, cases: &Cases) -> Option<String> {
    let Some(broken) = (control.edit)(&artifact.ptx) else { return Some("there is nothing to edit".into()) };
    cases.check(&Compiled { ptx: &broken, ..compiled(artifact) }).err().map(|difference| difference.to_string())
}

/// Kernels by stem, with their cases.
type Broken<'a> = BTreeMap<&'a str, (&'a Artifact, Cases)>;

fn cases<'a>(stems: impl Iterator<Item = &'a &'static str>, artifacts: &'a [Artifact]) -> Broken<'a> {
    let of = |stem: &'a &'static str| {
        let artifact = artifacts.iter().find(|artifact| artifact.spec.to_string() == *stem);
        let artifact = artifact.unwrap_or_else(|| panic!("{stem}"));
        (*stem, (artifact, Cases::new(&artifact.spec, &artifact.ttir).unwrap()))
    };
    stems.map(of).collect()
}

fn broken<'a>(control: &Control, all: &'a Broken) -> &'a (&'a Artifact, Cases) {
    all.iter().find(|(stem, _)| stem.starts_with(control.kernel)).unwrap().1
}

/// Edits every text, and fails unless each edit is found by the words that it names.
#[track_caller]
fn all_found(controls: &[Control], all: &Broken) {
    let wrong = on_all_cores(controls, |control| {
        let (artifact, cases) = broken(control, all);
        let said = said(control, artifact, cases);
        let found = said.as_ref().is_some_and(|said| control.says.split('|').any(|says| said.contains(says)));
        (!found).then(|| format!("{}: wanted `{}`, found {said:?}", control.name, control.says))
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), controls.len(), wrong.join("\n"));
}

#[test]
fn every_broken_text_is_found_by_name() {
    let Some(artifacts) = artifacts() else { return };
    let all = cases(LONG.iter().chain(controls::OTHERS), artifacts);
    all_found(CONTROLS, &all);
    // What no case can notice, and why.
    for (control, why) in UNNOTICED {
        let (artifact, cases) = broken(control, &all);
        assert_eq!(said(control, artifact, cases), None, "{} is noticed, but {why}", control.name);
    }
}

/// A sample of what `cargo xtask execute --edits` does.
#[test]
fn most_random_edits_of_a_text_are_seen() {
    let Some(artifacts) = artifacts() else { return };
    let all = cases([&EDITED].into_iter(), artifacts);
    let (artifact, cases) = &all[EDITED];
    let edits = Edit::some(&artifact.ptx, 8, 1);
    let seen = on_all_cores(&edits, |edit| (edit.to_string(), cases.see(&compiled(artifact), edit)));
    let many = |like: fn(&Seen) -> bool| seen.iter().filter(|(_, seen)| like(seen)).count();
    assert_eq!((seen.len(), many(|seen| matches!(seen, Seen::Stopped(_) | Seen::Bits))), (46, 39), "{seen:#?}");
    // A zero that a load replaces in every thread.
    assert_eq!(many(|seen| *seen == Seen::Unused), 1, "{seen:#?}");
    assert_eq!(many(|seen| *seen == Seen::Nothing), 0, "{seen:#?}");
}

/// Compiles kernels of a target, executes them, and looks for broken ones by name.
fn execute_and_break(target: &str, stems: &[&'static str], controls: &[Control]) {
    let Some(python) = vosti_test_tools::python(REQUIREMENT) else { return };
    let specs: Vec<Spec> = stems.iter().map(|stem| parse_stem(stem).unwrap()).collect();
    let artifacts = Toolchain::with_python(python).compile_checked_in(target, &specs).unwrap();
    for artifact in &artifacts {
        assert_eq!(execute(artifact).unwrap(), Some(Executed::Ptx), "{}", artifact.spec);
    }
    all_found(controls, &cases(stems.iter(), &artifacts));
}

#[test]
fn products_of_a_warpgroup_have_the_tile_interpreters_bits_and_broken_ones_are_found_by_name() {
    execute_and_break("cuda-sm90", &SM90, OF_SM90);
}

#[test]
fn products_of_tensor_memory_have_the_tile_interpreters_bits_and_broken_ones_are_found_by_name() {
    execute_and_break("cuda-sm100", &SM100, OF_SM100);
}
