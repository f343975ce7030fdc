//! The whole path of a GPU, on a stand-in that executes TTIR in host memory: a model of SmolLM2's shapes with one layer and
//! random weights is prepared, opened, answers, and is measured and probed. It shows that the whole path works; it shows
//! nothing about a real GPU.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use vosti::bench::agentic::{Trace, play};
use vosti::bench::{self, BenchOptions, Case, Draw, Measured};
use vosti::deployment::{DeployOptions, Deployment, DeploymentSubject, DeviceConfig};
use vosti::device::{Gpu, On, OpenGpu};
use vosti::model_source::ModelSource;
use vosti_admission::Bundle;
use vosti_admission::manifest::{Manifest, Model};
use vosti_check::{Subject, prompts};
use vosti_core::Device as _;
use vosti_cuda::DriverError;
use vosti_engine::progress::{NoProgress, Progress};
use vosti_engine::{Engine, Event, Policy, Request, Sampling};
use vosti_model::Target;
use vosti_stand_in::{StandIn, TARGET, cubin};
use vosti_verify::certificate::verifier;

/// A configuration alone, and its bundle.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("{}/../vosti-model/configs/smollm2-135m.json", env!("CARGO_MANIFEST_DIR"));
        let mut config: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        config["num_hidden_layers"] = 1.into();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let place = Place { folder };
        place.prepare();
        place
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("config.json")
    }

    fn bundle(&self) -> PathBuf {
        self.folder.path().join("bundle")
    }

    /// As `vosti prepare` does, with TTIR in place of machine code.
    fn prepare(&self) {
        let source = ModelSource::open(&self.config()).unwrap();
        let plan = source.plan(&Target::named(TARGET).with_choices(), None).unwrap();
        let files = Model::of_files(&self.config()).unwrap();
        let cubins = vosti_model::plan::specs(&plan).iter().map(cubin).collect();
        let bundle = Bundle::built_in().unwrap().with_cubins(cubins);
        bundle.write(&self.bundle(), true, files, TARGET, &plan).unwrap();
    }

    fn load(&self, bundle: Option<&Path>, open: OpenGpu) -> Result<Deployment, String> {
        let options =
            DeployOptions { bundle: bundle.map(Path::to_path_buf), on: On::Gpu(open, 0), ..DeployOptions::default() };
        Deployment::load("random", &self.config(), &options, &NoProgress).map_err(|error| error.to_string())
    }
}

fn sound(_: usize) -> Result<Gpu, DriverError> {
    Ok(Box::new(StandIn::fast()))
}

