//! One prompt on the CPU device, below the engine, and the tiny models that several tests run it with.

use std::ops::Range;
use std::path::{Path, PathBuf};

use vosti_contract::Dtype;
use vosti_core::{Core, Device, Draw, PAGE, Reads, Sampler, Select, Token};
use vosti_cpu::Isa;
use vosti_cpu::{Config, CpuDevice};
use vosti_kernels::Admitted;
use vosti_model::decoder::Decoder;
use vosti_model::{ModelPlan, Target, TensorFiles, WeightSource, families, plan};

/// Random models; `crates/vosti-model/goldens/tiny.py` makes them.
pub const TINY: [&str; 41] = [
    "llama",         // scaled rope, tied embeddings
    "llama-untied",  // groups of three heads, a head of its own
    "qwen2",         // biases of queries, keys and values
    "qwen3",         // norms of queries and keys
    "qwen3-ragged",  // heads of 20, three a group, and widths that no tile divides
    "ministral",     // windows
    "ministral3",    // YaRN, queries scaled by position
    "phi3",          // fused tensors, a part of each head rotates, longrope
    "gemma2",        // soft caps of scores
    "gemma3",        // windows, softcap
    "gemma4",        // keys as values
    "gemma4-moe",    // experts beside each perceptron, norms around both, a factor of each expert
    "gemma4-e2b",    // per-layer embeddings, layers that share a cache and have wider perceptrons
    "gemma4-e4b",    // per-layer embeddings alone
    "gemma4-shared", // layers that share a cache
    "olmo2",         // norms of outputs alone, of queries and keys whole
    "olmo3",         // the same with windows, and YaRN without
    "granite",       // multipliers
    "granite4",      // the same in one tensor for gate and up
    "granite4-h",    // Mamba 2 in two of three layers, in two groups, and no rotation
    "granite4-moe",  // the same with experts beside the perceptron
    "smollm3",       // a layer without rotation
    "qwen3-moe",     // experts in two of three layers
    "olmoe",         // shares that do not add up to one
    "mixtral",       // other names of tensors
    "granite-moe",   // all experts in one tensor, six of a row
    "gpt-oss",       // sinks, windows, biases everywhere, clamped experts whose gates and ups alternate
    "lfm2",          // convolutions in two of three layers
    "lfm2-moe",      // the same with a mixture of experts behind two of them
    "qwen3_5",       // gated delta rules in two of three layers, gated attention
    "qwen3_5-moe",   // the same with experts beside a perceptron that has a gate
    "qwen3-next",    // the same with ten experts of a row, and projections in two tensors
    "glm4-moe",      // a sigmoid with a bias, a perceptron beside the experts, half a head turns
    "ling",          // the same in groups of experts, queries, keys and values in one tensor
    "mamba2",        // Mamba 2 in every layer, no perceptron
    "nemotron-h",    // Mamba 2, attention or a perceptron without a gate in each layer
    "nemotron-nano", // the same with heads of 80 numbers
    "nemotron3",     // the same with experts without a gate beside such a perceptron
    "falcon-h1",     // attention and Mamba 2 beside each other, factors of projections
    "minimax-m2",    // experts with a sigmoid, one norm of all heads, of which half turns
    "ernie4_5",      // pairs that rotate are neighbours in the files
];

/// A tiny model's folder, its configuration and its tensors.
pub fn tiny(name: &str) -> (PathBuf, Decoder, TensorFiles) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/tests/tiny").join(name);
    let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    let decoder = families::from_config("config.json", &config).unwrap();
    let files = TensorFiles::open_folder(&folder).unwrap();
    (folder, decoder, files)
}

/// Ends every request at its first token.
struct Once {
    vocab: u32,
}

impl Sampler for Once {
    type Logits = [f32];
    type Top = [(Token, f32)];
    type State = ();

    fn vocab(&self) -> u32 {
        self.vocab
    }

    fn sample(&self, (): &mut (), _: &[f32]) -> (Token, bool) {
        (0, true)
    }

    fn reads(&self, (): &()) -> Reads {
        Reads::Best
    }

    fn guess(&self, (): &(), _: usize) -> Draw {
        unreachable!("only best tokens are read")
    }

    fn sample_best(&self, (): &mut (), _: Token) -> (Token, bool) {
        (0, true)
    }

    fn sample_drawn(&self, (): &mut (), _: Token) -> (Token, bool) {
        unreachable!("only best tokens are read")
    }

    fn sample_top(&self, (): &mut (), _: &[(Token, f32)]) -> (Token, bool) {
        (0, true)
    }
}

/// Weights of the model for the device.
struct Source<'a>(vosti_model::Weights<'a>);

impl vosti_cpu::Weights for Source<'_> {
    fn shape(&self, name: &str) -> Result<Vec<usize>, vosti_cpu::WeightError> {
        Ok(self.0.shape(name)?)
    }

    fn rows(&self, name: &str, rows: Range<usize>) -> Result<vosti_cpu::TensorData, vosti_cpu::WeightError> {
        Ok(self.0.rows(name, rows)?)
    }
}

/// Runs one prompt at a time on the device, in chunks, and hands out the logits of every position.
pub struct Run<D: Device<Logits = [f32], Top = [(Token, f32)]> = CpuDevice> {
    plan: ModelPlan,
    core: Core<D, Once>,
    chunk: usize,
}

impl Run {
    pub fn new(
        decoder: &Decoder,
        files: &TensorFiles,
        act: Dtype,
        longest: usize,
        chunk: usize,
        isa: Option<Isa>,
    ) -> Self {
        let plan = plan(decoder, &Target::named("cpu").with_act(act), Some(longest as u32 + 1)).unwrap();
        let weights = Source(vosti_model::Weights::new(files, &plan));
        let pages = vec![longest.div_ceil(PAGE) + 1; plan.program.groups.len()];
        let config = Config { isa, ..Config::new(chunk, chunk, pages, 2) };
        let admitted = Admitted::unproved(&plan.bindings).unwrap().with_draws(plan.draws.clone());
        let device = CpuDevice::new(&plan.program, &admitted, &weights, config).unwrap();
        assert_eq!(device.interpreted(), Vec::<String>::new());
        Run::of(plan, device, chunk)
    }
}

impl<D: Device<Logits = [f32], Top = [(Token, f32)]>> Run<D> {
    /// On a device of the plan.
    pub fn of(plan: ModelPlan, device: D, chunk: usize) -> Self {
        let core = Core::new(device, Once { vocab: plan.program.vocab }, plan.program.clone()).unwrap();
        Self { plan, core, chunk }
    }

    /// Calls `see(position, logits)` for every position of a prompt.
    pub fn prompt(&mut self, tokens: &[u32], mut see: impl FnMut(usize, &[f32])) {
        let core = &mut self.core;
        let request = core.admit(tokens.to_vec(), 0, ()).unwrap();
        for group in 0..self.plan.program.groups.len() {
            for _ in 0..tokens.len().div_ceil(PAGE) {
                core.take_page(request, group).unwrap();
            }
        }
        let mut position = 0;
        while position < tokens.len() {
            let rows = self.chunk.min(tokens.len() - position);
            core.plan_begin().unwrap();
            core.plan_rows(request, rows, &[], Select::All).unwrap();
            core.run().unwrap();
            assert_eq!(core.plan().selected().len(), rows);
            for row in 0..rows {
                see(position + row, core.device().logits(row));
            }
            core.commit().unwrap();
            position += rows;
        }
        core.finish(request).unwrap();
    }
}
