//! Bundles for GPUs, prepared without one: every kernel compiled from its proved text, checked, and named by its hashes.
//! Nothing here runs on a GPU. What compiles needs Triton (`cargo xtask python`).

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use vosti_admission::Bundle;
use vosti_admission::manifest::{Manifest, Model};
use vosti_cubin::{Arch, Artifact, Cubin, Executed, Toolchain};
use vosti_kernels::{parse_stem, ttir, ttir_hash};
use vosti_model::{ModelPlan, Target};
use vosti_verify::certificate::{Probed, verifier};

const TARGET: &str = "cuda-sm90";

fn plan(name: &str) -> ModelPlan {
    let path = format!("{}/../vosti-model/configs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let config = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let decoder = vosti_model::families::from_config(name, &config).unwrap();
    vosti_model::plan(&decoder, &Target::named(TARGET).with_choices(), Some(1024)).unwrap()
}

/// A Python with the pinned Triton.
fn python() -> Option<PathBuf> {
    vosti_test_tools::python(vosti_cubin::toolchain::REQUIREMENT)
}

fn files() -> Model {
    Model { hash: "1".repeat(64), files: vec![] }
}

/// SmolLM2's kernels, compiled once for all tests; none without Triton.
fn smol() -> Option<&'static Bundle> {
    static SMOL: LazyLock<Option<Bundle>> = LazyLock::new(|| Some(compiled(python()?, &plan("smollm2-135m"))));
    SMOL.as_ref()
}

fn compiled(python: PathBuf, plan: &ModelPlan) -> Bundle {
    let specs = vosti_model::plan::specs(plan);
    let artifacts = Toolchain::with_python(python).compile_checked_in(TARGET, &specs).unwrap();
    let contract = |artifact: &Artifact| vosti_kernels::contract(&artifact.spec.kernel).unwrap();
    let cubins = artifacts.into_iter().map(|a| Cubin::of(a.clone(), contract(&a), Arch::Sm90).unwrap());
    Bundle::built_in().unwrap().with_cubins(cubins.collect())
}

fn write(bundle: &Bundle, folder: &Path, plan: &ModelPlan) -> Manifest {
    bundle.write(folder, true, files(), TARGET, plan).unwrap()
}

fn vosti(arguments: &[&str]) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_vosti")).args(arguments).output().unwrap();
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

fn tiny(place: &Path) -> String {
    let folder = place.join("model");
    std::fs::create_dir(&folder).unwrap();
    common::tiny(&folder);
    folder.to_str().unwrap().into()
}

#[test]
fn every_kernel_of_two_models_is_compiled_checked_and_bundled() {
    let (Some(python), Some(smol)) = (python(), smol()) else { return };
    let place = tempfile::tempdir().unwrap();
    let llama = compiled(python, &plan("llama-3.1-8b"));
    for (name, bundle) in [("llama-3.1-8b", &llama), ("smollm2-135m", smol)] {
        let plan = plan(name);
        let folder = place.path().join(name);
        let manifest = write(bundle, &folder, &plan);
        let read = Bundle::read(&folder).unwrap();
        read.admit(&plan).unwrap();
        read.check_origin(&files(), TARGET, &plan).unwrap();
        assert_eq!(read.cubins(), bundle.cubins());
        assert_eq!(read.cubins().len(), manifest.kernels.len());
        for kernel in &manifest.kernels {
            let kinds: Vec<&str> = kernel.files.iter().map(|file| file.kind.as_str()).collect();
            assert_eq!(kinds, ["ttir", "certificate", "cubin", "launch"]);
            // The folder holds the proved text and the machine code that was made of it, bound to the model's dimensions.
            let cubin = &read.cubins()[&kernel.specialisation];
            let (hashes, facts) = (&cubin.record.hashes, &cubin.record.facts);
            let certificate = &read.certificates()[&cubin.spec.text().to_string()];
            let bound = read.bound(&cubin.spec).unwrap();
            println!(
                "{} | {} | {} | {} | {}",
                kernel.specialisation,
                facts.registers,
                facts.shared_dynamic,
                facts.matrix_instructions,
                facts.async_copies
            );
            assert_eq!(kernel.ttir_hash, certificate.ttir_hash);
            assert_eq!(hashes.ttir, ttir_hash(&bound).to_hex().as_str());
            assert_eq!(hashes.cubin, kernel.file("cubin").unwrap().blake3);
            for assumed in &certificate.assumptions {
                let untested = assumed.probed.iter().filter(|(_, seen)| **seen == Probed::UntestedOnTarget);
                let gpus = ["cuda-sm100", "cuda-sm120", "cuda-sm80", "cuda-sm86", "cuda-sm89", "cuda-sm90"]; // no GPU has run the probes
                assert!(untested.map(|(target, _)| target.as_str()).eq(gpus), "{assumed:?}");
            }
        }
    }
}

