//! The identity of everything that fixes a deployment's bits.
//!
//! Everything that can change a bit of an answer or its length is hashed, in a fixed order; nothing else may be. The logits
//! of a few tokens are hashed too, so a machine that computes differently is another deployment.

use super::{DeployError, Deployment, DeviceConfig};
use vosti_check::prompts;
use vosti_core::PAGE;
use vosti_engine::{Event, Policy, Request, Sampling};
use vosti_kernels::ttir_hash;

impl Deployment {
    /// Hashes, in a fixed order: version, dequantiser, sampler, page size, program, kernels, on a GPU the card, its driver and its machine
    /// code, files, numbers.
    pub(super) fn identify(&self) -> Result<String, DeployError> {
        let mut hash = blake3::Hasher::new();
        let mut put = |what: &str, bytes: &[u8]| {
            hash.update(what.as_bytes()).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        put("vosti", env!("CARGO_PKG_VERSION").as_bytes());
        put("dequantiser", &vosti_model::dequantise::VERSION.to_le_bytes());
        put("sampler", &vosti_engine::sampler::VERSION.to_le_bytes());
        put("page", &(PAGE as u64).to_le_bytes());
        put("program", format!("{:?}", self.program()).as_bytes());
        for binding in &self.plan.bindings {
            for launch in &binding.launches {
                for spec in launch.specs() {
                    put("launch", format!("{spec} {:?}", launch.weights).as_bytes());
                    put("ttir", ttir_hash(self.bundle.ttir(&spec.text().to_string()).unwrap_or_default()).as_bytes());
                }
            }
            // Its weights and text are the first launch's.
            binding.folded.iter().for_each(|spec| put("folded", spec.to_string().as_bytes()));
        }
        if let Some(gpu) = self.gpu() {
            let about = gpu.about();
            put("gpu", format!("{} {} {:?} {}", self.target, about.name, about.capability, about.driver).as_bytes());
            let cubins = self.bundle.cubins().values();
            cubins.for_each(|cubin| put("cubin", cubin.record.hashes.cubin.as_bytes()));
        }
        // Weights, tokenizer and template are in the model's files.
        self.files.files.iter().for_each(|file| put("file", file.blake3.as_bytes()));
        put("numbers", self.numbers()?.as_bytes());
        Ok(format!("vosti-{}", &hash.finalize().to_hex()[..32]))
    }

    /// The hash of the logits of a few fixed tokens, computed on this machine's device.
    fn numbers(&self) -> Result<blake3::Hash, DeployError> {
        let mut hash = blake3::Hasher::new();
        let facts = self.facts();
        let config = DeviceConfig { pages: Some(1), rows_max: 16, ..DeviceConfig::default() };
        let policy = Policy { rows_step_max: 16, prefix_cache: false, ..Policy::default() };
        let mut engine = self.engine(&config, policy)?;
        let len = 12.min(facts.context - 3);
        let prompt = prompts::prompt(&facts, 0, "numeric probe", len);
        engine.submit(Request::new(prompt, Sampling::greedy(2)))?;
        engine.run_until_idle(&mut |event| {
            if let Event::Token { logits: Some(logits), .. } = event {
                logits.iter().for_each(|x| _ = hash.update(&x.to_bits().to_le_bytes()));
            }
        })?;
        Ok(hash.finalize())
    }
}
