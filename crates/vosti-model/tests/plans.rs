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
                let plan = plan(&decoder, &Target::named(target).with_lists(), None).unwrap();
                plan.program.check().unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
                let bound = plan.bindings.iter().flat_map(|b| &b.launches).flat_map(|l| &l.weights);
                for (parameter, name) in bound {
                    assert_eq!(plan.weights[name].parameter, parameter, "{name}");
                }
            }
        }
    }
}

#[test]
fn layers_of_equal_window_and_shape_share_a_cache_group() {
    let text = include_str!("../configs/gemma-4-31b.json");
    let decoder = families::from_config("gemma-4-31b", &serde_json::from_str(text).unwrap()).unwrap();
    let plan = plan(&decoder, &Target::named("cpu").with_lists(), Some(4096)).unwrap();
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
    let plan = plan(decoder, &Target::named("cpu").with_lists(), context).unwrap();
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
                assert!(part.starts_with("attend-") && part.ends_with("SPLIT1024-WINDOW1-WINDOWED0"), "{part}");
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

#[test]
fn layers_that_share_a_cache_store_nothing() {
    let text = include_str!("tiny/gemma4-shared/config.json");
    let decoder = families::from_config("gemma4-shared", &serde_json::from_str(text).unwrap()).unwrap();
    let plan = plan(&decoder, &Target::named("cpu").with_act(Dtype::F32).with_lists(), None).unwrap();
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
            let plan = plan(&decoder, &Target::named("cpu").with_act(act).with_lists(), None).unwrap();
            let weights = Weights::new(&files, &plan);
            for name in plan.weights.keys() {
                let tensor = weights.load(name).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
                assert!(tensor.shape.iter().product::<usize>() > 0, "{name}");
            }
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
