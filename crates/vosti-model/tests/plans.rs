//! Every known configuration compiles to a program that the core accepts.

use std::path::Path;

use vosti_contract::Dtype;
use vosti_kernels::Scratch;
use vosti_model::{Target, TensorFiles, WeightSource, Weights, check_kernels, families, plan};

#[test]
fn every_known_configuration_gives_a_well_formed_program() {
    for folder in ["configs", "tests/tiny"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for entry in std::fs::read_dir(root).unwrap() {
            let path = entry.unwrap().path();
            let path = if path.is_dir() { path.join("config.json") } else { path };
            if path.extension().is_none_or(|extension| extension != "json") {
                continue; // the sources
            }
            let config = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let decoder = families::from_config("config.json", &config).unwrap();
            for target in vosti_kernels::targets() {
                let plan = plan(&decoder, &Target::named(target).with_choices(), None).unwrap();
                plan.program.check().unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
                let bound = plan.bindings.iter().flat_map(|b| &b.launches).flat_map(|l| &l.weights);
                for (parameter, name) in bound {
                    assert!(plan.weights[name].is_for(parameter), "{name} for {parameter}");
                }
            }
        }
    }
}

#[test]
fn layers_of_equal_window_and_shape_share_a_cache_group() {
    let text = include_str!("../configs/gemma-4-31b.json");
    let decoder = families::from_config("gemma-4-31b", &serde_json::from_str(text).unwrap()).unwrap();
    let plan = plan(&decoder, &Target::named("cpu").with_choices(), Some(4096)).unwrap();
    let shapes: Vec<_> = plan.program.groups.iter().map(|g| (g.window, g.entry[0].heads, g.entry[0].width)).collect();
    assert_eq!(shapes, [(Some(1024), 16, 256), (None, 4, 512)]);
    assert_eq!(plan.program.layers.len(), 60);
    assert_eq!(plan.program.context, 4096);
}

#[test]
fn a_gemma4_configuration_that_transformers_saved_again_means_the_same() {
    let read = |config: &serde_json::Value| families::from_config("config.json", config);
    for text in [include_str!("../configs/gemma-4-12b.json"), include_str!("../configs/gemma-4-31b.json")] {
        let published: serde_json::Value = serde_json::from_str(text).unwrap();
        let mut saved = published.clone();
        let object = saved.as_object_mut().unwrap();
        let full = serde_json::json!({
            "head_dim": object.remove("global_head_dim").unwrap(),
            "num_key_value_heads": object.remove("num_global_key_value_heads").unwrap(),
        });
        let layers = object["num_hidden_layers"].as_u64().unwrap();
        let overrides = (5..layers).step_by(6).map(|layer| (layer.to_string(), full.clone())).collect();
        object.insert("per_layer_config".into(), serde_json::Value::Object(overrides));
        assert_eq!(read(&saved).unwrap(), read(&published).unwrap());
        for (key, value) in [("60", full.clone()), ("x", full), ("5", serde_json::json!({"intermediate_size": 1}))] {
            let mut wrong = saved.clone();
            wrong["per_layer_config"][key] = value;
            assert!(read(&wrong).is_err(), "{key}");
        }
    }
}

/// The kernels of each attention op, and the scratch between them.
fn attentions(
    decoder: &vosti_model::decoder::Decoder,
    context: Option<u32>,
) -> Vec<(Option<u32>, Vec<String>, Vec<Scratch>)> {
    let plan = plan(decoder, &Target::named("cpu").with_choices(), context).unwrap();
    let attends = plan.program.ops.iter().filter_map(|op| match op {
        vosti_core::Op::Attend { k, window, .. } => Some((*window, &plan.bindings[*k as usize])),
        _ => None,
    });
    let kernels = |b: &vosti_kernels::Binding| b.launches.iter().map(|l| l.spec.to_string()).collect();
    attends.map(|(window, binding)| (window, kernels(binding), binding.scratch.clone())).collect()
}