#[test]
fn what_is_missing_or_does_not_fit_is_one_message_each() {
    let place = Place::new();
    let bundle = place.bundle();
    let refused = |bundle: Option<&Path>, open: OpenGpu, says: &str| {
        let message = place.load(bundle, open).map(drop).unwrap_err();
        assert!(message.contains(says) && !message.contains('\n'), "{says}: {message}");
    };
    refused(Some(&bundle), |_| Err(DriverError::NoDriver), "there is no NVIDIA driver here (libcuda is not found)");
    refused(Some(&bundle), |_| Err(DriverError::NoDevice), "the NVIDIA driver finds no GPU");
    refused(None, sound, "run `vosti prepare MODEL --target cuda-sm90 -o FOLDER`");
    fn ampere(_: usize) -> Result<Gpu, DriverError> {
        let mut driver = StandIn::fast();
        driver.about.capability = (8, 6);
        Ok(Box::new(driver))
    }
    fn old(_: usize) -> Result<Gpu, DriverError> {
        let mut driver = StandIn::fast();
        driver.about.capability = (7, 5);
        Ok(Box::new(driver))
    }
    fn small(_: usize) -> Result<Gpu, DriverError> {
        let mut driver = StandIn::fast();
        driver.free = 40 << 20;
        Ok(Box::new(driver))
    }
    refused(Some(&bundle), ampere, "prepared for cuda-sm90, and this device is cuda-sm86; run `vosti prepare --target");
    refused(Some(&bundle), old, "no kernels are made for stand-in of compute capability 7.5; there are targets");
    refused(Some(&bundle), small, "too little GPU memory");
    // Another model's bundle; one that another verifier proved; one whose machine code is not the one that was checked; none.
    let config = std::fs::read_to_string(place.config()).unwrap();
    std::fs::write(place.config(), format!("{config} ")).unwrap();
    refused(Some(&bundle), sound, "it was prepared for another model");
    std::fs::write(place.config(), config).unwrap();
    let restore = with_stale_certificate(&bundle);
    refused(Some(&bundle), sound, "is for another verifier");
    restore();
    let cubin = std::fs::read_dir(bundle.join("cubin")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(cubin, "damaged").unwrap();
    refused(Some(&bundle), sound, "its hash differs");
    refused(Some(&place.folder.path().join("nothing")), sound, "is no bundle");
}

/// Replaces a certificate by one of another verifier, of which the manifest has the hash; gives the way back.
fn with_stale_certificate(bundle: &Path) -> impl FnOnce() {
    let manifest = bundle.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let parsed: Manifest = serde_json::from_str(&text).unwrap();
    let file = parsed.kernels[0].file("certificate").unwrap().clone();
    let path = bundle.join(&file.path);
    let good = std::fs::read_to_string(&path).unwrap();
    let stale = good.replace(verifier(), "vosti-verify 0.0.0 0");
    assert_ne!(good, stale);
    std::fs::write(&path, &stale).unwrap();
    let hash = blake3::hash(stale.as_bytes()).to_hex().to_string();
    std::fs::write(&manifest, text.replace(&file.blake3, &hash)).unwrap();
    move || {
        std::fs::write(path, good).unwrap();
        std::fs::write(manifest, text).unwrap();
    }
}

/// Tokens and logits of some requests, in one engine.
fn answers(deployment: &Deployment, lengths: &[usize]) -> Vec<(u64, usize, Vec<u32>)> {
    let policy = Policy { rows_step_max: 48, ..Policy::default() };
    let asked = DeviceConfig { pages: Some(12), rows_max: 48, ..DeviceConfig::default() };
    let device = deployment.device(&asked).unwrap();
    let mut engine = Engine::new(device, deployment.program().clone(), policy).unwrap();
    for (i, length) in lengths.iter().enumerate() {
        let prompt = prompts::prompt(&deployment.facts(), 1, &format!("{}", i + 10 - lengths.len()), *length);
        engine.submit(Request::new(prompt, Sampling::greedy(3))).unwrap();
    }
    let mut seen = vec![];
    let mut note = |event: Event<'_>| {
        if let Event::Token { request, index, logits: Some(logits), .. } = event {
            seen.push((request.0, index, logits.iter().map(|x| x.to_bits()).collect()));
        }
    };
    engine.run_until_idle(&mut note).unwrap();
    seen.sort();
    seen
}

