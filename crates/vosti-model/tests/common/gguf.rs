//! Writes a tiny model's folder as a GGUF file by llama.cpp's conventions: interleaved Q and K rows for Llama, Gemma 3's norms stored
//! +1, rope divisors, one tensor for the matrices of all experts.

#[path = "gguf_delta.rs"]
mod delta;
#[path = "gguf_mamba.rs"]
mod mamba;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// A GGUF file being written: values, then tensors.
#[derive(Default)]
struct Writer {
    values: Vec<u8>,
    value_count: u64,
    heads: Vec<u8>,
    tensor_count: u64,
    data: Vec<u8>,
    /// Whether matrices are in Q8_0.
    blocks: bool,
}

impl Writer {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }

    fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        Self::text(&mut self.values, key);
        self.values.extend(kind.to_le_bytes());
        self.values.extend(bytes);
        self.value_count += 1;
    }

    fn string(&mut self, key: &str, text: &str) {
        let mut bytes = Vec::new();
        Self::text(&mut bytes, text);
        self.value(key, 8, &bytes);
    }

    fn int(&mut self, key: &str, value: u64) {
        self.value(key, 4, &(value as u32).to_le_bytes());
    }

    fn float(&mut self, key: &str, value: f64) {
        self.value(key, 6, &(value as f32).to_le_bytes());
    }

    fn list(&mut self, key: &str, kind: u32, count: usize, items: &[u8]) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((count as u64).to_le_bytes());
        bytes.extend(items);
        self.value(key, 9, &bytes);
    }

    /// A tensor in F32 (code 0), or a matrix in Q8_0 (code 8) where blocks are asked for and its rows are whole blocks; `shape` slowest
    /// axis first.
    fn tensor(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let whole = shape.last().is_some_and(|columns| columns.is_multiple_of(32));
        let blocks = self.blocks
            && shape.len() > 1
            && whole
            && !name.ends_with("ffn_gate_inp.weight")
            && !name.ends_with(".bias");
        Self::text(&mut self.heads, name);
        self.heads.extend((shape.len() as u32).to_le_bytes());
        for axis in shape.iter().rev() {
            self.heads.extend((*axis as u64).to_le_bytes());
        }
        self.heads.extend(if blocks { 8u32 } else { 0 }.to_le_bytes());
        self.heads.extend((self.data.len() as u64).to_le_bytes());
        match blocks {
            true => values.chunks(32).for_each(|block| self.data.extend(q8_0(block))),
            false => self.data.extend(values.iter().flat_map(|v| v.to_le_bytes())),
        }
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        self.tensor_count += 1;
    }

    fn bytes(self) -> Vec<u8> {
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend(self.tensor_count.to_le_bytes());
        out.extend(self.value_count.to_le_bytes());
        out.extend([self.values, self.heads].concat());
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(self.data);
        out
    }
}

/// A block of 32 numbers in Q8_0. Its scale is a power of two, which FP16 holds exactly.
fn q8_0(block: &[f32]) -> Vec<u8> {
    let most = block.iter().fold(0f32, |most, v| most.max(v.abs()));
    let exponent = (most / 127.0).max(1e-4).log2().ceil() as i32;
    let scale = (((exponent + 15) as u16) << 10).to_le_bytes();
    let codes = block.iter().map(|v| (v / (exponent as f32).exp2()).round() as i8 as u8);
    scale.into_iter().chain(codes).collect()
}

/// llama.cpp's name of a family.
fn architecture(config: &Value) -> &str {
    let has_mamba = config["layer_types"].as_array().is_some_and(|types| types.iter().any(|kind| kind == "mamba"));
    match config["model_type"].as_str().unwrap().trim_end_matches("_text") {
        "granitemoehybrid" if has_mamba => "granitehybrid",
        "granitemoehybrid" if mixes(config) => "granitemoe",
        "granitemoehybrid" => "granite",
        "ministral3" => "mistral3",
        "olmo3" => "olmo2",
        "qwen3_moe" => "qwen3moe",
        "glm4_moe" => "glm4moe",
        "bailing_moe" => "bailingmoe2",
        "mixtral" => "llama",
        "qwen3_5" => "qwen35",
        "qwen3_5_moe" => "qwen35moe",
        "qwen3_next" => "qwen3next",
        "gpt_oss" => "gpt-oss",
        "falcon_h1" => "falcon-h1",
        "minimax_m2" => "minimax-m2",
        "lfm2_moe" => "lfm2moe",
        "nemotron_h" if config["n_routed_experts"].is_u64() => "nemotron_h_moe",
        same => same,
    }
}

