//! Experts in MXFP4, as gpt-oss is published, are the numbers of the same experts in BF16.

use std::collections::BTreeMap;
use std::path::Path;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use vosti_model::{ModelPlan, Target, TensorData, TensorFiles, WeightSource, Weights, families, plan};

/// The numbers of the eight codes without a sign.
const NUMBERS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// A tensor of a folder that is being made.
struct Stored(Dtype, Vec<usize>, Vec<u8>);

/// Random codes and exponents for matrices of `rows` by `columns`, and their numbers in BF16, each matrix by columns.
fn random(count: usize, rows: usize, columns: usize, seed: u64) -> [Stored; 3] {
    let mut random = SplitMix64::seed_from_u64(seed);
    let mut byte = || random.next_u64() as u8;
    let across = columns / 32;
    let codes: Vec<u8> = (0..count * rows * columns / 2).map(|_| byte()).collect();
    let exponents: Vec<u8> = (0..count * rows * across).map(|_| 118 + byte() % 10).collect();
    let value = |matrix: usize, row: usize, column: usize| {
        let at = (matrix * rows + row) * columns + column;
        let code = codes[at / 2] >> (4 * (at % 2)) & 15;
        let size = NUMBERS[code as usize % 8] * (f32::from(exponents[at / 32]) - 127.0).exp2();
        // Both zeros are +0, as in GGML.
        if code <= 8 { size } else { -size }
    };
    let places = (0..count).flat_map(|m| (0..columns).flat_map(move |c| (0..rows).map(move |r| (m, r, c))));
    let plain = places.flat_map(|(m, r, c)| ((value(m, r, c).to_bits() >> 16) as u16).to_le_bytes()).collect();
    [
        Stored(Dtype::U8, vec![count, rows, across, 16], codes),
        Stored(Dtype::U8, vec![count, rows, across], exponents),
        Stored(Dtype::BF16, vec![count, columns, rows], plain),
    ]
}

/// Two folders of the tiny gpt-oss with the same experts, in MXFP4 and in BF16.
fn folders(to: &Path) -> [std::path::PathBuf; 2] {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/gpt-oss");
    let bytes = std::fs::read(tiny.join("model.safetensors")).unwrap();
    let mut all: [BTreeMap<String, Stored>; 2] = Default::default();
    for (i, (name, view)) in SafeTensors::deserialize(&bytes).unwrap().iter().enumerate() {
        if !name.ends_with("experts.gate_up_proj") && !name.ends_with("experts.down_proj") {
            for folder in &mut all {
                folder.insert(name.into(), Stored(view.dtype(), view.shape().to_vec(), view.data().to_vec()));
            }
            continue;
        }
        let [count, columns, rows] = *view.shape() else { panic!("{name}") };
        let [codes, exponents, plain] = random(count, rows, columns, i as u64);
        all[0].insert(format!("{name}_blocks"), codes);
        all[0].insert(format!("{name}_scales"), exponents);
        all[1].insert(name.into(), plain);
    }
    let mut config: Value = serde_json::from_slice(&std::fs::read(tiny.join("config.json")).unwrap()).unwrap();
    let named = all.into_iter().zip(["mxfp4", "bf16"]).map(|(tensors, name)| {
        let folder = to.join(name);
        std::fs::create_dir(&folder).unwrap();
        config["quantization_config"] = if name == "mxfp4" { json!({ "quant_method": name }) } else { Value::Null };
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let views = tensors.iter().map(|(name, Stored(dtype, shape, data))| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap())
        });
        safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
        folder
    });
    named.collect::<Vec<_>>().try_into().unwrap()
}

/// A folder's plan and its tensors.
fn opened(folder: &Path) -> (ModelPlan, TensorFiles) {
    let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    let decoder = families::from_config("config.json", &config).unwrap();
    let method = families::method("config.json", &config).unwrap();
    let plan = plan(&decoder, &Target::named("cpu"), None).unwrap();
    (plan, TensorFiles::open_folder(folder).unwrap().stored_by(method))
}

/// Every weight of a folder's plan.
fn weights(folder: &Path) -> BTreeMap<String, TensorData> {
    let (plan, files) = opened(folder);
    let source = Weights::new(&files, &plan);
    plan.weights.keys().map(|name| (name.clone(), source.load(name).unwrap().data)).collect()
}

#[test]
fn experts_in_mxfp4_are_the_numbers_of_the_same_experts_in_bf16() {
    let to = tempfile::tempdir().unwrap();
    let [packed, plain] = folders(to.path());
    let (packed, plain) = (weights(&packed), weights(&plain));
    assert!(packed.keys().any(|name| name.ends_with("experts.gate_up")));
    assert_eq!(packed.keys().collect::<Vec<_>>(), plain.keys().collect::<Vec<_>>());
    packed.iter().for_each(|(name, data)| assert!(*data == plain[name], "{name}"));
}

#[test]
fn scales_that_do_not_fit_their_blocks_are_refused_with_the_tensor() {
    let to = tempfile::tempdir().unwrap();
    let [packed, _] = folders(to.path());
    let bytes = std::fs::read(packed.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let without = |missing: &str| {
        let kept = tensors.iter().filter(|(name, _)| !name.ends_with(missing));
        safetensors::serialize_to_file(kept, None, &packed.join("model.safetensors")).unwrap();
        let (plan, files) = opened(&packed);
        Weights::new(&files, &plan).load("layers.0.experts.down").unwrap_err().to_string()
    };
    let error = without("layers.0.mlp.experts.down_proj_scales");
    assert!(error.contains("layers.0.mlp.experts.down_proj") && error.contains("_scales are missing"), "{error}");
}