#[test]
fn keys_are_split_in_layers_without_a_window_whatever_the_context_is() {
    let text = include_str!("../configs/gemma-3-270m.json");
    let mut decoder = families::from_config("gemma-3-270m", &serde_json::from_str(text).unwrap()).unwrap();
    let attends = attentions(&decoder, None);
    for (window, kernels, scratch) in &attends {
        match (window, &kernels[..]) {
            (Some(512), [whole]) => assert!(whole.starts_with("attend-") && scratch.is_empty(), "{whole}"),
            (None, [part, combine]) => {
                assert!(part.starts_with("attend-") && part.ends_with("SPLIT1024-USE0-WINDOW1"), "{part}");
                assert!(combine.starts_with("attend_combine-") && combine.ends_with("SPLIT1024"), "{combine}");
                let of = |width| Scratch { keys: 1024, rows: 512, width };
                assert_eq!(*scratch, [of(4), of(4), of(4 * 256)]);
                assert_eq!([1, 1024, 1025].map(|context| scratch[0].len(context)), [2048, 2048, 4096]);
            }
            other => panic!("{other:?}"),
        }
    }
    // However long contexts are, and however much of them is served.
    assert_eq!(attentions(&decoder, Some(100)), attends);
    for context in [64, 5_000, 1 << 20] {
        decoder.context = context;
        assert_eq!(attentions(&decoder, None), attends);
    }
}

/// transformers takes null for no per-layer embeddings, and a missing number for its default.
#[test]
fn a_gemma4_without_a_width_of_per_layer_embeddings_has_transformers_own() {
    let text = include_str!("tiny/gemma4-e2b/config.json");
    let width = |own: Option<serde_json::Value>| {
        let mut config: serde_json::Value = serde_json::from_str(text).unwrap();
        config.as_object_mut().unwrap().remove("hidden_size_per_layer_input");
        own.into_iter().for_each(|own| config["hidden_size_per_layer_input"] = own);
        families::from_config("config.json", &config).unwrap().per_layer
    };
    let cases = [None, Some(0.into()), Some(serde_json::Value::Null), Some(8.into())].map(width);
    assert_eq!(cases, [Some(256), None, None, Some(8)]);
}

/// 20 of 35 layers of E2B share, so 15 store: of the others, those with a window read layer 13's cache, those without one 14's.
#[test]
fn each_layer_that_shares_a_cache_reads_that_of_the_last_layer_of_its_kind() {
    let read = |text: &str| families::from_config("config.json", &serde_json::from_str(text).unwrap()).unwrap();
    let layers = |decoder: &vosti_model::decoder::Decoder| {
        let plan = plan(decoder, &Target::named("cpu"), Some(4096)).unwrap();
        let stores = plan.program.ops.iter().filter(|op| matches!(op, vosti_core::Op::StoreKv { .. })).count();
        let of = |op: &vosti_core::Op| match op {
            vosti_core::Op::Attend { layer, .. } => Some(*layer),
            _ => None,
        };
        (stores, plan.program.ops.iter().filter_map(of).collect::<Vec<u32>>())
    };
    let e2b: Vec<u32> = (0..15).chain((15..35).map(|i| if i % 5 == 4 { 14 } else { 13 })).collect();
    assert_eq!(layers(&read(include_str!("../configs/gemma-4-e2b.json"))), (15, e2b));
    let e4b: Vec<u32> = (0..24).chain((24..42).map(|i| if i % 6 == 5 { 23 } else { 22 })).collect();
    assert_eq!(layers(&read(include_str!("../configs/gemma-4-e4b.json"))), (24, e4b));
}

/// A token's second embedding is read by its row, so no plan has a matrix of the table's size in another form.
#[test]
fn the_second_table_of_per_layer_embeddings_is_read_by_rows_alone() {
    let text = include_str!("../configs/gemma-4-e2b.json");
    let decoder = families::from_config("config.json", &serde_json::from_str(text).unwrap()).unwrap();
    let plan = plan(&decoder, &Target::named("cpu"), Some(4096)).unwrap();
    let readers = plan.bindings.iter().flat_map(|binding| &binding.launches);
    let readers = readers.filter(|launch| launch.weights.values().any(|name| name == "per_layer.table"));
    assert_eq!(readers.map(|launch| launch.spec.kernel.as_str()).collect::<Vec<_>>(), ["embed"]);
    assert_eq!(plan.weights["per_layer.table"].shape(), [262_144, 35 * 256]);
}

#[test]
fn layers_that_share_a_cache_store_nothing() {
    let text = include_str!("tiny/gemma4-shared/config.json");
    let decoder = families::from_config("gemma4-shared", &serde_json::from_str(text).unwrap()).unwrap();
    let plan = plan(&decoder, &Target::named("cpu").with_act(Dtype::F32).with_choices(), None).unwrap();
    let stores = plan.program.ops.iter().filter(|op| matches!(op, vosti_core::Op::StoreKv { .. })).count();
    let attends: Vec<u32> = plan
        .program
        .ops
        .iter()
        .filter_map(|op| match op {
            vosti_core::Op::Attend { layer, .. } => Some(*layer),
            _ => None,
        })
        .collect();
    assert_eq!((stores, attends), (2, vec![0, 1, 0, 1]));
}