/// Whether a configuration of Granite 4 has a mixture of experts.
fn mixes(config: &Value) -> bool {
    config["num_local_experts"].as_u64().is_some_and(|count| count > 0)
}

/// The metadata that llama.cpp's converter writes for a configuration.
fn write_values(w: &mut Writer, config: &Value) {
    let kind = config["model_type"].as_str().unwrap();
    let architecture = architecture(config);
    let int = |key: &str| config[key].as_u64().unwrap();
    let key = |name: &str| format!("{architecture}.{name}");
    w.string("general.architecture", architecture);
    w.int(&key("embedding_length"), int("hidden_size"));
    w.int(&key("block_count"), int("num_hidden_layers"));
    match kind {
        "mamba2" => return mamba::mamba2(w, config),
        "nemotron_h" => return mamba::nemotron(w, config, &key),
        _ => {}
    }
    w.int(&key("context_length"), int("max_position_embeddings"));
    w.int(&key("attention.head_count"), int("num_attention_heads"));
    w.float(&key("attention.layer_norm_rms_epsilon"), config["rms_norm_eps"].as_f64().unwrap());
    if let Some(theta) = config["rope_theta"].as_f64() {
        w.float(&key("rope.freq_base"), theta);
    }
    if let Some(cap) = config["final_logit_softcapping"].as_f64() {
        w.float(&key("final_logit_softcapping"), cap);
    }
    if let Some(window) = config["sliding_window"].as_u64() {
        w.int(&key("attention.sliding_window"), window);
    }
    match architecture {
        "gemma4" => write_gemma4_values(w, config),
        "granitehybrid" => {
            write_kv_heads(w, config, "mamba", &key);
            let width = if mixes(config) { "intermediate_size" } else { "shared_intermediate_size" };
            w.int(&key("feed_forward_length"), int(width));
            w.value(&key("rope.scaling.finetuned"), 7, &[0]);
            mamba::sizes(w, mamba::NAMES.map(int), &key);
        }
        "lfm2" => {
            write_kv_heads(w, config, "conv", &key);
            // Two thirds, rounded up.
            let multiple = int("block_multiple_of");
            w.int(&key("feed_forward_length"), (int("block_ff_dim") * 2 / 3).next_multiple_of(multiple));
            w.int(&key("shortconv.l_cache"), int("conv_L_cache"));
        }
        "lfm2moe" => {
            write_kv_heads(w, config, "conv", &key);
            w.int(&key("feed_forward_length"), int("intermediate_size"));
            w.int(&key("leading_dense_block_count"), int("num_dense_layers"));
            w.int(&key("expert_gating_func"), 2);
            w.int(&key("shortconv.l_cache"), int("conv_L_cache"));
        }
        _ => {
            w.int(&key("attention.head_count_kv"), int("num_key_value_heads"));
            let shared = config["shared_intermediate_size"].as_u64().filter(|_| !mixes(config));
            let width = shared.or_else(|| config["intermediate_size"].as_u64());
            width.into_iter().for_each(|width| w.int(&key("feed_forward_length"), width));
            if let Some(d) = config["head_dim"].as_u64() {
                w.int(&key("attention.key_length"), d);
            }
            if let Some(rotary) = config["rotary_dim"].as_u64() {
                w.int(&key("rope.dimension_count"), rotary);
            }
            if kind == "falcon_h1" {
                mamba::sizes(w, mamba::NAMES.map(int), &key);
            }
        }
    }
    for (fields, name) in [
        (["num_experts", "num_local_experts"], "expert_count"),
        (["n_routed_experts"; 2], "expert_count"),
        (["n_shared_experts", "num_shared_experts"], "expert_shared_count"),
        (["n_group"; 2], "expert_group_count"),
        (["topk_group"; 2], "expert_group_used_count"),
        (["num_experts_per_tok", "top_k_experts"], "expert_used_count"),
        (["moe_intermediate_size"; 2], "expert_feed_forward_length"),
        (["shared_expert_intermediate_size", "shared_intermediate_size"], "expert_shared_feed_forward_length"),
    ] {
        let found = fields.into_iter().find_map(|field| config[field].as_u64());
        found.filter(|count| *count > 0).into_iter().for_each(|count| w.int(&key(name), count));
    }
    if config["linear_num_key_heads"].is_u64() {
        delta::write_values(w, config, &key);
    }
    if ["glm4_moe", "bailing_moe"].contains(&kind) {
        w.int(&key("expert_gating_func"), 2);
        w.value(&key("expert_weights_norm"), 7, &[1]);
        w.float(&key("expert_weights_scale"), config["routed_scaling_factor"].as_f64().unwrap());
        w.int(&key("rope.dimension_count"), int("head_dim") / 2);
    }
    write_scaling(w, config, &key);
    write_factors(w, config, &key);
    if architecture == "gemma3" {
        w.string(&key("rope.scaling.type"), "linear");
        w.float(&key("rope.scaling.factor"), config["rope_scaling"]["factor"].as_f64().unwrap());
    }
}

