//! Damaged and hostile files give one error: no panic, no allocation larger than the file.

#[path = "../fuzz/targets.rs"]
mod targets;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::path::Path;

use vosti_kernels::Quantised;
use vosti_model::dequantise::GgmlType;
use vosti_model::gguf::Metadata;
use vosti_model::{ModelError, Target, TensorFiles, Tokenizer, WeightSource, Weights, families, plan};

/// A GGUF file being written.
struct Gguf(Vec<u8>);

impl Gguf {
    fn new(tensors: u64, values: u64) -> Self {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(values.to_le_bytes());
        Self(bytes)
    }

    fn string(mut self, text: &str) -> Self {
        self.0.extend((text.len() as u64).to_le_bytes());
        self.0.extend(text.as_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn tensor(self, shape: &[u64], kind: u32, offset: u64) -> Self {
        self.named("t", shape, kind, offset)
    }

    fn named(self, name: &str, shape: &[u64], kind: u32, offset: u64) -> Self {
        let mut file = self.string(name).u32(shape.len() as u32);
        for axis in shape {
            file = file.u64(*axis);
        }
        file.u32(kind).u64(offset)
    }

    fn refused(self, part: &str) {
        let error = Metadata::parse("bad.gguf", &self.0).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// Part `part` of `parts` of a model with `tensors` tensors; this one's has four elements with this value.
fn part((part, parts): (u32, u32), tensors: u32, name: &str, value: f32) -> Vec<u8> {
    let file = Gguf::new(1, 3).string("split.no").u32(4).u32(part).string("split.count").u32(4).u32(parts);
    let file = file.string("split.tensors.count").u32(4).u32(tensors).named(name, &[4], 0, 0);
    let mut bytes = file.0;
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend([value; 4].iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

#[test]
fn tensors_that_share_bytes_are_refused_by_name() {
    let file = |second: u64| {
        let mut file = Gguf::new(2, 0).named("b", &[8], 0, second).named("a", &[8], 0, 0);
        file.0.resize(file.0.len().next_multiple_of(32) + 96, 0);
        file
    };
    for second in [0, 4, 16] {
        file(second).refused("tensors `a` and `b` overlap");
    }
    assert!(Metadata::parse("good.gguf", &file(32).0).is_ok());
}

#[test]
fn a_gguf_in_parts_opens_from_any_part_and_only_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = |part: usize| folder.path().join(format!("m-{:05}-of-00003.gguf", part + 1));
    let put = |place: usize, bytes: &[u8]| std::fs::write(path(place), bytes).unwrap();
    let right = || (0..3).for_each(|i| put(i, &part((i as u32, 3), 3, &format!("t{i}"), i as f32)));
    right();
    for given in 0..3 {
        let files = TensorFiles::open_gguf(&path(given)).unwrap();
        for i in 0..3 {
            let tensor = files.tensor(&format!("t{i}")).unwrap();
            assert_eq!(tensor.bytes, [(i as f32).to_le_bytes(); 4].concat());
            files.give_back(tensor.bytes, tensor.bytes);
            assert_eq!(tensor.bytes, [(i as f32).to_le_bytes(); 4].concat());
        }
        assert_eq!(files.metadata().unwrap().file(), "m-00001-of-00003.gguf");
    }
    let refused = |given: &Path, says: &str| {
        let error = TensorFiles::open_gguf(given).map(drop).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    std::fs::remove_file(path(1)).unwrap();
    refused(&path(0), "m-00001-of-00003.gguf is part 1 of 3: m-00002-of-00003.gguf is not beside it");
    put(1, &part((2, 3), 3, "t1", 1.0));
    refused(&path(0), "m-00002-of-00003.gguf is no part of it");
    put(1, &part((1, 3), 3, "t0", 1.0));
    refused(&path(2), "m-00002-of-00003.gguf is damaged: tensor `t0` is in another part too");
    put(1, &part((1, 3), 3, "t1", 1.0)[..40]);
    refused(&path(0), "m-00002-of-00003.gguf is damaged: it counts 3 things");
    right();
    put(0, &part((0, 3), 4, "t0", 0.0));
    refused(&path(1), "`split.tensors.count` is 4, and the parts have 3 tensors");
    put(0, &part((3, 3), 3, "t0", 0.0));
    refused(&path(0), "`split.no` is 3 of 3 parts");
    right();
    let renamed = folder.path().join("renamed.gguf");
    std::fs::rename(path(2), &renamed).unwrap();
    refused(&renamed, "renamed.gguf is part 3 of 3: its name must end in -00003-of-00003.gguf");
}

#[test]
fn a_gguf_whose_sizes_lie_is_refused() {
    Gguf(b"GGML".to_vec()).refused("not a GGUF file");
    Gguf(b"GGUF\x03\0\0".to_vec()).refused("cut off");
    Gguf(b"GGUF\x01\0\0\0".to_vec()).refused("version 1");
    Gguf::new(u64::MAX, 0).refused("more than it can hold");
    Gguf::new(0, u64::MAX).refused("more than it can hold");
    Gguf::new(0, 1).u64(u64::MAX).u64(0).refused("more than it can hold");
    Gguf::new(0, 1).string("key").u32(9).u32(4).u64(1 << 60).refused("more than it can hold");
    Gguf::new(0, 1).string("key").u32(99).u64(0).refused("unknown type 99");
    Gguf::new(0, 1).string("key").u32(9).u32(9).u64(0).refused("unsupported type 9");
    Gguf::new(0, 2).string("key").u32(4).u32(1).string("key").u32(4).u32(1).refused("twice");
    Gguf::new(0, 1).string("general.alignment").u32(4).u32(0).refused("power of two");
    Gguf::new(1, 0).tensor(&[u64::MAX, u64::MAX], 0, 0).refused("overflows");
    Gguf::new(1, 0).tensor(&[1 << 40, 1 << 22], 0, 0).refused("past the end");
    Gguf::new(1, 0).tensor(&[32], 0, u64::MAX - 8).refused("past the end");
    Gguf::new(1, 0).tensor(&[33], 8, 0).refused("not whole blocks");
    Gguf::new(1, 0).tensor(&[0], 0, 0).refused("empty");
    Gguf::new(1, 0).tensor(&[1; 9], 0, 0).refused("9 axes");
    Gguf::new(1, 0).tensor(&[256], 16, 0).refused("unsupported type IQ2_XXS (GGML type 16)");
    Gguf::new(1, 0).tensor(&[256], 99, 0).refused("tensor `t` has the unsupported type GGML type 99");
}

#[test]
fn an_unsupported_architecture_or_pretokenizer_is_named() {
    let file = Gguf::new(0, 1).string("general.architecture").u32(8).string("mamba");
    let metadata = Metadata::parse("m.gguf", &file.0).unwrap();
    let error = families::from_gguf(&metadata).unwrap_err().to_string();
    assert!(error.contains("`mamba`") && error.contains("gemma3"), "{error}");

    let file = Gguf::new(0, 4)
        .string("tokenizer.ggml.model")
        .u32(8)
        .string("gpt2")
        .string("tokenizer.ggml.pre")
        .u32(8)
        .string("viking")
        .string("tokenizer.ggml.tokens")
        .u32(9)
        .u32(8)
        .u64(1)
        .string("a")
        .string("tokenizer.ggml.token_type")
        .u32(9)
        .u32(5)
        .u64(1)
        .u32(1);
    let metadata = Metadata::parse("m.gguf", &file.0).unwrap();
    let error = Tokenizer::from_gguf(&metadata).err().unwrap().to_string();
    assert!(error.contains("`viking`") && error.contains("smollm"), "{error}");
}

#[test]
fn configurations_that_no_kernel_serves_are_refused_by_key() {
    let base = include_str!("tiny/llama/config.json");
    for (key, value) in [
        ("hidden_size", "4294967295"),
        ("hidden_size", "0"),
        ("hidden_size", "-1"),
        ("hidden_size", "1e9"),
        ("num_hidden_layers", "4294967295"),
        ("num_attention_heads", "0"),
        ("num_key_value_heads", "3"),
        ("num_key_value_heads", "0"),
        ("vocab_size", "18446744073709551615"),
        ("rms_norm_eps", "\"small\""),
        ("rope_theta", "-1"),
        ("attention_bias", "true"),
        ("hidden_act", "\"relu\""),
        ("max_position_embeddings", "0"),
        ("model_type", "\"rwkv\""),
        ("rope_scaling", "{\"rope_type\": \"yarn\"}"),
    ] {
        let mut config: serde_json::Value = serde_json::from_str(base).unwrap();
        config[key] = serde_json::from_str(value).unwrap();
        assert!(families::from_config("config.json", &config).is_err(), "{key} = {value}");
    }
}

#[test]
fn a_folder_whose_files_do_not_belong_together_is_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny");
    let files = TensorFiles::open_folder(&root.join("qwen3")).unwrap();
    let config = serde_json::from_str(include_str!("tiny/llama/config.json")).unwrap();
    let decoder = families::from_config("config.json", &config).unwrap();
    let plan = plan(&decoder, &Target::named("cpu"), None).unwrap();
    let error = Weights::new(&files, &plan).load("layers.0.qkv").unwrap_err();
    assert!(matches!(error, ModelError::TensorShape { .. }), "{error}");
}

/// Checks what is said of weights of a tiny model whose configuration has another number.
fn misfit(name: &str, (key, value): (&str, u32), messages: &[(&str, &str)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny").join(name);
    let files = TensorFiles::open_folder(&folder).unwrap();
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    config[key] = value.into();
    let decoder = families::from_config("config.json", &config).unwrap();
    let plan = plan(&decoder, &Target::named("cpu"), None).unwrap();
    for (weight, says) in messages {
        let error = Weights::new(&files, &plan).load(weight).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_router_or_experts_of_another_number_are_refused_with_their_tensor() {
    let messages = [
        ("layers.0.router", "router.layer.weight` has shape [12, 64], the configuration says [16, 64]"),
        ("layers.1.experts.gate_up", "input_linear.weight` has shape [768, 64], the configuration says [1024, 64]"),
        ("layers.2.experts.down", "output_linear.weight` has shape [768, 32], the configuration says [1024, 32]"),
    ];
    misfit("granite-moe", ("num_local_experts", 16), &messages);
}

#[test]
fn a_mixture_beside_perceptrons_and_per_layer_embeddings_of_another_size_are_refused_with_their_tensor() {
    let messages = [
        ("layers.0.experts.factor", "router.per_expert_scale` has shape [6], the configuration says [12]"),
        ("layers.0.router", "router.proj.weight` has shape [6, 64], the configuration says [12, 64]"),
        ("layers.1.experts.gate_up", "experts.gate_up_proj` has shape [384, 64], the configuration says [768, 64]"),
    ];
    misfit("gemma4-moe", ("num_experts", 12), &messages);
    let norm = [("layers.1.router_norm", "router.scale` has shape [64], the configuration says [96]")];
    misfit("gemma4-moe", ("hidden_size", 96), &norm);
    let messages = [
        ("per_layer.table", "embed_tokens_per_layer.weight` has shape [256, 80], the configuration says [256, 160]"),
        ("per_layer.model", "per_layer_model_projection.weight` has shape [80, 64], the configuration says [160, 64]"),
        ("per_layer.norm", "per_layer_projection_norm.weight` has shape [16], the configuration says [32]"),
        ("layers.3.per_layer_gate", "per_layer_input_gate.weight` has shape [16, 64], the configuration says [32, 64]"),
    ];
    misfit("gemma4-e2b", ("hidden_size_per_layer_input", 32), &messages);
}

#[test]
fn a_delta_rule_with_other_heads_is_refused_with_its_tensor() {
    let messages = [
        ("layers.0.delta_qkv", "in_proj_qkvz.weight` has shape [384, 64], the configuration says [640, 64]"),
        ("layers.0.delta_z", "in_proj_qkvz.weight` has shape [384, 64], the configuration says [640, 64]"),
        ("layers.2.delta_ba", "in_proj_ba.weight` has shape [8, 64], the configuration says [16, 64]"),
    ];
    misfit("qwen3-next", ("linear_num_value_heads", 8), &messages);
    let gate =
        [("layers.1.shared.share", "shared_expert_gate.weight` has shape [1, 64], the configuration says [1, 96]")];
    misfit("qwen3-next", ("hidden_size", 96), &gate);
}

#[test]
fn experts_behind_a_convolution_of_another_number_are_refused_with_their_tensor() {
    let messages = [
        ("layers.1.router", "feed_forward.gate.weight` has shape [8, 64], the configuration says [12, 64]"),
        ("layers.2.experts.gate_up", "feed_forward.experts.8.w1.weight` is missing"),
    ];
    misfit("lfm2-moe", ("num_experts", 12), &messages);
}

#[test]
fn layers_of_one_part_with_other_numbers_are_refused_with_their_tensor() {
    let experts = [
        ("layers.1.router", "mixer.gate.weight` has shape [10, 64], the configuration says [12, 64]"),
        ("layers.4.experts.gate_up", "mixer.experts.10.up_proj.weight` is missing"),
    ];
    misfit("nemotron3", ("n_routed_experts", 12), &experts);
    let heads = [
        ("layers.0.mamba_z", "mixer.in_proj.weight` has shape [326, 64], the configuration says [392, 64]"),
        ("layers.3.mamba_norm", "mixer.norm.weight` has shape [96], the configuration says [128]"),
    ];
    misfit("nemotron3", ("mamba_num_heads", 8), &heads);
    let units = [("layers.1.gate_up", "mixer.up_proj.weight` has shape [96, 64], the configuration says [128, 64]")];
    misfit("nemotron-h", ("intermediate_size", 128), &units);
}

/// Seeded random numbers.
struct Chance(SplitMix64);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// A copy with a few characters replaced, which often still parses.
    fn nudge(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            bytes[at] = b' ' + self.below(95) as u8;
        }
        bytes
    }

    /// A damaged copy: bytes flipped, extremes written, the end cut off, a stretch repeated.
    fn damage(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next() as u8,
                2 => {
                    let extreme = [0, 1, u64::MAX, i64::MAX as u64, 1 << 32, 1 << 61][self.below(6)].to_le_bytes();
                    let end = (at + 8).min(bytes.len());
                    bytes[at..end].copy_from_slice(&extreme[..end - at]);
                }
                3 => bytes.truncate(at),
                _ => {
                    let end = at + self.below(bytes.len() - at);
                    let copy = bytes[at..end].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
        }
        bytes
    }
}

/// A small file of every kind of value, with a vocabulary and two tensors.
fn small_gguf() -> Vec<u8> {
    let file = Gguf::new(2, 16)
        .string("general.architecture")
        .u32(8)
        .string("llama")
        .string("llama.embedding_length")
        .u32(4)
        .u32(64)
        .string("llama.attention.head_count")
        .u32(4)
        .u32(4)
        .string("llama.attention.head_count_kv")
        .u32(4)
        .u32(2)
        .string("llama.feed_forward_length")
        .u32(4)
        .u32(128)
        .string("llama.block_count")
        .u32(4)
        .u32(1)
        .string("llama.context_length")
        .u32(10)
        .u64(128)
        .string("llama.attention.layer_norm_rms_epsilon")
        .u32(6)
        .u32(1e-5f32.to_bits())
        .string("tokenizer.ggml.model")
        .u32(8)
        .string("gpt2")
        .string("tokenizer.ggml.pre")
        .u32(8)
        .string("smollm")
        .string("tokenizer.ggml.tokens")
        .u32(9)
        .u32(8)
        .u64(4)
        .string("a")
        .string("b")
        .string("ab")
        .string("<e>")
        .string("tokenizer.ggml.token_type")
        .u32(9)
        .u32(5)
        .u64(4)
        .u32(1)
        .u32(1)
        .u32(1)
        .u32(3)
        .string("tokenizer.ggml.merges")
        .u32(9)
        .u32(8)
        .u64(1)
        .string("a b")
        .string("tokenizer.ggml.eos_token_id")
        .u32(4)
        .u32(3)
        .string("tokenizer.ggml.scores")
        .u32(9)
        .u32(6)
        .u64(4)
        .u32(0)
        .u32(0)
        .u32(0)
        .u32(0)
        .string("general.alignment")
        .u32(4)
        .u32(32)
        .string("token_embd.weight")
        .u32(2)
        .u64(64)
        .u64(4)
        .u32(8)
        .u64(0)
        .string("output_norm.weight")
        .u32(1)
        .u64(64)
        .u32(0)
        .u64(288);
    let mut bytes = file.0;
    bytes.resize(bytes.len().next_multiple_of(32) + 288 + 256, 7);
    bytes
}

#[test]
fn ten_thousand_damaged_ggufs_give_errors_and_never_panic() {
    let seed = small_gguf();
    let whole = Metadata::parse("s.gguf", &seed).unwrap();
    families::from_gguf(&whole).unwrap();
    Tokenizer::from_gguf(&whole).unwrap();
    let mut chance = Chance::new(1);
    let mut parsed = 0;
    for _ in 0..10_000 {
        parsed += usize::from(targets::gguf(&chance.damage(&seed)));
    }
    assert!(parsed > 100, "only {parsed} got past the header: the damage is too coarse to test what follows");
}

#[test]
fn random_blocks_of_every_type_expand_or_are_refused_and_never_panic() {
    let mut chance = Chance::new(5);
    let mut expanded = 0;
    for code in 0..64 {
        for _ in 0..50 {
            let bytes: Vec<u8> = (0..chance.below(600)).map(|_| chance.next() as u8).collect();
            expanded += usize::from(targets::blocks(code, &bytes));
        }
    }
    assert!(expanded > 300, "{expanded} expanded");
}

/// A file with a matrix of three rows and a norm, 256 columns each, in blocks of a type.
fn blocks_gguf(kind: GgmlType, code: u32, block: &[u8]) -> Vec<u8> {
    let row = 256 / kind.block_elements() * kind.block_bytes();
    let mut file = Gguf::new(2, 8).string("general.architecture").u32(8).string("llama");
    for (name, value) in [
        ("embedding_length", 256),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("feed_forward_length", 128),
        ("block_count", 1),
        ("context_length", 128),
    ] {
        file = file.string(&format!("llama.{name}")).u32(4).u32(value);
    }
    file = file.string("llama.attention.layer_norm_rms_epsilon").u32(6).u32(1e-5f32.to_bits());
    let norm = (3 * row as u64).next_multiple_of(32);
    file = file.string("token_embd.weight").u32(2).u64(256).u64(3).u32(code).u64(0);
    let mut bytes = file.string("output_norm.weight").u32(1).u64(256).u32(code).u64(norm).0;
    let data = bytes.len().next_multiple_of(32);
    bytes.resize(data, 0);
    bytes.extend(block.iter().cycle().take(3 * row));
    bytes.resize(data + norm as usize, 0);
    bytes.extend(block.iter().cycle().take(row));
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes
}

#[test]
fn a_scale_that_is_no_finite_number_is_refused_by_tensor_and_block_on_every_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let mut types = 0;
    for (kind, code) in (0..64).filter_map(|code| Some((GgmlType::from_code(code)?, code))) {
        let per_row = 256 / kind.block_elements();
        let Some(format) = kind.format() else { continue };
        types += 1;
        // The offsets of a block's FP16 numbers, and bytes that make one infinite or NaN; MXFP4 has a power of two instead.
        let halves: &[usize] = match kind.name() {
            "Q4_1" | "Q5_1" | "Q4_K" | "Q5_K" => &[0, 2],
            "Q2_K" => &[80, 82],
            "Q3_K" => &[108],
            "Q6_K" => &[208],
            _ => &[0],
        };
        let wrong: Vec<(usize, Vec<u8>)> = match kind.name() {
            "MXFP4" => vec![(0, vec![253]), (0, vec![255])],
            _ => halves.iter().flat_map(|at| [(*at, vec![0, 0x7c]), (*at, vec![1, 0xfe])]).collect(),
        };
        let block: Vec<u8> =
            (0..kind.block_bytes()).map(|i| if kind.name() == "MXFP4" { 120 } else { i as u8 % 64 }).collect();
        let whole = blocks_gguf(kind, code, &block);
        let row = per_row * kind.block_bytes();
        let norm = whole.len() - row.next_multiple_of(32);
        let start = norm - (3 * row).next_multiple_of(32);
        let outcome = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let files = TensorFiles::open_gguf(&path).unwrap();
            let decoder = families::from_gguf(files.metadata().unwrap()).unwrap();
            let plan = plan(&decoder, &Target::named("cpu"), None).unwrap();
            let weights = Weights::new(&files, &plan);
            let expanded = weights.rows("embed", 1..3).map(drop);
            let mut room = Quantised::default();
            let kept = weights.quantised("embed", 1..3, &mut room).map(|blocks| !blocks || room.format == format);
            (expanded.err(), kept.map(|right| assert!(right)).err(), weights.load("final_norm").map(drop).err())
        };
        assert!(matches!(outcome(&whole), (None, None, None)), "{kind:?}: the file is right");
        for (at, bits) in &wrong {
            let mut bytes = whole.clone();
            let bad = per_row + per_row / 2;
            bytes[start + bad * kind.block_bytes() + at..][..bits.len()].copy_from_slice(bits);
            let named = |error: Option<ModelError>, of: &str, block: usize| {
                let error = error.expect("refused").to_string();
                assert!(error.contains(&format!("`{of}`: block {block} ({})", kind.name())), "{error}");
            };
            let (expanded, kept, vector) = outcome(&bytes);
            named(expanded, "token_embd.weight", bad);
            named(kept, "token_embd.weight", bad);
            assert!(vector.is_none());
            let mut bytes = whole.clone();
            bytes[norm + at..][..bits.len()].copy_from_slice(bits);
            let (expanded, kept, vector) = outcome(&bytes);
            assert!(expanded.is_none() && kept.is_none());
            named(vector, "output_norm.weight", 0);
        }
    }
    assert_eq!(types, 13);
}

#[test]
fn two_thousand_damaged_vocabularies_give_errors_and_never_panic() {
    let seed = include_bytes!("text/tiny-gemma4.gguf");
    let mut chance = Chance::new(4);
    let mut encoded = 0;
    for _ in 0..2_000 {
        let Ok(metadata) = Metadata::parse("v.gguf", &chance.damage(seed)) else { continue };
        let Ok(tokenizer) = Tokenizer::from_gguf(&metadata) else { continue };
        let tokens = tokenizer.encode("Hello, the world\n\n\u{1F9E9}<|turn>", true);
        encoded += usize::from(tokens.is_ok_and(|tokens| !tokenizer.decode(&tokens).is_empty()));
    }
    assert!(encoded > 50, "only {encoded} still encode: the damage is too coarse");
}

#[test]
fn a_thousand_damaged_folders_give_errors_and_never_panic() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/llama");
    let config = std::fs::read(root.join("config.json")).unwrap();
    let tensors = std::fs::read(root.join("model.safetensors")).unwrap();
    let folder = std::env::temp_dir().join(format!("vosti-damaged-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut chance = Chance::new(2);
    let (mut plans, mut files) = (0, 0);
    for _ in 0..1_000 {
        plans += usize::from(targets::config(&chance.nudge(&config)));
        targets::config(&chance.damage(&config));
        let mut head = chance.damage(&tensors[..4096]);
        if chance.below(2) == 0 {
            head.extend(&tensors[4096..]);
        }
        files += usize::from(targets::safetensors(&head, &folder, "model.layers.0.mlp.up_proj.weight"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(plans > 5 && files > 5, "{plans} plans, {files} files: the damage is too coarse");
}

#[test]
fn a_thousand_damaged_tokenizers_and_templates_give_errors_and_never_panic() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/text");
    let tokenizer = std::fs::read(root.join("tiny-tokenizer/tokenizer.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(root.join("chat.json")).unwrap()).unwrap();
    let templates: Vec<&str> = golden["templates"].as_object().unwrap().values().filter_map(|t| t.as_str()).collect();
    let mut chance = Chance::new(3);
    let (mut tokenizers, mut rendered) = (0, 0);
    for i in 0..1_000 {
        let json = if i % 2 == 0 { chance.nudge(&tokenizer) } else { chance.damage(&tokenizer) };
        tokenizers += usize::from(targets::tokenizer(&json));
        let source = String::from_utf8_lossy(&chance.damage(templates[i % templates.len()].as_bytes())).into_owned();
        rendered += usize::from(targets::chat(source));
    }
    assert!(tokenizers > 5 && rendered > 50, "{tokenizers} tokenizers, {rendered} templates: the damage is too coarse");
}