#[test]
fn a_configuration_with_random_weights_answers_is_measured_and_probed() {
    let place = Place::new();
    let deployment = place.load(Some(&place.bundle()), sound).unwrap();
    assert!(deployment.device_name().starts_with("cuda-sm90: stand-in"), "{}", deployment.device_name());
    let why = deployment.text().map(drop).unwrap_err().to_string();
    assert!(why.contains("random weights and no tokenizer"), "{why}");

    // The same bits alone and with others, and logits that are not constant, so that their equality says something.
    let (alone, together) = (answers(&deployment, &[70]), answers(&deployment, &[5, 70]));
    let last = together.last().unwrap().0;
    let same: Vec<_> = together.into_iter().filter(|(request, ..)| *request == last).collect();
    assert!(alone.len() == 3 && alone.iter().map(|a| &a.2).eq(same.iter().map(|b| &b.2)));
    let row: Vec<f64> = alone[0].2.iter().map(|bits| f64::from(f32::from_bits(*bits))).collect();
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let spread = (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64).sqrt();
    assert!((1.0..12.0).contains(&spread), "logits spread by {spread}");

    let cases = [Case::Prefill { tokens: 20, depth: 64 }, Case::Decode { tokens: 2, batch: 4, depth: 0 }];
    let options = BenchOptions { draw: Draw::default(), repeat: 1, kernels: true };
    let report = bench::run(&deployment, &cases, options, &NoProgress).unwrap();
    assert!(report.cases.iter().all(|case| case.tokens_per_s > 0.0 && case.bytes_per_token > 0.0));
    // The stand-in compiles no PTX, so copies measure the memory's rate.
    assert!(report.read_bytes_per_s > 0.0 && !report.read_alone && report.dot_flops_per_s.is_none());
    let timed =
        |case: &Measured, kernel: &str| case.kernels.iter().any(|k| k.name.starts_with(kernel) && k.seconds > 0.0);
    let kernels = ["attend", "linear_glu", "rmsnorm", "argmax", "engine"];
    assert!(report.cases.iter().all(|case| kernels.iter().all(|kernel| timed(case, kernel))), "{report:?}");
    assert!(report.cases[0].bound_tokens_per_s.is_none() && report.cases[1].bound_tokens_per_s.is_some());

    let counting = Counting::default();
    let options = BenchOptions { draw: Draw { temperature: 1.0, top_k: 40 }, kernels: false, ..options };
    bench::run(&deployment, &cases[1..], options, &counting).unwrap();
    // The prompt's step, the step that is recorded, two steps of a token each, and once before the table.
    assert_eq!(counting.0.load(Relaxed), 5, "who wants no more waits for one step at most");

    let trace = Trace { sessions: 2, turns: 2, prompt: 80, shared: 64, input: 3, output: 4, pause_s: 0.01 };
    let played = play(&deployment, trace, &NoProgress).unwrap();
    assert_eq!((played.tokens, played.session_s.len(), played.first_token_s.len()), (16, 2, 4));

    let options = vosti_cuda::probe::ProbeOptions { cases: 6, references: 1, seed: 1 };
    let dump = place.folder.path().join("dump");
    let probed = vosti::probe::run(&deployment, options, Some(&dump), &NoProgress).unwrap();
    assert!(probed.passed && probed.kernels.len() > 8, "{probed:?}");
    in_fp64(&dump, probed.kernels.len());

    // For the suite this is a device that has no threads or instruction sets to compare.
    let subject = DeploymentSubject::new(&deployment, None);
    assert!(subject.thread_counts().is_empty() && subject.instruction_sets().is_empty());
}

/// Laws on the program of the model itself, since a bundle has no other. A few of the laws, because executing TTIR is slow.
#[test]
fn device_laws_hold_on_a_models_own_program() {
    let place = Place::new();
    let deployment = place.load(Some(&place.bundle()), sound).unwrap();
    let named = ["embedding_depends_on_its_token", "attention_sees_its_window_in_order"];
    let laws = vosti::laws::named(&named.map(String::from)).unwrap();
    let report = vosti::laws::run(deployment, laws, &NoProgress).unwrap();
    assert!(report.passed && report.laws.iter().map(|law| law.law).eq(named), "{:?}", report.laws);
    let untried = report.laws[1].untried.unwrap();
    assert!(report.laws[0].untried.is_none() && untried.contains("no page fell behind a window"), "{untried}");
}

/// Counts how often it was asked whether the work should end.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Progress for Counting {
    fn stage(&self, _label: &str, _total: u64) {}
    fn done(&self, _units: u64) {}
    fn cancelled(&self) -> bool {
        self.0.fetch_add(1, Relaxed);
        false
    }
}

/// What the probe wrote equals what sums in FP64 give, except for rounding, and a wrong number in it is noticed.
fn in_fp64(dump: &Path, kernels: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if let Some(python) = vosti_test_tools::python("numpy") {
        let judge = || Command::new(&python).arg(root.join("bench/gpu/fp64.py")).arg(dump).output().unwrap();
        let ran = judge();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
        println!("{said}"); // the numbers of docs/gpu.md
        // A kernel may have several launches: the first had no chosen row in the programs that were run.
        let named: BTreeSet<&str> = said.lines().filter(|line| line.contains("\"kernel\"")).collect();
        assert_eq!(named.len(), kernels, "{said}");
        let wrong = |path: &Path| {
            let mut bytes = std::fs::read(path).unwrap();
            let data = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
            let header: serde_json::Value = serde_json::from_slice(&bytes[8..data]).unwrap();
            for (_, tensor) in header.as_object().unwrap().iter().filter(|(name, _)| name.starts_with("written.")) {
                let at = |i: usize| data + tensor["data_offsets"][i].as_u64().unwrap() as usize;
                // Changes a bit of each exponent.
                bytes[at(0)..at(1)].iter_mut().skip(1).step_by(2).for_each(|byte| *byte ^= 2);
            }
            std::fs::write(path, bytes).unwrap();
        };
        std::fs::read_dir(dump).unwrap().for_each(|file| wrong(&file.unwrap().path()));
        assert_eq!(judge().status.code(), Some(1), "a wrong number was not seen");
    }
}