/// KV heads of each layer: none of one of this kind.
fn write_kv_heads(w: &mut Writer, config: &Value, without: &str, key: &dyn Fn(&str) -> String) {
    let types = config["layer_types"].as_array().unwrap();
    let heads = config["num_key_value_heads"].as_u64().unwrap() as u32;
    let list: Vec<u8> = types.iter().flat_map(|kind| if kind == without { 0 } else { heads }.to_le_bytes()).collect();
    w.list(&key("attention.head_count_kv"), 4, types.len(), &list);
}

/// A vocabulary of single bytes.
fn write_vocabulary(w: &mut Writer) {
    // How byte-level vocabularies write bytes: as themselves where they print, else from U+0100 on.
    let prints = |b: u32| (0x21..0x7f).contains(&b) || (0xa1..0xad).contains(&b) || (0xae..0x100).contains(&b);
    let letter = |b: u32| if prints(b) { b } else { 256 + (0..b).filter(|b| !prints(*b)).count() as u32 };
    let mut tokens = Vec::new();
    (0..256).for_each(|b| Writer::text(&mut tokens, &char::from_u32(letter(b)).unwrap().to_string()));
    w.string("tokenizer.ggml.model", "gpt2");
    w.string("tokenizer.ggml.pre", "gpt-2");
    w.list("tokenizer.ggml.tokens", 8, 256, &tokens);
    w.list("tokenizer.ggml.token_type", 5, 256, &[1, 0, 0, 0].repeat(256));
    w.list("tokenizer.ggml.merges", 8, 0, &[]);
}

