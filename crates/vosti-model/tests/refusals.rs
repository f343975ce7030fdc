//! A configuration that Vosti does not run is refused in one line that names the field: its bounds, the unsupported feature,
//! or the reason why no engine with this promise can run it. Nothing is allocated from its numbers.

use serde_json::{Value, json};
use vosti_model::families::{self, FAMILIES};

fn tiny(name: &str) -> Value {
    let path = format!("{}/tests/tiny/{name}/config.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The message for a tiny model's configuration with one key changed; a null removes it.
fn refusal(name: &str, key: &str, value: Value) -> String {
    let mut config = tiny(name);
    config[key] = value.clone();
    match families::from_config("config.json", &config) {
        Ok(_) => panic!("{name} with {key} = {value} is accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn dimensions_out_of_range_are_refused_with_their_field_and_bounds() {
    let huge = json!(1u64 << 63);
    for (key, value, bounds) in [
        ("num_attention_heads", huge.clone(), "not a whole number below 2^32"),
        ("num_attention_heads", json!(0), "not a divisor of hidden_size 64"),
        ("num_attention_heads", json!(3), "not a divisor of hidden_size 64"),
        ("num_attention_heads", json!(-4), "not a whole number below 2^32"),
        ("num_key_value_heads", json!(0), "not a number that divides 4 heads"),
        ("num_key_value_heads", json!(3), "not a number that divides 4 heads"),
        ("num_key_value_heads", huge.clone(), "not a whole number below 2^32"),
        ("num_hidden_layers", json!(0), "not between 1 and 1024"),
        ("num_hidden_layers", json!(u32::MAX), "not between 1 and 1024"),
        ("head_dim", json!(0), "not an even number between 2 and 256"),
        ("head_dim", json!(1u32 << 31), "not an even number between 2 and 256"),
        ("head_dim", json!(512), "not an even number between 2 and 256"),
        ("head_dim", json!(258), "is 258 in layer 0, not an even number between 2 and 256"),
        ("head_dim", json!(15), "not an even number between 2 and 256"),
        ("hidden_size", json!(0), "between 1 and 65536"),
        ("intermediate_size", json!(0), "between 1 and 262144"),
        ("intermediate_size", json!(u32::MAX), "between 1 and 262144"),
        ("vocab_size", json!(1), "between 2 and 524288"),
        ("vocab_size", json!(u32::MAX), "between 2 and 524288"),
        ("max_position_embeddings", json!(0), "between 1 and 4194304"),
        ("rms_norm_eps", json!(-1.0), "between 0 and 1"),
        ("rope_theta", json!(0.0), "not a positive number"),
        ("hidden_size", Value::Null, "is missing"),
    ] {
        let mut config = tiny("qwen2");
        config["head_dim"] = if key == "num_attention_heads" { Value::Null } else { json!(16) };
        config[key] = value.clone();
        let error = families::from_config("config.json", &config).unwrap_err().to_string();
        assert!(error.contains(&format!("`{key}`")) && error.contains(bounds), "{key} = {value}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let heads = refusal("llama-untied", "num_attention_heads", json!(1u32 << 31));
    assert!(heads.contains("num_attention_heads"), "{heads}");
    let mut config = tiny("qwen2");
    (config["head_dim"], config["num_attention_heads"]) = (json!(16), json!(1u32 << 31));
    let error = families::from_config("config.json", &config).unwrap_err().to_string();
    assert!(error.contains("`num_attention_heads` is 2147483648, not between 1 and 1024"), "{error}");
}

#[test]
fn factors_out_of_range_are_refused_by_their_field() {
    for (name, key, value) in [
        ("granite", "residual_multiplier", json!(0.0)),
        ("granite", "logits_scaling", json!(0.0)),
        ("granite", "embedding_multiplier", json!(-1.0)),
        ("granite", "attention_multiplier", json!(0.0)),
        ("falcon-h1", "embedding_multiplier", json!(0.0)),
        ("falcon-h1", "lm_head_multiplier", json!(0.0)),
        ("falcon-h1", "attention_in_multiplier", json!(-1.0)),
        ("falcon-h1", "attention_out_multiplier", json!(0.0)),
        ("falcon-h1", "key_multiplier", json!(1e300)),
        ("falcon-h1", "ssm_in_multiplier", json!(0.0)),
        ("falcon-h1", "ssm_out_multiplier", json!(1e-300)),
        ("falcon-h1", "ssm_multipliers", json!([1.0, 1.0, 0.0, 1.0, 1.0])),
        ("falcon-h1", "mlp_multipliers", json!([1.0, -2.0])),
        ("gemma2", "attn_logit_softcapping", json!(-1.0)),
        ("gemma2", "sliding_window", json!(0)),
        ("phi3", "partial_rotary_factor", json!(1.5)),
        ("smollm3", "no_rope_layer_interval", json!(0)),
        ("smollm3", "no_rope_layers", json!([1])),
        ("olmo3", "layer_types", json!(["full_attention"])),
        ("qwen3_5", "layer_types", json!(["linear_attention", "full_attention", "conv"])),
        ("qwen3_5", "linear_num_value_heads", json!(3)),
        ("qwen3_5", "linear_value_head_dim", json!(64)),
        ("qwen3_5", "linear_conv_kernel_dim", json!(3)),
        ("granite4-h", "mamba_n_heads", json!(7)),
        ("granite4-h", "mamba_d_head", json!(32)),
        ("granite4-h", "mamba_n_groups", json!(3)),
        ("granite4-h", "mamba_d_state", json!(48)),
        ("granite4-h", "mamba_d_conv", json!(3)),
        ("mamba2", "num_heads", json!(7)),
        ("mamba2", "head_dim", json!(32)),
        ("mamba2", "n_groups", json!(3)),
        ("mamba2", "conv_kernel", json!(3)),
        ("mamba2", "num_hidden_layers", json!(0)),
        ("mamba2", "state_size", json!(48)),
        ("nemotron-h", "mamba_num_heads", json!(2048)),
        ("falcon-h1", "mamba_n_heads", json!(7)),
        ("minimax-m2", "rotary_dim", json!(40)),
        ("falcon-h1", "mamba_n_groups", json!(5)),
        ("falcon-h1", "mamba_d_state", json!(48)),
        ("falcon-h1", "ssm_multipliers", json!([1.0, 1.0])),
        ("falcon-h1", "mlp_multipliers", json!("none")),
        ("nemotron-h", "mamba_head_dim", json!(-1)),
        ("nemotron-h", "n_groups", json!(4)),
        ("nemotron-h", "conv_kernel", json!(3)),
        ("nemotron-h", "ssm_state_size", json!(48)),
        ("nemotron-h", "layers_block_type", json!([])),
        ("nemotron-h", "layers_block_type", json!(["mlp", "mlp"])),
        ("lfm2", "layer_types", json!(["conv", "full_attention", "linear_attention"])),
        ("lfm2", "layer_types", json!(["conv"])),
        ("lfm2", "conv_L_cache", json!(5)),
        ("lfm2", "num_attention_heads", json!(7)),
        ("ministral", "layer_types", json!(["full_attention", "linear_attention", "full_attention"])),
    ] {
        let error = refusal(name, key, value);
        let field = if key == "partial_rotary_factor" { "short_factor" } else { key };
        assert!(error.contains(field) || error.contains(key), "{name}: {error}");
    }
    let short = json!({"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]});
    assert!(refusal("phi3", "rope_scaling", short).contains("`short_factor` is not 6 positive numbers"));
}

#[test]
fn a_scaling_that_depends_on_a_requests_length_is_refused_with_the_reason() {
    for name in ["qwen2", "ministral", "olmo2", "granite", "smollm3", "phi3"] {
        let error = refusal(name, "rope_scaling", json!({"rope_type": "dynamic", "factor": 2.0}));
        assert!(error.contains("`rope_type` is `dynamic`"), "{error}");
        assert!(error.contains("how long a request is") && error.contains("yarn"), "{error}");
    }
    let error = refusal("qwen2", "rope_scaling", json!({"rope_type": "spiral"}));
    assert!(error.contains("`rope_type` is `spiral`; supported are default"), "{error}");
}

#[test]
fn a_state_of_other_sizes_is_refused_with_those_that_have_kernels() {
    for (key, value, says) in [
        ("mamba_head_dim", 96, "is 32 with heads of 96 in layer 0, and there are kernels for [("),
        ("ssm_state_size", 256, "`mamba_d_state, state_size or ssm_state_size` is 256 with heads of 16 in layer 0"),
    ] {
        let error = refusal("nemotron-h", key, json!(value));
        assert!(error.contains(says) && !error.contains('\n'), "{key}: {error}");
    }
}

#[test]
fn a_feature_that_no_kernel_has_is_named_by_its_field() {
    for (name, key, value) in [
        ("olmo2", "attention_bias", json!(true)),
        ("granite", "mlp_bias", json!(true)),
        ("qwen2", "hidden_act", json!("relu")),
        ("smollm3", "use_sliding_window", json!(true)),
        ("gemma2", "use_bidirectional_attention", json!(true)),
        ("lfm2", "conv_bias", json!(true)),
        ("lfm2-moe", "conv_bias", json!(true)),
        ("lfm2-moe", "use_expert_bias", json!(false)),
        ("qwen3_5", "attn_output_gate", json!(false)),
        ("granite4", "layer_types", json!(["attention", "conv", "attention"])),
        ("granite4-h", "layer_types", json!(["mamba"])),
        ("granite4-h", "mamba_proj_bias", json!(true)),
        ("granite4-h", "mamba_conv_bias", json!(false)),
        ("granite4-h", "time_step_limit", json!([0.0, 0.1])),
        ("mamba2", "use_bias", json!(true)),
        ("mamba2", "use_conv_bias", json!(false)),
        ("mamba2", "time_step_limit", json!([0.0, 0.1])),
        ("mamba2", "hidden_act", json!("gelu")),
        ("nemotron-h", "use_bias", json!(true)),
        ("nemotron-h", "mlp_bias", json!(true)),
        ("nemotron-h", "mamba_proj_bias", json!(true)),
        ("nemotron-h", "mlp_hidden_act", json!("silu")),
        ("nemotron-h", "time_step_limit", json!([0.0, 0.1])),
        ("nemotron3", "moe_latent_size", json!(32)),
        ("falcon-h1", "projectors_bias", json!(true)),
        ("minimax-m2", "scoring_func", json!("softmax")),
        ("minimax-m2", "use_qk_norm", json!(false)),
        ("minimax-m2", "shared_intermediate_size", json!(64)),
        ("minimax-m2", "attn_type_list", json!([1, 0, 1])),
        ("falcon-h1", "mamba_rms_norm", json!(true)),
        ("falcon-h1", "attention_bias", json!(true)),
        ("granite4", "position_embedding_type", json!("alibi")),
    ] {
        let error = refusal(name, key, value);
        assert!(error.contains(key) && error.contains("vosti models --families"), "{name}: {error}");
    }
}

/// A field that must be a number and is one of Python's words is refused by name; any other field is not in the way.
#[test]
fn the_text_part_of_a_vision_model_is_read_with_pythons_words_around_it() {
    let text = tiny("qwen3_5");
    let whole = |text: &Value| {
        let text = text.to_string();
        let whole = format!(
            r#"{{"model_type": "qwen3_5", "text_config": {text}, "vision_config": {{"limit": [0.0, Infinity]}}}}"#
        );
        families::from_config("config.json", &vosti_model::json::parse(whole.as_bytes()).unwrap())
    };
    assert_eq!(whole(&text).unwrap(), families::from_config("config.json", &text).unwrap());
    let mut odd = text;
    odd["rms_norm_eps"] = json!("NaN");
    let error = whole(&odd).unwrap_err().to_string();
    assert!(error.contains("`rms_norm_eps` is \"NaN\", not a number"), "{error}");
}

#[test]
fn an_unknown_architecture_is_told_which_there_are() {
    let error = refusal("qwen2", "model_type", json!("mamba"));
    assert!(error.contains("`mamba`") && error.contains("vosti models --families"), "{error}");
    for family in &FAMILIES {
        assert!(family.model_types.iter().all(|name| error.contains(name)), "{error}");
        assert!(!family.examples.is_empty(), "{}", family.name);
    }
}

#[test]
fn mistral_without_layer_types_has_its_window_in_every_layer_unless_its_context_fits_in() {
    let mut config = tiny("ministral");
    config["model_type"] = json!("mistral");
    config.as_object_mut().unwrap().remove("layer_types");
    let windows = |config: &Value| -> Vec<Option<u32>> {
        families::from_config("config.json", config).unwrap().attentions().map(|attention| attention.window).collect()
    };
    assert_eq!(windows(&config), [Some(50); 3]);
    config["sliding_window"] = json!(512);
    assert_eq!(windows(&config), [None; 3]);
}

#[test]
fn qwen_2_has_its_window_from_the_layer_that_it_names() {
    let mut config = tiny("qwen2");
    (config["use_sliding_window"], config["sliding_window"], config["max_window_layers"]) =
        (json!(true), json!(50), json!(2));
    let decoder = families::from_config("config.json", &config).unwrap();
    let windows: Vec<Option<u32>> = decoder.attentions().map(|attention| attention.window).collect();
    assert_eq!(windows, [None, None, Some(50)]);
}

fn compressed(format: &str, weights: Value) -> Value {
    json!({ "quant_method": "compressed-tensors", "format": format, "config_groups": { "group_0": { "weights": weights } } })
}

#[test]
fn weights_that_a_folder_stores_by_another_method_are_refused_by_its_name() {
    for (stored, says) in [
        (json!({ "quant_method": "awq", "bits": 4 }), "weights stored by awq"),
        (json!({ "quant_method": "gptq", "bits": 4, "group_size": 128 }), "weights stored by gptq"),
        (json!({ "quant_method": "fp8", "fmt": "e5m2" }), "weights stored by fp8 in e5m2"),
        (compressed("nvfp4-pack-quantized", json!({})), "weights stored by compressed-tensors in the format nvfp4"),
        (compressed("pack-quantized", json!({ "num_bits": 3 })), "compressed-tensors of 3 bits (int)"),
        (compressed("float-quantized", json!({ "num_bits": 4, "type": "float" })), "of 4 bits (float)"),
        (compressed("pack-quantized", json!({ "num_bits": 4, "actorder": "group" })), "with actorder"),
        (json!({ "bits": 4 }), "weights stored by an unnamed method"),
        (json!({ "quant_method": "mxfp4" }), "weights stored by mxfp4"),
    ] {
        let why = refusal("llama", "quantization_config", stored);
        assert!(why.contains(says) && why.contains("quantization_config") && why.contains("GGUF"), "{why}");
    }
}

#[test]
fn per_layer_embeddings_and_shared_caches_out_of_bounds_are_refused_with_their_field() {
    let (table, own, shared) = ("vocab_size_per_layer_input", "hidden_size_per_layer_input", "num_kv_shared_layers");
    for (key, value, part) in [
        (table, json!(512), "`vocab_size_per_layer_input` is 512, and the vocabulary has 256 tokens"),
        (table, Value::Null, "`vocab_size_per_layer_input` is 262144, and the vocabulary has 256 tokens"),
        (own, json!(209_716), "`hidden_size_per_layer_input` is 209716, not between 1 and 209715"),
        (own, json!(u32::MAX), "`hidden_size_per_layer_input` is 4294967295, not between 1 and 209715"),
        (own, json!(-1), "not a whole number"),
        (shared, json!(5), "`num_kv_shared_layers` is 5 of 5 layers"),
        (shared, json!(3), "`num_kv_shared_layers` leaves a kind of layer without a cache to share"),
    ] {
        let error = refusal("gemma4-e2b", key, value);
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_mixture_that_no_kernel_serves_is_refused_with_its_field() {
    for (name, key, value, part) in [
        ("qwen3-moe", "num_experts", json!(0), "`num_experts or num_local_experts` is 0, not between 1 and 512"),
        ("mixtral", "num_local_experts", json!(513), "is 513, not between 1 and 512"),
        ("mixtral", "num_local_experts", json!(1), "`num_experts_per_tok` is 2, more than the 1 experts of a layer"),
        (
            "olmoe",
            "num_experts_per_tok",
            json!(0),
            "is 0, and there are kernels for [1, 2, 4, 6, 8, 10] experts of a row",
        ),
        ("olmoe", "num_experts_per_tok", json!(3), "is 3, and there are kernels for"),
        ("olmoe", "num_experts_per_tok", Value::Null, "is missing"),
        ("olmoe", "clip_qkv", json!(8.0), "clip_qkv"),
        ("qwen3-moe", "moe_intermediate_size", json!(0), "is 0, not between 1 and 262144"),
        ("qwen3-moe", "decoder_sparse_step", json!(0), "`decoder_sparse_step` is 0"),
        ("granite-moe", "num_local_experts", json!(-1), "not a whole number"),
        (
            "glm4-moe",
            "n_group",
            json!(4),
            "`n_group` is 4, which does not cut 10 experts into up to 64 equal groups of 2",
        ),
        ("glm4-moe", "n_group", json!(10), "`n_group` is 10, which does not cut 10 experts"),
        (
            "olmoe",
            "n_group",
            json!(2),
            "`n_group` is 2, and there are no groups for a router whose scores are a softmax",
        ),
        ("ling", "topk_group", json!(0), "`topk_group` is 0, not between 1 and the 4 groups of a layer"),
        ("ling", "topk_group", json!(5), "`topk_group` is 5, not between 1 and the 4 groups of a layer"),
        ("ling", "topk_group", json!(1), "`topk_group` is 1, and 1 groups have fewer than the 4 experts of a row"),
        ("ling", "score_function", Value::Null, "a router whose scores are no sigmoid (score_function)"),
        ("ling", "use_qk_norm", json!(false), "use_qk_norm = false"),
        ("glm4-moe", "routed_scaling_factor", json!(0.0), "`routed_scaling_factor` is 0, not a positive number"),
        ("glm4-moe", "n_shared_experts", json!(1u32 << 31), "not between 1 and 262144"),
        ("gemma4-moe", "top_k_experts", json!(8), "is 8, more than the 6 experts of a layer"),
        ("gemma4-moe", "top_k_experts", Value::Null, "`top_k_experts` is missing"),
        ("gemma4-moe", "num_experts", json!(0), "is 0, not between 1 and 512"),
        ("gpt-oss", "swiglu_limit", json!(5.0), "swiglu_limit = 5"),
        ("gpt-oss", "num_local_experts", json!(0), "is 0, not between 1 and 512"),
        ("gpt-oss", "layer_types", json!(["full_attention"]), "layer_types"),
        ("qwen3_5-moe", "shared_expert_intermediate_size", json!(0), "not between 1 and 262144"),
        ("qwen3-next", "num_experts", json!(9), "is 10, more than the 9 experts of a layer"),
        ("qwen3-next", "decoder_sparse_step", json!(0), "`decoder_sparse_step` is 0"),
        ("qwen3-next", "linear_num_value_heads", json!(5), "is 5, not a multiple of 2 key heads"),
        ("qwen3_5-moe", "moe_intermediate_size", Value::Null, "is missing"),
        ("nemotron3", "n_routed_experts", json!(1), "is 2, more than the 1 experts of a layer"),
        ("nemotron3", "num_experts_per_tok", json!(5), "is 5, and there are kernels for"),
        ("nemotron3", "mamba_n_groups", json!(1), "is an old name of `n_groups`"),
        ("nemotron3", "mamba_dt_limit", json!([0.0, 0.1]), "is an old name of `time_step_limit`"),
        ("nemotron3", "hybrid_override_pattern", json!("ME?"), "a layer of the kind `?`"),
        ("granite4-moe", "shared_intermediate_size", json!(0), "not between 1 and 262144"),
        ("granite4-moe", "num_experts_per_tok", json!(9), "is 9, and there are kernels for"),
    ] {
        let error = refusal(name, key, value);
        assert!(error.contains(part) && !error.contains('\n'), "{name}: {error}");
    }
}
