//! A model reads the same from GGUF and from safetensors: each tiny model, written as a GGUF file, gives the same program, the same
//! bindings and the same weights.

#[path = "common/gguf.rs"]
mod gguf;

use std::path::Path;

use serde_json::{Value, json};
use vosti_contract::Dtype;
use vosti_model::{Model, ModelPlan, Target, Tensor, TensorData, TensorFiles, WeightSource, Weights, families, plan};

fn assert_close(name: &str, a: Tensor, b: Tensor) {
    assert_eq!(a.shape, b.shape, "{name}");
    let (TensorData::F32(x), TensorData::F32(y)) = (&a.data, &b.data) else { panic!("{name} is not FP32") };
    if !name.starts_with("rope.") {
        assert!(x == y, "{name} differs");
    }
    // Divisors are stored in f32, so an angle has a relative error of about 2^-23. NaN is not near anything.
    let near = |(u, v): &(&f32, &f32)| (*u - *v).abs() < 1e-4;
    let far = x.iter().zip(y).find(|pair| !near(pair));
    assert_eq!(far, None, "{name}");
}

/// A tiny model's GGUF file of this configuration. `test` is unlike that of any other file of the model.
fn stored(name: &str, test: &str, config: &Value) -> TensorFiles {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny").join(name);
    let path = std::env::temp_dir().join(format!("vosti-{name}-{test}-{}.gguf", std::process::id()));
    std::fs::write(&path, gguf::write(&folder, config, false)).unwrap();
    let stored = TensorFiles::open_gguf(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    stored
}

/// A tiny model's GGUF file of this configuration, and the equal plans of the file and of the configuration.
fn both(name: &str, config: &Value) -> (TensorFiles, ModelPlan, ModelPlan) {
    let stored = stored(name, config["layer_types"][0].as_str().unwrap_or_default(), config);
    let target = Target::named("cpu").with_act(Dtype::F32);
    let theirs = plan(&families::from_gguf(stored.metadata().unwrap()).unwrap(), &target, None).unwrap();
    let ours = plan(&families::from_config("config.json", config).unwrap(), &target, None).unwrap();
    assert_eq!(theirs.program, ours.program);
    assert_eq!(theirs.bindings, ours.bindings);
    (stored, theirs, ours)
}

fn check(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny").join(name);
    let mut config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    if name == "gemma3" {
        // A GGUF file has no fields for these; llama.cpp's converter assumes them.
        config["query_pre_attn_scalar"] = config["head_dim"].clone();
        config.as_object_mut().unwrap().remove("layer_types");
    }
    if name == "falcon-h1" {
        // The converter multiplies these into matrices, and a configuration's stay factors of embeddings and logits.
        for key in ["embedding_multiplier", "lm_head_multiplier"] {
            config[key] = 1.0.into();
        }
    }
    compare(name, &config);
}

/// Compares the weights of a tiny model of this configuration.
fn compare(name: &str, config: &Value) {
    let (stored, theirs, ours) = both(name, config);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny").join(name);
    let folder = TensorFiles::open_folder(&folder).unwrap();
    let (x, y) = (Weights::new(&stored, &theirs), Weights::new(&folder, &ours));
    for name in ours.weights.keys() {
        assert_close(name, x.load(name).unwrap(), y.load(name).unwrap());
    }
}

#[test]
fn a_llama_with_scaled_rope_reads_the_same_from_both() {
    check("llama");
}

#[test]
fn a_llama_with_its_own_head_reads_the_same_from_both() {
    check("llama-untied");
}

#[test]
fn a_qwen3_reads_the_same_from_both() {
    check("qwen3");
}

#[test]
fn a_gemma3_reads_the_same_from_both() {
    check("gemma3");
}

#[test]
fn a_gemma4_with_keys_as_values_reads_the_same_from_both() {
    check("gemma4");
}

#[test]
fn a_gemma4_with_shared_caches_reads_the_same_from_both() {
    check("gemma4-shared");
}

#[test]
fn a_gemma4_with_per_layer_embeddings_reads_the_same_from_both() {
    ["gemma4-e2b", "gemma4-e4b"].into_iter().for_each(check);
}

#[test]
fn a_qwen2_reads_the_same_from_both() {
    check("qwen2");
}

#[test]
fn a_ministral3_reads_the_same_from_both() {
    check("ministral3");
}

#[test]
fn a_phi3_reads_the_same_from_both() {
    check("phi3");
}

#[test]
fn a_gemma2_reads_the_same_from_both() {
    check("gemma2");
}

#[test]
fn an_olmo2_reads_the_same_from_both() {
    check("olmo2");
}

#[test]
fn an_olmo3_reads_the_same_from_both() {
    check("olmo3");
}

#[test]
fn a_granite_reads_the_same_from_both() {
    check("granite");
}

#[test]
fn a_dense_granite4_reads_the_same_from_both() {
    check("granite4");
}

#[test]
fn a_granite4_with_mamba_layers_reads_the_same_from_both() {
    check("granite4-h");
}

#[test]
fn a_nemotron_h_reads_the_same_from_both() {
    ["nemotron-h", "nemotron-nano"].into_iter().for_each(check);
}

#[test]
fn a_nemotron3_with_experts_reads_the_same_from_both() {
    check("nemotron3");
}

#[test]
fn a_falcon_h1_whose_factors_are_in_its_matrices_reads_the_same_from_both() {
    check("falcon-h1");
}

#[test]
fn a_minimax_m2_with_norms_of_heads_of_which_half_turns_reads_the_same_from_both() {
    check("minimax-m2");
}

#[test]
fn a_mamba2_reads_the_same_from_both() {
    check("mamba2");
}

#[test]
fn a_smollm3_reads_the_same_from_both() {
    check("smollm3");
}

#[test]
fn a_qwen3_5_reads_the_same_from_both() {
    check("qwen3_5");
}

#[test]
fn an_lfm2_reads_the_same_from_both() {
    check("lfm2");
}

#[test]
fn an_lfm2_with_experts_reads_the_same_from_both() {
    check("lfm2-moe");
}

#[test]
fn an_ernie4_5_reads_the_same_from_both() {
    check("ernie4_5");
}

#[test]
fn mixtures_of_experts_read_the_same_from_both() {
    [
        "qwen3-moe",
        "olmoe",
        "mixtral",
        "granite-moe",
        "glm4-moe",
        "ling",
        "qwen3_5-moe",
        "qwen3-next",
        "granite4-moe",
        "gpt-oss",
        "gemma4-moe",
    ]
    .into_iter()
    .for_each(check);
}

#[test]
fn a_qwen3_next_of_an_older_converter_reads_the_same() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/qwen3-next/config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    config["older_converter"] = true.into();
    compare("qwen3-next", &config);
}