/// YaRN, longrope and how much of a head rotates.
fn write_scaling(w: &mut Writer, config: &Value, key: &dyn Fn(&str) -> String) {
    let parameters = [&config["rope_parameters"], &config["rope_scaling"]].into_iter().find(|p| p.is_object());
    let Some(parameters) = parameters else { return };
    if let Some(theta) = parameters["rope_theta"].as_f64().filter(|_| config["rope_theta"].is_null()) {
        w.float(&key("rope.freq_base"), theta);
    }
    let original = parameters["original_max_position_embeddings"].as_u64();
    let original = original.or(config["original_max_position_embeddings"].as_u64());
    match parameters["rope_type"].as_str().or(parameters["type"].as_str()) {
        Some("yarn") => {
            w.string(&key("rope.scaling.type"), "yarn");
            w.float(&key("rope.scaling.factor"), parameters["factor"].as_f64().unwrap());
            w.int(&key("rope.scaling.original_context_length"), original.unwrap());
            for (field, name) in
                [("beta_fast", "rope.scaling.yarn_beta_fast"), ("beta_slow", "rope.scaling.yarn_beta_slow")]
            {
                if let Some(value) = parameters[field].as_f64() {
                    w.float(&key(name), value);
                }
            }
        }
        Some("longrope") => {
            w.int(&key("rope.scaling.original_context_length"), original.unwrap());
            let (context, original) = (config["max_position_embeddings"].as_f64().unwrap(), original.unwrap() as f64);
            w.float(&key("rope.scaling.attn_factor"), (1.0 + (context / original).ln() / original.ln()).sqrt());
            let d = config["hidden_size"].as_u64().unwrap() / config["num_attention_heads"].as_u64().unwrap();
            let share = config["partial_rotary_factor"].as_f64().unwrap();
            w.int(&key("rope.dimension_count"), (d as f64 * share) as u64);
            for (name, field) in [("short", "short_factor"), ("long", "long_factor")] {
                let list: Vec<f32> =
                    parameters[field].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
                w.tensor(&format!("rope_factors_{name}.weight"), &[list.len()], &list);
            }
        }
        _ => {}
    }
    if let Some(beta) = parameters["llama_4_scaling_beta"].as_f64() {
        w.float(&key("rope.scaling.yarn_log_multiplier"), parameters["mscale_all_dim"].as_f64().unwrap());
        w.float(&key("attention.temperature_scale"), beta);
    }
}

/// Granite's multipliers, Gemma 2's cap of scores, OLMo 3's windows. Falcon's multipliers are in its matrices.
fn write_factors(w: &mut Writer, config: &Value, key: &dyn Fn(&str) -> String) {
    if config["model_type"] == "falcon_h1" {
        return;
    }
    for (field, name) in [
        ("embedding_multiplier", "embedding_scale"),
        ("attention_multiplier", "attention.scale"),
        ("residual_multiplier", "residual_scale"),
        ("logits_scaling", "logit_scale"),
        ("attn_logit_softcapping", "attn_logit_softcapping"),
    ] {
        if let Some(value) = config[field].as_f64() {
            w.float(&key(name), value);
        }
    }
    if config["model_type"] == "olmo3" {
        let flags = config["layer_types"].as_array().unwrap().iter().map(|t| u8::from(t == "sliding_attention"));
        let flags: Vec<u8> = flags.collect();
        w.list(&key("attention.sliding_window_pattern"), 7, flags.len(), &flags);
    }
}

fn write_gemma4_values(w: &mut Writer, config: &Value) {
    let int = |key: &str| config[key].as_u64().unwrap();
    let types: Vec<bool> = config["layer_types"].as_array().unwrap().iter().map(|t| t == "sliding_attention").collect();
    let shared = config["num_kv_shared_layers"].as_u64().unwrap_or(0);
    let kv = |sliding: bool| match config["num_global_key_value_heads"].as_u64() {
        Some(n) if !sliding => n,
        _ => int("num_key_value_heads"),
    };
    let heads: Vec<u8> = types.iter().flat_map(|s| (kv(*s) as u32).to_le_bytes()).collect();
    let wide = |i: usize| if (types.len() - i) as u64 <= shared { 2 } else { 1 };
    let widths: Vec<u8> =
        (0..types.len()).flat_map(|i| (int("intermediate_size") as u32 * wide(i)).to_le_bytes()).collect();
    let flags: Vec<u8> = types.iter().map(|s| u8::from(*s)).collect();
    w.list("gemma4.attention.head_count_kv", 4, types.len(), &heads);
    w.list("gemma4.feed_forward_length", 4, types.len(), &widths);
    w.list("gemma4.attention.sliding_window_pattern", 7, types.len(), &flags);
    w.int("gemma4.attention.key_length", int("global_head_dim"));
    w.int("gemma4.attention.key_length_swa", int("head_dim"));
    w.int("gemma4.attention.shared_kv_layers", shared);
    w.int("gemma4.embedding_length_per_layer_input", config["hidden_size_per_layer_input"].as_u64().unwrap_or(0));
}

