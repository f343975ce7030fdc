//! Values of models with Mamba 2 layers.

use serde_json::Value;

use super::Writer;

/// What a model of Mamba 2 layers alone has.
pub(super) fn mamba2(w: &mut Writer, config: &Value) {
    let int = |key: &str| config[key].as_u64().unwrap();
    w.int("mamba2.context_length", 1 << 20);
    w.int("mamba2.attention.head_count", 0);
    w.int("mamba2.feed_forward_length", 0);
    w.float("mamba2.attention.layer_norm_rms_epsilon", config["layer_norm_epsilon"].as_f64().unwrap());
    let names = ["conv_kernel", "state_size", "n_groups", "num_heads", "head_dim"];
    sizes(w, names.map(int), &|name| format!("mamba2.{name}"));
}

/// What Granite 4 and Falcon H1 call the sizes of a Mamba 2 layer.
pub(super) const NAMES: [&str; 5] =
    ["mamba_d_conv", "mamba_d_state", "mamba_n_groups", "mamba_n_heads", "mamba_d_head"];

/// Multiplies a tensor of Falcon H1 by its factors, as llama.cpp's converter does.
pub(super) fn scale(name: &str, values: &mut [f32], shape: &[usize], config: &Value) {
    let of = |key: &str| config[key].as_f64().unwrap_or(1.0) as f32;
    let each = |key: &str, i: usize| config[key][i].as_f64().unwrap() as f32;
    let part = name.trim_end_matches(".weight").rsplit_once('.').map_or(name, |(_, part)| part);
    let factors = match part {
        "down_proj" => [each("mlp_multipliers", 1), 1.0],
        "gate_proj" => [each("mlp_multipliers", 0), 1.0],
        "k_proj" => [of("key_multiplier"), of("attention_in_multiplier")],
        "q_proj" | "v_proj" => [of("attention_in_multiplier"), 1.0],
        "o_proj" => [of("attention_out_multiplier"), 1.0],
        "out_proj" => [of("ssm_out_multiplier"), 1.0],
        "in_proj" => [of("ssm_in_multiplier"), 1.0],
        "lm_head" => [of("lm_head_multiplier"), 1.0],
        "embed_tokens" => [of("embedding_multiplier"), 1.0],
        _ => [1.0, 1.0],
    };
    values.iter_mut().for_each(|value| *value = *value * factors[0] * factors[1]);
    if part == "in_proj" {
        let int = |key: &str| config[key].as_u64().unwrap() as usize;
        let (inner, keys) = (int("mamba_d_ssm"), int("mamba_n_groups") * int("mamba_d_state"));
        let parts = [inner, inner, keys, keys, int("mamba_n_heads")];
        let factor = parts.into_iter().enumerate().flat_map(|(i, rows)| vec![each("ssm_multipliers", i); rows]);
        for (row, factor) in values.chunks_mut(shape[1]).zip(factor) {
            row.iter_mut().for_each(|value| *value *= factor);
        }
    }
}

/// The sizes of a Mamba 2 layer.
pub(super) fn sizes(w: &mut Writer, [taps, state, groups, heads, size]: [u64; 5], key: &dyn Fn(&str) -> String) {
    w.int(&key("ssm.conv_kernel"), taps);
    w.int(&key("ssm.state_size"), state);
    w.int(&key("ssm.group_count"), groups);
    w.int(&key("ssm.time_step_rank"), heads);
    w.int(&key("ssm.inner_size"), heads * size);
}

/// What Nemotron H has, whose layers have one part each.
pub(super) fn nemotron(w: &mut Writer, config: &Value, key: &dyn Fn(&str) -> String) {
    let int = |key: &str| config[key].as_u64().unwrap();
    w.int(&key("context_length"), int("max_position_embeddings"));
    w.float(&key("attention.layer_norm_rms_epsilon"), config["layer_norm_epsilon"].as_f64().unwrap());
    w.int(&key("attention.head_count"), int("num_attention_heads"));
    w.int(&key("attention.key_length"), int("head_dim"));
    let pattern = config["hybrid_override_pattern"].as_str().unwrap();
    let width = config["moe_intermediate_size"].as_u64().unwrap_or(int("intermediate_size"));
    let each = |parts: &str, value: u64| -> Vec<u8> {
        pattern.chars().flat_map(|part| if parts.contains(part) { value as u32 } else { 0 }.to_le_bytes()).collect()
    };
    w.list(&key("attention.head_count_kv"), 4, pattern.len(), &each("*", int("num_key_value_heads")));
    w.list(&key("feed_forward_length"), 4, pattern.len(), &each("-E", width));
    let names = ["conv_kernel", "ssm_state_size", "n_groups", "mamba_num_heads", "mamba_head_dim"];
    sizes(w, names.map(int), key);
    if let Some(count) = config["n_routed_experts"].as_u64() {
        w.int(&key("expert_count"), count);
        w.int(&key("expert_used_count"), int("num_experts_per_tok"));
        w.int(&key("expert_feed_forward_length"), width);
        w.int(&key("expert_shared_feed_forward_length"), int("moe_shared_expert_intermediate_size"));
        w.value(&key("expert_weights_norm"), 7, &[1]);
        w.float(&key("expert_weights_scale"), config["routed_scaling_factor"].as_f64().unwrap());
        w.int(&key("expert_group_count"), int("n_group"));
        if let Some(size) = config["moe_latent_size"].as_u64() {
            w.int(&key("moe_latent_size"), size);
        }
    }
}