#[test]
fn a_damaged_or_stale_bundle_is_refused_and_a_cpu_says_what_it_is_for() {
    let Some(bundle) = smol() else { return };
    let place = tempfile::tempdir().unwrap();
    let (folder, plan) = (place.path().join("bundle"), plan("smollm2-135m"));
    let manifest = write(bundle, &folder, &plan);
    let refused = |part: &str| {
        let message = Bundle::read(&folder).map(drop).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("vosti prepare"), "{message}");
    };
    let kernel = &manifest.kernels[0];
    let cubin = folder.join(&kernel.file("cubin").unwrap().path);
    let good = std::fs::read(&cubin).unwrap();
    std::fs::write(&cubin, &good[..good.len() / 2]).unwrap();
    refused("its hash differs");
    std::fs::write(&cubin, &good).unwrap();

    // The manifest is no signature: if its hashes were changed to fit, the record refuses the code. A kernel without its
    // record is refused too.
    let rewritten = |change: &dyn Fn(&mut Manifest)| {
        let mut forged = manifest.clone();
        change(&mut forged);
        std::fs::write(folder.join("manifest.json"), serde_json::to_string(&forged).unwrap()).unwrap();
    };
    std::fs::write(&cubin, &good[1..]).unwrap();
    let of = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    rewritten(&|m| m.kernels[0].files[2].blake3 = of(&good[1..]));
    refused("other machine code than was checked");
    rewritten(&|m| _ = m.kernels[0].files.pop());
    refused("its hash differs");
    std::fs::write(&cubin, &good).unwrap();
    refused("not both machine code and the record");
    rewritten(&|m| m.kernels[0].files[2].kind = "poem".into());
    refused("which nothing reads");

    // Stale: every hash fits, and another verifier proved the kernel. Specialisations of several dimensions share a certificate.
    let certificate = kernel.file("certificate").unwrap().path.clone();
    let proved = std::fs::read_to_string(folder.join(&certificate)).unwrap();
    let stale = proved.replace(verifier(), "vosti-verify 0.0.0 0");
    assert_ne!(proved, stale);
    std::fs::write(folder.join(&certificate), &stale).unwrap();
    rewritten(&|m| {
        let files = m.kernels.iter_mut().flat_map(|kernel| &mut kernel.files);
        files.filter(|file| file.path == certificate).for_each(|file| file.blake3 = of(stale.as_bytes()));
    });
    let message = Bundle::read(&folder).and_then(|read| read.admit(&plan)).unwrap_err().to_string();
    assert!(message.contains("is for another verifier") && message.contains("vosti prepare"), "{message}");
    std::fs::write(folder.join(&certificate), &proved).unwrap();
    rewritten(&|_| ());

    let (code, why) =
        vosti(&["generate", "hello", "--model", &tiny(place.path()), "--bundle", folder.to_str().unwrap()]);
    let lines: Vec<&str> = why.lines().filter(|line| line.starts_with("vosti: ")).collect();
    assert!(code == Some(2) && lines.len() == 1, "{why}");
    assert!(why.contains("was prepared for cuda-sm90, and this device is cpu"), "{why}");
}