/// llama.cpp's name of a tensor.
fn gguf_name(name: &str, sandwich: bool, mixes: bool) -> String {
    let name = name.strip_prefix("model.").or_else(|| name.strip_prefix("backbone.")).unwrap_or(name);
    match name {
        "embed_tokens.weight" | "embeddings.weight" | "word_embeddings.weight" => return "token_embd.weight".into(),
        "norm.weight" | "norm_f.weight" | "final_layernorm.weight" => return "output_norm.weight".into(),
        "embedding_norm.weight" => return "token_embd_norm.weight".into(),
        "lm_head.weight" => return "output.weight".into(),
        "embed_tokens_per_layer.weight" => return "per_layer_token_embd.weight".into(),
        "per_layer_model_projection.weight" => return "per_layer_model_proj.weight".into(),
        "per_layer_projection_norm.weight" => return "per_layer_proj_norm.weight".into(),
        _ => {}
    }
    let (layer, part) = name.strip_prefix("layers.").unwrap().split_once('.').unwrap();
    if part == "self_attn.o_proj.bias" {
        return format!("blk.{layer}.attn_output.bias");
    }
    if let Some(scale) = part.strip_prefix("router.").filter(|part| part.ends_with("scale")) {
        let of = if scale == "scale" { "ffn_gate_inp" } else { "ffn_down_exps" };
        return format!("blk.{layer}.{of}.scale");
    }
    if part == "mlp.router.bias" {
        return format!("blk.{layer}.ffn_gate_inp.bias");
    }
    if let Some(projection) = part.strip_suffix("_proj.bias") {
        return format!("blk.{layer}.attn_{}.bias", projection.strip_prefix("self_attn.").unwrap());
    }
    if part.ends_with("e_score_correction_bias") || part.ends_with("expert_bias") {
        return format!("blk.{layer}.exp_probs_b.bias");
    }
    let part = part.trim_end_matches(".weight").replace("mixer.", "mamba.");
    let part = match part.as_str() {
        "norm" | "input_layernorm" => "attn_norm",
        "self_attn.qkv_proj" | "attention.query_key_value" => "attn_qkv",
        "mlp.gate_up_proj" => "ffn_up",
        "shared_mlp.output_linear" if mixes => "ffn_down_shexp",
        "shared_mlp.output_linear" => "ffn_down",
        "self_attn.q_proj" | "mamba.q_proj" => "attn_q",
        "self_attn.k_proj" | "mamba.k_proj" => "attn_k",
        "self_attn.v_proj" | "mamba.v_proj" => "attn_v",
        "self_attn.o_proj" | "mamba.o_proj" | "attention.dense" => "attn_output",
        "self_attn.q_norm" | "attention.query_layernorm" => "attn_q_norm",
        "self_attn.k_norm" | "attention.key_layernorm" => "attn_k_norm",
        "post_attention_layernorm" if sandwich => "post_attention_norm",
        "post_attention_layernorm" | "pre_feedforward_layernorm" | "pre_ff_layernorm" => "ffn_norm",
        "post_feedforward_layernorm" => "post_ffw_norm",
        "pre_feedforward_layernorm_2" => "pre_ffw_norm_2",
        "post_feedforward_layernorm_1" => "post_ffw_norm_1",
        "post_feedforward_layernorm_2" => "post_ffw_norm_2",
        "router.proj" => "ffn_gate_inp",
        "experts.gate_up_proj" => "ffn_gate_up_exps",
        "experts.down_proj" => "ffn_down_exps",
        "self_attn.sinks" => "attn_sinks",
        "mlp.router" | "mlp.gate" | "mamba.gate" | "block_sparse_moe.gate" | "block_sparse_moe.router.layer" => {
            "ffn_gate_inp"
        }
        "block_sparse_moe.output_linear" | "mlp.experts.down_proj" => "ffn_down_exps",
        "mlp.gate_proj" | "feed_forward.gate_proj" => "ffn_gate",
        "mlp.up_proj" | "mamba.up_proj" | "feed_forward.up_proj" => "ffn_up",
        "mlp.down_proj" | "mamba.down_proj" | "feed_forward.down_proj" => "ffn_down",
        "mlp.shared_experts.gate_proj" | "mlp.shared_expert.gate_proj" => "ffn_gate_shexp",
        "mlp.shared_experts.up_proj" | "mlp.shared_expert.up_proj" | "mamba.shared_experts.up_proj" => "ffn_up_shexp",
        "mlp.shared_experts.down_proj" | "mlp.shared_expert.down_proj" | "mamba.shared_experts.down_proj" => {
            "ffn_down_shexp"
        }
        "mlp.shared_expert_gate" => "ffn_gate_inp_shexp",
        "layer_scalar" => "layer_output_scale",
        "per_layer_input_gate" => "inp_gate",
        "per_layer_projection" => "proj",
        "post_per_layer_input_norm" => "post_norm",
        "operator_norm" => "attn_norm",
        "ffn_norm" => "ffn_norm",
        "self_attn.q_layernorm" => "attn_q_norm",
        "self_attn.k_layernorm" => "attn_k_norm",
        "self_attn.out_proj" => "attn_output",
        "feed_forward.gate" => "ffn_gate_inp",
        "feed_forward.w1" => "ffn_gate",
        "feed_forward.w3" => "ffn_up",
        "feed_forward.w2" => "ffn_down",
        "linear_attn.A_log" => return format!("blk.{layer}.ssm_a"),
        "linear_attn.dt_bias" => return format!("blk.{layer}.ssm_dt.bias"),
        "linear_attn.in_proj_qkv" => "attn_qkv",
        "linear_attn.in_proj_z" => "attn_gate",
        "linear_attn.in_proj_a" => "ssm_alpha",
        "linear_attn.in_proj_b" => "ssm_beta",
        "linear_attn.in_proj_qkvz" => "ssm_in",
        "linear_attn.in_proj_ba" => "ssm_ba",
        "linear_attn.conv1d" => "ssm_conv1d",
        "linear_attn.norm" => "ssm_norm",
        "linear_attn.out_proj" => "ssm_out",
        "mamba.A_log" => return format!("blk.{layer}.ssm_a"),
        "mamba.D" => return format!("blk.{layer}.ssm_d"),
        "mamba.dt_bias" => return format!("blk.{layer}.ssm_dt.bias"),
        "mamba.conv1d.bias" => return format!("blk.{layer}.ssm_conv1d.bias"),
        "mamba.in_proj" => "ssm_in",
        "mamba.conv1d" => "ssm_conv1d",
        "mamba.norm" => "ssm_norm",
        "mamba.out_proj" => "ssm_out",
        "conv.in_proj" => "shortconv.in_proj",
        "conv.conv" => "shortconv.conv",
        "conv.out_proj" => "shortconv.out_proj",
        other => panic!("{other}"),
    };
    format!("blk.{layer}.{part}.weight")
}

