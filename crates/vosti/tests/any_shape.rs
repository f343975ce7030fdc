//! Models of shapes that are on no list run from the binary, and give the same bits whatever else happens.
//!
//! Shapes are drawn to be awkward: heads that fill no tile, groups of every size, widths that nothing divides, odd
//! vocabularies. Weights are random. Two relations of `vosti check` are tried, or those that `VOSTI_RELATIONS` names, as
//! `--only` does.
//!
//! Their logits are those of an evaluator in NumPy that reads the kernels' texts and shares no code with the engine: of
//! each family's smallest model, or of all twelve with `VOSTI_SHAPES=all`.

#[path = "common/bytes.rs"]
mod bytes;
#[path = "common/launches.rs"]
mod launches;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use vosti::deployment::{DeployOptions, Deployment, DeviceConfig};
use vosti::model_source::ModelSource;

use launches::Limits;

/// A model's dimensions.
struct Shape {
    family: &'static str,
    hidden: usize,
    kv_heads: usize,
    group: usize,
    head: usize,
    intermediate: usize,
    vocab: usize,
}

#[rustfmt::skip]
const SHAPES: [Shape; 12] = [
    Shape { family: "llama", hidden: 330, kv_heads: 5, group: 1, head: 72, intermediate: 866, vocab: 257 },
    Shape { family: "llama", hidden: 478, kv_heads: 2, group: 3, head: 40, intermediate: 1_297, vocab: 1_021 },
    Shape { family: "llama", hidden: 1_040, kv_heads: 1, group: 7, head: 112, intermediate: 2_000, vocab: 4_099 },
    Shape { family: "llama", hidden: 5_120, kv_heads: 1, group: 2, head: 128, intermediate: 336, vocab: 1_009 },
    Shape { family: "qwen2", hidden: 896, kv_heads: 1, group: 8, head: 96, intermediate: 1_200, vocab: 5_003 },
    Shape { family: "qwen2", hidden: 405, kv_heads: 3, group: 5, head: 48, intermediate: 1_102, vocab: 511 },
    Shape { family: "qwen2", hidden: 672, kv_heads: 2, group: 6, head: 112, intermediate: 528, vocab: 777 },
    Shape { family: "qwen3", hidden: 1_600, kv_heads: 1, group: 3, head: 192, intermediate: 464, vocab: 313 },
    Shape { family: "qwen3", hidden: 352, kv_heads: 3, group: 2, head: 80, intermediate: 912, vocab: 2_311 },
    Shape { family: "qwen3", hidden: 2_570, kv_heads: 2, group: 1, head: 250, intermediate: 683, vocab: 601 },
    Shape { family: "phi3", hidden: 576, kv_heads: 6, group: 1, head: 160, intermediate: 1_568, vocab: 1_543 },
    Shape { family: "phi3", hidden: 1_121, kv_heads: 2, group: 5, head: 6, intermediate: 75, vocab: 9_001 },
];

const LAYERS: usize = 2;

impl Shape {
    fn name(&self) -> String {
        let Shape { family, hidden, kv_heads, group, head, .. } = self;
        format!("{family}, hidden {hidden}, {} heads of {head} over {kv_heads}", kv_heads * group)
    }

    fn config(&self) -> Value {
        json!({
            "model_type": self.family, "vocab_size": self.vocab, "hidden_size": self.hidden,
            "intermediate_size": self.intermediate, "num_hidden_layers": LAYERS,
            "num_attention_heads": self.kv_heads * self.group, "num_key_value_heads": self.kv_heads,
            "head_dim": self.head, "max_position_embeddings": 2_048, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0,
            "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2,
        })
    }