/// A device for many rows a step has room for the logits of fewer: a step that selects more rows is split.
#[test]
fn steps_that_select_more_rows_than_there_are_logits_for_are_split() {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/tests/tiny/llama/config.json");
    let mut json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(tiny).unwrap()).unwrap();
    json["max_position_embeddings"] = 2048.into();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    std::fs::write(&config, json.to_string()).unwrap();
    let deployment = Deployment::load("random", &config, &DeployOptions::default(), &NoProgress).unwrap();
    let seen = |rows_max: usize| {
        let asked = DeviceConfig { pages: Some(40), rows_max, ..DeviceConfig::default() };
        let device = deployment.device(&asked).unwrap();
        assert_eq!((device.rows_max(), device.selected_max()), (rows_max, rows_max.min(512)));
        let policy = Policy { rows_step_max: rows_max, ..Policy::default() };
        let mut engine = Engine::new(device, deployment.program().clone(), policy).unwrap();
        let prompt = prompts::prompt(&deployment.facts(), 1, "long", 1100);
        let long = Request { prompt_logits: true, ..Request::new(prompt, Sampling::greedy(2)) };
        engine.submit(long).unwrap();
        let mut seen = vec![];
        let mut note = |event: Event<'_>| {
            if let Event::Prompt { position, logits, .. } = event {
                seen.push((position, logits.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()));
            }
        };
        engine.run_until_idle(&mut note).unwrap();
        seen
    };
    let (many, few) = (seen(2048), seen(100));
    assert!(many.len() == 1099 && many == few);
}