/// A tensor of gpt-oss's experts: llama.cpp has matrices by rows, and gates and ups in tensors of their own.
fn write_alternating(w: &mut Writer, layer: &str, part: &str, (shape, values): (&[usize], &[f32])) {
    let (name, is_bias) = part.strip_suffix("_bias").map_or((part, false), |name| (name, true));
    let (count, outputs) = (shape[0], shape[shape.len() - 1]);
    let inputs = values.len() / count / outputs;
    let at = |e: usize, output: usize, input: usize| values[(e * inputs + input) * outputs + output];
    let parts: &[(&str, usize, usize)] = match name {
        "gate_up_proj" => &[("gate", 0, 2), ("up", 1, 2)],
        _ => &[("down", 0, 1)],
    };
    for (name, first, step) in parts {
        let rows = || (*first..outputs).step_by(*step);
        let own = (0..count).flat_map(|e| rows().flat_map(move |o| (0..inputs).map(move |i| at(e, o, i))));
        let own: Vec<f32> = own.collect();
        let (end, shape) = match is_bias {
            true => ("bias", vec![count, outputs / step]),
            false => ("weight", vec![count, outputs / step, inputs]),
        };
        w.tensor(&format!("blk.{layer}.ffn_{name}_exps.{end}"), &shape, &own);
    }
}