    /// Names and shapes of the weights, as files of the family have them.
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, width) = (self.hidden, self.intermediate);
        let (q, kv) = (self.kv_heads * self.group * self.head, self.kv_heads * self.head);
        let mut list =
            vec![("embed_tokens.weight".into(), vec![self.vocab, hidden]), ("norm.weight".into(), vec![hidden])];
        for layer in 0..LAYERS {
            let mut push = |name: &str, shape: &[usize]| list.push((format!("layers.{layer}.{name}"), shape.to_vec()));
            push("input_layernorm.weight", &[hidden]);
            push("post_attention_layernorm.weight", &[hidden]);
            push("self_attn.o_proj.weight", &[hidden, q]);
            push("mlp.down_proj.weight", &[hidden, width]);
            if self.family == "phi3" {
                push("self_attn.qkv_proj.weight", &[q + 2 * kv, hidden]);
                push("mlp.gate_up_proj.weight", &[2 * width, hidden]);
                continue;
            }
            push("mlp.gate_proj.weight", &[width, hidden]);
            push("mlp.up_proj.weight", &[width, hidden]);
            for (part, rows) in [("q", q), ("k", kv), ("v", kv)] {
                push(&format!("self_attn.{part}_proj.weight"), &[rows, hidden]);
                if self.family == "qwen2" {
                    push(&format!("self_attn.{part}_proj.bias"), &[rows]);
                }
            }
            if self.family == "qwen3" {
                push("self_attn.q_norm.weight", &[self.head]);
                push("self_attn.k_norm.weight", &[self.head]);
            }
        }
        list
    }

    /// A folder as one downloads it.
    fn write(&self, folder: &Path) {
        let mut random = SplitMix64::seed_from_u64(self.vocab as u64);
        let mut values = |shape: &[usize]| -> Vec<u8> {
            let scale = if shape.len() == 1 { 0.5 } else { (shape[1] as f32).sqrt().recip() * 1.7 };
            let base = if shape.len() == 1 { 1.0 } else { 0.0 };
            let value = |_| {
                let unit = (random.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0;
                ((base + scale * unit).to_bits() >> 16) as u16
            };
            (0..shape.iter().product::<usize>()).map(value).flat_map(u16::to_le_bytes).collect()
        };
        let tensors: Vec<_> = self.tensors().into_iter().map(|(name, shape)| (name, values(&shape), shape)).collect();
        let views = tensors.iter().map(|(name, bytes, shape)| {
            (format!("model.{name}"), TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap())
        });
        std::fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
        std::fs::write(folder.join("config.json"), self.config().to_string()).unwrap();
        bytes::tokenizer(folder);
    }
}

#[test]
fn models_that_no_list_knows_give_the_same_bits_whatever_else_happens() {
    let relations = std::env::var("VOSTI_RELATIONS").unwrap_or("chunk,machine".into());
    for shape in SHAPES {
        let folder = tempfile::tempdir().unwrap();
        shape.write(folder.path());
        let run = Command::new(env!("CARGO_BIN_EXE_vosti"))
            .args(["check", "--profile", "quick", "--model", folder.path().to_str().unwrap(), "--only", &relations])
            .output()
            .unwrap();
        let told = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{}: {told}", shape.name());
        println!("{}: {}", shape.name(), told.lines().last().unwrap_or_default());
    }
}

#[test]
fn logits_equal_those_of_an_evaluator_in_numpy_bit_for_bit() {
    let Some(python) = vosti_test_tools::python("numpy") else { return };
    let all = std::env::var("VOSTI_SHAPES").is_ok_and(|shapes| shapes == "all");
    let smallest = |shape: &&Shape| {
        let size =
            |shape: &Shape| shape.tensors().iter().map(|(_, axes)| axes.iter().product::<usize>()).sum::<usize>();
        SHAPES.iter().all(|other| other.family != shape.family || size(other) >= size(shape))
    };
    let chosen = SHAPES.iter().filter(|shape| all || smallest(shape));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-tile/tests/numpy/whole.py");
    for shape in chosen {
        let folder = tempfile::tempdir().unwrap();
        shape.write(folder.path());
        let (options, quiet) =
            (DeployOptions { context: Some(256), ..Default::default() }, vosti_engine::progress::NoProgress);
        let deployment = Deployment::load("random", folder.path(), &options, &quiet).unwrap();
        // Small heads have short splits: this prompt reaches the second.
        let prompt = if shape.head <= 16 { 70 } else { 6 };
        let limits = Limits { rows: 80, pages: 6 };
        let asked = DeviceConfig { pages: Some(limits.pages), rows_max: limits.rows, ..Default::default() };
        let device = deployment.device(&asked).unwrap();
        let (plan, source) = (deployment.plan(), ModelSource::open(folder.path()).unwrap());
        launches::record(device, &source, plan, deployment.admitted(), prompt, &limits, folder.path());
        let run = Command::new(&python).arg(&script).arg(folder.path()).output().unwrap();
        let told = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        println!("{}: {}", shape.name(), told.trim_end());
        assert!(run.status.success(), "{}: {told}", shape.name());
    }
}
