//! Quantised weights of Hugging Face folders equal NumPy's reading of the same files, expanded and in the blocks that a device
//! keeps. `scaled/make.py` makes the folders.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use vosti_kernels::Quantised;
use vosti_model::{ModelPlan, Recipe, Target, TensorData, TensorFiles, WeightSource, Weights, families, plan};

/// Each folder, and the blocks that its matrices may be kept in.
const FOLDERS: [(&str, Option<&str>); 14] = [
    ("fp8-blocks", None),
    ("fp8-blocks-bf16", None),
    ("fp8-tensor", None),
    ("float-rows", None),
    ("float-tensor", None),
    ("float-blocks", None),
    ("int8-rows", Some("Q8_0")),
    ("int8-zeros", None),
    ("packed8-rows", Some("Q8_0")),
    ("packed4-groups", Some("Q4_0")),
    ("packed4-small", None),
    // No FP32 scale of these is an FP16 number, so the blocks that the format allows are refused when the scales are read.
    ("packed4-f32", Some("Q4_0")),
    ("packed4-zeros", Some("Q5_0")),
    ("packed8-zeros", None),
];

/// The folders, in a temporary folder that is removed on drop.
struct Made(PathBuf);

impl Made {
    fn new(name: &str) -> Option<Made> {
        let python = vosti_test_tools::python("numpy")?;
        let folder = std::env::temp_dir().join(format!("vosti-{name}-{}", std::process::id()));
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let (script, config) = (tests.join("scaled/make.py"), tests.join("tiny/llama/config.json"));
        let made = Made(folder);
        let ran = Command::new(python).args([&script, &made.0, &config]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        Some(made)
    }

    fn open(&self, name: &str) -> (ModelPlan, TensorFiles) {
        let folder = self.0.join(name);
        let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let decoder = families::from_config("config.json", &config).unwrap();
        let method = families::method("config.json", &config).unwrap();
        assert!(method.is_some());
        let files = TensorFiles::open_folder(&folder).unwrap().stored_by(method);
        (plan(&decoder, &Target::named("cpu"), None).unwrap(), files)
    }

    /// A matrix as NumPy read it.
    fn expected(&self, name: &str, tensor: &str) -> Vec<f32> {
        let bytes = std::fs::read(self.0.join(name).join("expected").join(tensor)).unwrap();
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bf16(value: f32) -> u16 {
    half::bf16::from_f32(value).to_bits()
}

/// The BF16 elements of rows in blocks of one level.
fn expanded(rows: &Quantised) -> Vec<u16> {
    let half = |bits: &u16| half::f16::from_bits(*bits).to_f32();
    let chunk = rows.format.chunk;
    let element = |i: usize| {
        let minimum = rows.minima.get(i / chunk).map_or(0.0, half);
        bf16(half(&rows.scales[i / chunk]) * rows.format.value(rows.codes[i]) - minimum)
    };
    (0..rows.codes.len()).map(element).collect()
}

#[test]
fn weights_with_scales_beside_them_are_what_numpy_reads_of_the_same_files() {
    let Some(made) = Made::new("scaled") else { return };
    for (name, format) in FOLDERS {
        let (plan, files) = made.open(name);
        let weights = Weights::new(&files, &plan);
        let (mut kept, mut matrices) = (0, 0);
        for (weight, recipe) in &plan.weights {
            let Recipe::Matrix { parts, columns, .. } = &recipe.recipe else { continue };
            let all = parts.iter().flat_map(|part| {
                let whole = made.expected(name, &part.tensor);
                let row = move |row| whole[part.stored(row) * columns..][..*columns].to_vec();
                (0..part.rows).flat_map(row).collect::<Vec<f32>>()
            });
            let want: Vec<u16> = all.map(bf16).collect();
            let TensorData::Bf16(found) = weights.load(weight).unwrap().data else { panic!("{weight} is not BF16") };
            assert!(found == want, "{name}: {weight}");
            // A few rows alone, as a device asks for them.
            let rows = parts[0].rows / 2..parts[0].rows;
            let TensorData::Bf16(some) = weights.rows(weight, rows.clone()).unwrap() else { panic!() };
            assert!(some == want[rows.start * columns..rows.end * columns], "{name}: {weight} in part");
            let mut room = Quantised::default();
            let blocks = weights.quantised(weight, 0..recipe.shape()[0], &mut room).unwrap().then_some(room);
            assert!(blocks.as_ref().is_none_or(|blocks| expanded(blocks) == want), "{name}: {weight} in blocks");
            let told = weights.format(weight, 0..recipe.shape()[0]).unwrap();
            assert_eq!(told.map(|format| format.name), format.filter(|_| weight != "embed"), "{name}: {weight}");
            (kept, matrices) = (kept + usize::from(blocks.is_some()), matrices + 1);
        }
        assert!(matrices > 9, "{name}");
        match name {
            "packed4-f32" => assert_eq!(kept, 0, "{name}"),
            _ if format.is_some() => assert_eq!(kept, matrices - 1, "{name}: all but the embedding"),
            _ => assert_eq!(kept, 0, "{name}"),
        }
    }
}

/// The message for a folder whose tensors were changed, and nothing else.
fn refused(made: &Made, name: &str, change: impl Fn(&mut Vec<u8>)) -> String {
    let file = made.0.join(name).join("model.safetensors");
    let whole = std::fs::read(&file).unwrap();
    let mut changed = whole.clone();
    change(&mut changed);
    assert!(changed != whole);
    std::fs::write(&file, changed).unwrap();
    let (plan, files) = made.open(name);
    let weights = Weights::new(&files, &plan);
    let error = plan.weights.keys().find_map(|weight| weights.load(weight).err());
    std::fs::write(&file, whole).unwrap();
    error.unwrap_or_else(|| panic!("{name} is accepted")).to_string()
}

/// Puts a text of the same length in the place of the first of another.
fn replace(bytes: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|found| found == from.as_bytes()).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
}

#[test]
fn what_is_missing_or_does_not_fit_is_told_with_the_tensors_name() {
    let Some(made) = Made::new("scaled-wrong") else { return };
    let says = |name: &str, from: &str, to: &str, what: &str| {
        let why = refused(&made, name, |bytes| replace(bytes, from, to));
        assert!(why.contains("layers.0.") && why.contains("_proj.weight") && why.contains(what), "{name}: {why}");
    };
    says("fp8-blocks", "q_proj.weight_scale_inv", "q_proj.weight_scale_not", "its weight_scale is missing");
    says("packed4-groups", "q_proj.weight_shape", "q_proj.weight_shope", "weight_shape is missing");
    says(
        "packed4-groups",
        "q_proj.weight_packed\": {\"dtype\": \"I32\"",
        "q_proj.weight_packed\": {\"dtype\": \"U32\"",
        "of 4 or 8 bits",
    );
    says(
        "int8-zeros",
        "q_proj.weight_zero_point\": {\"dtype\": \"I8\"",
        "q_proj.weight_zero_point\": {\"dtype\": \"U8\"",
        "zero points",
    );
}

#[test]
fn a_scale_that_is_no_finite_number_is_refused_by_tensor_and_block() {
    let Some(made) = Made::new("scaled-finite") else { return };
    for (name, _) in FOLDERS {
        let file = std::fs::read(made.0.join(name).join("model.safetensors")).unwrap();
        let start = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&file[8..start]).unwrap();
        let (tensor, entry) =
            header.as_object().unwrap().iter().find(|(name, _)| name.contains("weight_scale")).unwrap();
        let (dtype, first) = (entry["dtype"].as_str().unwrap(), entry["data_offsets"][0].as_u64().unwrap() as usize);
        for infinite in [true, false] {
            let nan = u8::from(!infinite);
            let bits: &[u8] = match dtype {
                "F32" => &[nan, 0, 0x80, 0x7f],
                "F16" => &[nan, 0x7c],
                _ => &[0x80 | nan, 0x7f],
            };
            let why = refused(&made, name, |bytes| bytes[start + first..][..bits.len()].copy_from_slice(bits));
            let of = tensor.strip_prefix("model.").unwrap().split("_scale").next().unwrap();
            assert!(why.contains(&format!("`{of}`: block 0 (")), "{name}: {why}");
        }
    }
}

#[test]
fn damaged_tensors_with_scales_give_errors_and_never_panic() {
    let Some(made) = Made::new("scaled-damaged") else { return };
    let mut random = SplitMix64::seed_from_u64(21);
    let (mut opened, mut refused) = (0, 0);
    for (name, _) in FOLDERS {
        let (plan, _) = made.open(name);
        let config: Value =
            serde_json::from_slice(&std::fs::read(made.0.join(name).join("config.json")).unwrap()).unwrap();
        let method = families::method("config.json", &config).unwrap();
        let file = made.0.join(name).join("model.safetensors");
        let whole = std::fs::read(&file).unwrap();
        let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
        for _ in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.next_u64() % 3 {
                let at = 8 + (random.next_u64() % (header as u64 - 8)) as usize;
                // Digits and letters of the header, so that many still parse.
                bytes[at] = match bytes[at] {
                    digit @ b'0'..=b'9' => b'0' + (digit - b'0' + 1 + (random.next_u64() % 9) as u8) % 10,
                    letter => letter ^ 1,
                };
            }
            std::fs::write(&file, bytes).unwrap();
            let Ok(files) = TensorFiles::open_folder(file.parent().unwrap()) else { continue };
            let files = files.stored_by(method);
            let weights = Weights::new(&files, &plan);
            opened += 1;
            for (name, weight) in &plan.weights {
                let _ = weights.quantised(name, 0..weight.shape()[0], &mut Quantised::default());
                refused += usize::from(weights.load(name).is_err());
            }
        }
    }
    assert!(opened > 50 && refused > 50, "{opened} opened, {refused} refused: the damage is too coarse or too fine");
}