/// An expert's number, and its matrix with its axes.
type Expert = (usize, Vec<usize>, Vec<f32>);

/// Of one expert's matrix: the name of the tensor in which llama.cpp stacks those of all experts, and the expert.
fn expert_of(name: &str) -> Option<(String, usize)> {
    let layers = name.strip_prefix("model.layers.").or_else(|| name.strip_prefix("backbone.layers."))?;
    let (layer, rest) = layers.split_once('.')?;
    let places = ["mlp.experts.", "block_sparse_moe.experts.", "mixer.experts.", "feed_forward.experts."];
    let rest = places.into_iter().find_map(|place| rest.strip_prefix(place))?;
    let (expert, matrix) = rest.split_once('.')?;
    let part = match matrix {
        "gate_proj.weight" | "w1.weight" => "gate",
        "up_proj.weight" | "w3.weight" => "up",
        _ => "down",
    };
    Some((format!("blk.{layer}.ffn_{part}_exps.weight"), expert.parse().ok()?))
}

/// llama.cpp's order of a head's rows: the two halves interleaved.
fn interleave(values: &[f32], rows: usize, heads: usize) -> Vec<f32> {
    let (columns, d) = (values.len() / rows, rows / heads);
    let source = |row: usize| row / d * d + row % d % 2 * (d / 2) + row % d / 2;
    (0..rows).flat_map(|row| values[source(row) * columns..][..columns].to_vec()).collect()
}

/// The divisors that stand for a configuration's scaling of full layers, if any.
fn divisors(config: &Value) -> Option<Vec<f32>> {
    if config["model_type"] == "gemma4_text" {
        let half = config["global_head_dim"].as_u64().unwrap() as usize / 2;
        return Some((0..half).map(|i| if i < half / 4 { 1.0 } else { 1e30 }).collect());
    }
    let scaling = config["rope_scaling"].as_object().filter(|s| s.get("rope_type").is_some_and(|t| t == "llama3"))?;
    let of = |key: &str| scaling[key].as_f64().unwrap();
    let d = config["hidden_size"].as_u64().unwrap() / config["num_attention_heads"].as_u64().unwrap();
    let divisor = |i: u64| {
        let wavelength = std::f64::consts::TAU * config["rope_theta"].as_f64().unwrap().powf(2.0 * i as f64 / d as f64);
        let original = of("original_max_position_embeddings");
        let smooth = (original / wavelength - of("low_freq_factor")) / (of("high_freq_factor") - of("low_freq_factor"));
        let smooth = smooth.clamp(0.0, 1.0);
        1.0 / ((1.0 - smooth) / of("factor") + smooth)
    };
    Some((0..d / 2).map(|i| divisor(i) as f32).collect())
}