#[test]
fn every_weight_of_every_tiny_model_loads_in_the_shape_its_recipe_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny");
    for entry in std::fs::read_dir(root).unwrap() {
        let folder = entry.unwrap().path();
        let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let decoder = families::from_config("config.json", &config).unwrap();
        let files = TensorFiles::open_folder(&folder).unwrap();
        for act in [Dtype::Bf16, Dtype::F32] {
            let plan = plan(&decoder, &Target::named("cpu").with_act(act).with_choices(), None).unwrap();
            let weights = Weights::new(&files, &plan);
            for name in plan.weights.keys() {
                let tensor = weights.load(name).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
                assert!(tensor.shape.iter().product::<usize>() > 0, "{name}");
            }
        }
    }
}

/// A folder with the tensors of E2B's tiny model and a few of an image encoder and of a sound's.
#[test]
fn tensors_of_images_and_sounds_are_counted_and_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/gemma4-e2b");
    let to = tempfile::tempdir().unwrap();
    let text = std::fs::read(folder.join("model.safetensors")).unwrap();
    let text = safetensors::SafeTensors::deserialize(&text).unwrap();
    let named = |name: &str| name.replacen("model.", "model.language_model.", 1);
    let mut tensors: Vec<_> = text.tensors().into_iter().map(|(name, view)| (named(&name), view)).collect();
    let norm = text.tensor("model.norm.weight").unwrap();
    let others = ["model.vision_tower.patch_embedder.input_proj.weight", "model.audio_tower.layers.0.norm_out.weight"];
    tensors.extend(others.map(|name| (name.to_string(), norm.clone())));
    std::fs::write(to.path().join("model.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    config =
        serde_json::json!({ "model_type": "gemma4", "text_config": config, "vision_config": {}, "audio_config": {} });
    std::fs::write(to.path().join("config.json"), config.to_string()).unwrap();

    let both = [to.path(), folder.as_path()].map(|folder| vosti_model::Model::open(folder).unwrap());
    assert_eq!(both.each_ref().map(|model| model.files.left_out()), [2, 0]);
    assert_eq!(both[0].decoder, both[1].decoder);
    let plan = both[0].plan(&Target::named("cpu"), None).unwrap();
    for name in plan.weights.keys() {
        assert_eq!(both[0].weights(&plan).load(name).unwrap(), both[1].weights(&plan).load(name).unwrap(), "{name}");
    }
}

/// The larger Falcon H1, whose states a GPU's plan cuts into slices, and Qwen 3 Next and Granite 4 H small, of whose experts a row
/// chooses ten.
#[test]
fn large_states_and_many_experts_have_their_kernels_built_in_on_every_target() {
    let falcon = [("mamba_d_state", 256), ("mamba_d_head", 128), ("mamba_d_ssm", 6 * 128)];
    let of = |experts| [("num_experts_per_tok", 10), (experts, 16)];
    let models: [(&str, &[(&str, u32)]); 3] =
        [("falcon-h1", &falcon), ("qwen3-next", &of("num_experts")), ("granite4-h", &of("num_local_experts"))];
    for (name, sizes) in models {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/tiny/{name}/config.json"));
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        sizes.iter().for_each(|(key, size)| config[*key] = (*size).into());
        let decoder = families::from_config("config.json", &config).unwrap();
        for target in vosti_kernels::targets() {
            let plan = plan(&decoder, &Target::named(target), None).unwrap();
            check_kernels(&plan).unwrap_or_else(|error| panic!("{name}, {target}: {error}"));
        }
    }
}

#[test]
fn every_published_model_has_its_kernels_built_in_on_every_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let mut seen = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let config = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let decoder = families::from_config("config.json", &config).unwrap();
            for target in vosti_kernels::targets() {
                let plan = plan(&decoder, &Target::named(target), None).unwrap();
                check_kernels(&plan).unwrap_or_else(|error| panic!("{}, {target}: {error}", path.display()));
            }
            seen += 1;
        }
    }
    assert!(seen >= 17);
}