/// bench/gpu/run.sh on a processor and a model of a few kilobytes: every step runs except the one that needs a GPU, which the
/// output names, and the tables are printed.
#[test]
fn the_script_runs_every_step_and_says_what_it_could_not() {
    let Some(python) = vosti_test_tools::python("json") else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = |more: &[(&str, &str)]| {
        let mut script = Command::new(root.join("bench/gpu/run.sh"));
        script.arg(env!("CARGO_BIN_EXE_vosti")).arg("no-bundle");
        script.arg(root.join("crates/vosti-model/tests/tiny/llama/config.json")).arg(&out);
        let sizes = [("DEVICE", "cpu"), ("PROFILE", "quick"), ("PREFILL", "16"), ("DECODE", "4")];
        script.envs(sizes).envs([
            ("BATCH", "2"),
            ("DEPTHS", "0,32"),
            ("REPEAT", "1"),
            ("TRACE", "2,2,40,20,3,4,0"),
            ("SAMPLED", "2,3"),
        ]);
        let ran = script.envs(more.iter().copied()).output().unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr);
        (ran.status.code(), format!("{}{errors}", String::from_utf8_lossy(&ran.stdout)))
    };
    let (code, said) = run(&[]);
    assert_eq!(code, Some(1), "the probe needs a GPU\n{said}");
    for part in [
        "`probe` failed after",
        "vosti probe tests GPUs: give --device cuda",
        "Probes: not run.",
        "Device laws: 25 of 25 hold.",
        "pairs equal, passed.",
        "| prefill 16, depth 32 |",
        "| decode, batch 2, depth 0 |",
        "| decode, batch 3 |",
        "Agentic trace, 2 sessions of 2 turns",
        "Copies by descriptor and by threads: not compared.",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(said.contains("torch: not run.") || said.contains("torch is "), "{said}");
    assert_eq!(said.matches("failed").count(), 2, "one step fails, and is named twice\n{said}");
    let at = |step: &str| said.find(&format!("== {step}")).unwrap();
    let order = ["bench", "torch", "copies", "greedy", "agentic", "probe", "fp64", "laws", "check"];
    assert!(order.windows(2).all(|two| at(two[0]) < at(two[1])), "what counts most comes first\n{said}");
    assert!(folder.path().join("out.tar").exists());

    // Again in parts: what other runs found stays, and a step that takes too long is stopped and the next one runs.
    let (code, said) = run(&[("STEPS", "agentic check"), ("LIMIT", "300"), ("ONLY", "arrivals,choices")]);
    assert!(code == Some(0) && out.join("check-arrivals-choices.json").exists(), "{said}");
    assert!(!said.contains("== bench") && said.contains("| prefill 16, depth 32 |"), "{said}");
    assert!(said.contains("`probe` failed after") && said.matches("pairs equal, passed.").count() == 2, "{said}");
    let (code, said) = run(&[("STEPS", "bench agentic"), ("LIMIT", "0.001")]);
    assert!(code == Some(1) && said.matches("it was stopped after 0.001 s").count() == 2, "{said}");
    assert_eq!(said.matches("what is told of it below is what it had found").count(), 2, "{said}");
    assert!(said.matches("pairs equal, passed.").count() == 2 && said.contains("Rates: not run."), "{said}");
    assert_eq!(run(&[("STEPS", "bench everything")]).0, Some(2));
    assert_eq!(run(&[("DAY", "4")]).0, Some(2));
    // A command that has no time left says of each step that it did not begin.
    let (code, said) = run(&[("DAY", "1"), ("TOTAL", "20")]);
    assert!(code == Some(1) && said.matches("no time is left of 20 s").count() == 3, "{said}");
    assert!(said.contains("`bench` did not begin"), "{said}");
    // In rounds: each case has the rates of all rounds, and the archive is written after each step.
    let (code, said) = run(&[("STEPS", "bench laws"), ("ROUNDS", "2")]);
    assert!(
        code == Some(0) && said.matches("== bench-").count() == 2 && said.matches("== laws").count() == 1,
        "{said}"
    );
    assert!(out.join("bench-2.json").exists() && said.contains("| decode, batch 2, depth 32 |"), "{said}");
    let kept = Command::new("tar").arg("-tf").arg(folder.path().join("out.tar")).output().unwrap();
    let kept = String::from_utf8_lossy(&kept.stdout).into_owned();
    assert!(kept.contains("out/bench-2.json") && kept.contains("out/tables.md") && !kept.contains(".new"), "{kept}");
    // The table names the missing evidence, not only that some is missing.
    std::fs::write(out.join("check.json"), LACKING).unwrap();
    let table = Command::new(python).arg(root.join("bench/gpu/table.py")).arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(said.contains("**FAILED**") && said.contains("- prefix: no cache hit was seen"), "{said}");
}

/// A report of the suite in which everything was equal and one thing was not seen.
const LACKING: &str = r#"{"profile": "quick", "passed": false, "pairs": 3, "pairs_equal": 3, "relations": [
    {"name": "prefix", "missing": ["no cache hit was seen"], "interrupted": false, "pairs": []}]}"#;

/// The line names what is missing on this machine: with a GPU the bundle, without one the driver or the GPU.
#[test]
fn the_command_says_in_one_line_why_it_cannot_use_a_gpu() {
    let place = Place::new();
    let (config, whole) = (place.config(), place.folder.path().join("whole"));
    std::fs::create_dir(&whole).unwrap();
    common::tiny(&whole);
    let tests = [&["check"][..], &["bench"], &["probe"], &["laws"]].map(|command| (command, &config));
    let texts = [&["generate", "x"][..], &["chat"], &["serve", "--port", "0"]].map(|command| (command, &whole));
    for (command, model) in tests.into_iter().chain(texts) {
        let mut vosti = Command::new(env!("CARGO_BIN_EXE_vosti"));
        let out = vosti.args(command).args(["--device", "cuda", "--model"]).arg(model).output().unwrap();
        let why = String::from_utf8_lossy(&out.stderr).into_owned();
        let lines: Vec<&str> = why.lines().filter(|line| line.starts_with("vosti: ")).collect();
        assert!(out.status.code() == Some(2) && lines.len() == 1, "{command:?}: {why}");
        let known =
            ["libcuda is not found", "finds no GPU", "a GPU runs machine code from a bundle", "no kernels are made"];
        assert!(known.iter().any(|part| lines[0].contains(part)), "{why}");
    }
}