/// The bytes of a GGUF file of a tiny model's folder, its matrices in F32 or in Q8_0. A file in Q8_0 has a vocabulary, too.
pub fn write(folder: &Path, config: &Value, blocks: bool) -> Vec<u8> {
    let mut w = Writer { blocks, ..Writer::default() };
    write_values(&mut w, config);
    if blocks {
        write_vocabulary(&mut w);
    }
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let kind = config["model_type"].as_str().unwrap();
    let sandwich = kind.starts_with("gemma")
        || ["olmo2", "olmo3", "glm4_moe", "gpt_oss"].contains(&kind)
        || config["linear_num_key_heads"].is_u64();
    let interleaved =
        ["llama", "granite", "granitemoe", "granitemoehybrid", "smollm3", "ministral3", "mixtral", "nemotron_h"]
            .contains(&kind);
    let mut experts: BTreeMap<String, Vec<Expert>> = BTreeMap::new();
    for (name, view) in tensors.iter() {
        let wide = |b: &[u8]| f32::from_bits(u32::from(b[0]) << 16 | u32::from(b[1]) << 24);
        let mut values: Vec<f32> = view.data().chunks_exact(2).map(wide).collect();
        let heads = match () {
            () if name.ends_with("q_proj.weight") => config["num_attention_heads"].as_u64(),
            () if name.ends_with("k_proj.weight") => config["num_key_value_heads"].as_u64(),
            () => None,
        };
        if let Some(heads) = heads.filter(|_| interleaved) {
            values = interleave(&values, view.shape()[0], heads as usize);
        }
        if ["gemma2", "gemma3_text"].contains(&kind) && view.shape().len() == 1 {
            values.iter_mut().for_each(|v| *v += 1.0);
        }
        if config["linear_num_key_heads"].is_u64() {
            values = delta::converted(name, view.shape(), values, config);
        }
        if name.ends_with("mamba.A_log") || name.ends_with("mixer.A_log") {
            values.iter_mut().for_each(|v| *v = -libm::expf(*v));
        }
        if kind == "falcon_h1" {
            mamba::scale(name, &mut values, view.shape(), config);
        }
        if let Some((stack, expert)) = expert_of(name) {
            experts.entry(stack).or_default().push((expert, view.shape().to_vec(), values));
            continue;
        }
        if let Some((layer, part)) = name.split_once(".mlp.experts.").filter(|_| kind == "gpt_oss") {
            write_alternating(&mut w, layer.strip_prefix("model.layers.").unwrap(), part, (view.shape(), &values));
            continue;
        }
        let fused = name.strip_suffix(".block_sparse_moe.input_linear.weight");
        if let Some(layer) = fused.or_else(|| name.strip_suffix(".mlp.experts.gate_up_proj")) {
            let (e, rows, columns) = (view.shape()[0], view.shape()[1] / 2, view.shape()[2]);
            let layer = layer.strip_prefix("model.layers.").unwrap();
            for (half, name) in ["gate", "up"].iter().enumerate() {
                let own = values.chunks(rows * columns).skip(half).step_by(2).flatten().copied().collect::<Vec<_>>();
                w.tensor(&format!("blk.{layer}.ffn_{name}_exps.weight"), &[e, rows, columns], &own);
            }
            continue;
        }
        if let Some(layer) = name.strip_suffix(".shared_mlp.input_linear.weight") {
            // The converter splits gate and up.
            let (shape, layer) = ([view.shape()[0] / 2, view.shape()[1]], layer.strip_prefix("model.layers.").unwrap());
            for (name, half) in ["gate", "up"].iter().zip(values.chunks(values.len() / 2)) {
                let suffix = if mixes(config) { "_shexp" } else { "" };
                w.tensor(&format!("blk.{layer}.ffn_{name}{suffix}.weight"), &shape, half);
            }
            continue;
        }
        let fused = name.strip_suffix(".linear_attn.in_proj_qkvz.weight");
        if let Some(layer) = fused.filter(|_| config["older_converter"].is_null()) {
            delta::write_apart(&mut w, layer.strip_prefix("model.layers.").unwrap(), (view.shape(), &values), config);
            continue;
        }
        // The converter writes a matrix of one row as a vector.
        let shape = match view.shape() {
            [1, columns] => &[*columns],
            shape => shape,
        };
        w.tensor(&gguf_name(name, sandwich, mixes(config)), shape, &values);
    }
    for (name, mut own) in experts {
        own.sort_by_key(|(expert, ..)| *expert);
        let shape = [own.len(), own[0].1[0], own[0].1[1]];
        let values: Vec<f32> = own.into_iter().flat_map(|(_, _, values)| values).collect();
        w.tensor(&name, &shape, &values);
    }
    if let Some(divisors) = divisors(config) {
        w.tensor("rope_freqs.weight", &[divisors.len()], &divisors);
    }
    w.bytes()
}