/// The record and the code agree with each other, but not with the proved text.
#[test]
fn machine_code_of_another_text_is_not_admitted() {
    let Some(bundle) = smol() else { return };
    let plan = plan("smollm2-135m");
    bundle.admit(&plan).unwrap();
    let cubin = bundle.cubins().values().find(|cubin| cubin.ttir.contains("dense<0.0")).unwrap();
    let other = cubin.ttir.replacen("dense<0.0", "dense<1.0", 1);
    let mut record = cubin.record.clone();
    record.hashes.ttir = ttir_hash(&other).to_hex().to_string();
    let record = serde_json::to_string(&record).unwrap();
    let forged = Cubin::read(&cubin.spec, &other, &record, cubin.code.clone()).unwrap();
    let error = Bundle::built_in().unwrap().with_cubins(vec![forged]).admit(&plan).unwrap_err().to_string();
    assert!(error.contains("compiled from another text") && error.contains(&cubin.spec.to_string()), "{error}");
}

#[test]
fn a_bundle_with_a_kernel_that_is_not_compiled_is_not_written() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bundle");
    let refused = Bundle::built_in().unwrap().write(&folder, false, files(), TARGET, &plan("smollm2-135m"));
    assert!(refused.unwrap_err().to_string().contains("is not compiled for cuda-sm90"));
    assert!(!folder.exists());
}

/// `--execute` runs on this processor what was compiled for a GPU, and the records say so.
#[test]
fn a_bundle_says_which_kernels_were_executed() {
    let place = tempfile::tempdir().unwrap();
    let (folder, config) = (place.path().join("bundle"), place.path().join("config.json"));
    // The compiler does not pipeline a sum of one block, as the tiny models have, and such code is refused.
    let model = r#"{"model_type": "llama", "vocab_size": 300, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "tie_word_embeddings": true}"#;
    std::fs::write(&config, model).unwrap();
    let (out, model) = (folder.to_str().unwrap(), config.to_str().unwrap());
    let (code, why) = vosti(&["prepare", model, "-o", out, "--execute"]);
    assert!(code == Some(2) && why.contains("--execute needs a GPU target"), "{why}");
    let Some(python) = python() else { return };
    let target = ["--target", "cuda-sm80", "--python", python.to_str().unwrap()];
    let (code, why) = vosti(&[&["prepare", model, "-o", out, "--execute"], &target[..]].concat());
    assert_eq!(code, Some(0), "{why}");
    let read = Bundle::read(&folder).unwrap();
    let left_out = read.cubins().iter().filter(|(_, cubin)| cubin.record.executed != Some(Executed::Ptx));
    assert_eq!(left_out.map(|(name, _)| name).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn a_target_that_there_is_not_is_refused_by_name_in_one_line() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bundle");
    let model = tiny(place.path());
    let (code, why) = vosti(&["prepare", &model, "-o", folder.to_str().unwrap(), "--target", "cuda-sm70"]);
    assert!(code == Some(2) && why.lines().count() == 1 && why.contains("cuda-sm70"), "{why}");
    assert!(why.contains("there are cpu, cuda-sm80, cuda-sm86, cuda-sm89, cuda-sm90, cuda-sm100, cuda-sm120"), "{why}");
    assert!(!folder.exists());
}

/// No kernel may be compiled from anything but the text that was proved.
#[test]
fn checked_in_text_is_what_the_toolchain_takes() {
    let specs = vosti_model::plan::specs(&plan("smollm2-135m"));
    let bundle = Bundle::built_in().unwrap();
    for spec in specs {
        let stem = spec.to_string();
        assert_eq!(parse_stem(&stem).as_ref(), Some(&spec));
        assert_eq!(ttir(&spec), bundle.bound(&spec));
    }
}