/// llama.cpp's architecture of Granite 3's mixtures is that of Granite 4's without Mamba layers, too.
#[test]
fn a_granite4_with_experts_and_attention_alone_has_the_same_plan_from_both() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/granite4-moe/config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    config["layer_types"] = ["attention"; 3].into();
    config["position_embedding_type"] = "rope".into();
    both("granite4-moe", &config);
}

#[test]
fn a_nemotron3_that_no_kernel_serves_is_refused_from_a_file_too() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/nemotron3/config.json");
    let config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for (key, value, says) in
        [("n_group", 3, "`n_group` is 3, which does not cut 10 experts"), ("moe_latent_size", 32, "(moe_latent_size)")]
    {
        let mut config = config.clone();
        config[key] = value.into();
        let stored = stored("nemotron3", key, &config);
        let error = families::from_gguf(stored.metadata().unwrap()).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{key}: {error}");
    }
}

/// A folder has named templates in files or in a list, a GGUF file under keys of their own.
#[test]
fn a_template_for_tools_is_read_from_each_of_its_places() {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/llama");
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(tiny.join(file), folder.path().join(file)).unwrap();
    }
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let tokenizer = json!({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}});
    write("tokenizer.json", &tokenizer.to_string());
    let sources = |path: &Path| {
        let text = Model::open(path).unwrap().text().unwrap();
        [false, true].map(|tools| text.chat().unwrap().for_tools(tools).source().to_string())
    };

    let list = json!([{"name": "tool_use", "template": "t"}, {"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]);
    write("tokenizer_config.json", &json!({"chat_template": list}).to_string());
    assert_eq!(sources(folder.path()), ["d", "t"]);
    write("tokenizer_config.json", &json!({"chat_template": [{"name": "tool_use", "template": "t"}]}).to_string());
    assert_eq!(sources(folder.path()), ["t", "t"], "there is no other");
    write("chat_template.jinja", "D");
    assert_eq!(sources(folder.path()), ["D", "t"]);
    std::fs::create_dir(folder.path().join("additional_chat_templates")).unwrap();
    write("additional_chat_templates/tool_use.jinja", "T");
    assert_eq!(sources(folder.path()), ["D", "T"]);

    let config: Value = serde_json::from_slice(&std::fs::read(tiny.join("config.json")).unwrap()).unwrap();
    let file = gguf::write(&tiny, &config, true);
    let string = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let entry = |key: &str, text: &str| [string(key), 8_u32.to_le_bytes().to_vec(), string(text)].concat();
    let keys = [entry("tokenizer.chat_template", "d"), entry("tokenizer.chat_template.tool_use", "t")].concat();
    // Magic, version and the number of tensors, then the number of keys; tensors begin at a multiple of 32 bytes.
    let (head, rest) = (&file[..16], &file[24..]);
    let count = u64::from_le_bytes(file[16..24].try_into().unwrap()) + 2;
    let more = [head, &count.to_le_bytes(), &keys, rest].concat();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, &more).unwrap();
    assert_eq!(sources(&path), ["d", "t"]);
}
