//! Every model configuration that kernels are generated for, and the specialisations each needs.
//!
//! `cargo xtask ttir` makes the TTIR of exactly these. To serve a model with other dimensions, add its
//! `config.json` to `configs/` and run it again.

use vosti_kernels::{Act, Spec};

use crate::error::{ModelError, Result};
use crate::families;
use crate::plan::{ModelPlan, PlanOptions, plan, specs};

macro_rules! configs {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../configs/", $name, ".json")))),*] };
}

/// Published models, by their catalogue names.
const MODELS: &[(&str, &str)] = configs![
    "smollm2-135m",
    "smollm2-360m",
    "smollm2-1.7b",
    "llama-3.2-1b",
    "llama-3.2-3b",
    "llama-3.1-8b",
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen3-4b",
    "qwen3-8b",
    "gemma-3-270m",
    "gemma-3-1b",
    "gemma-3-4b",
    "gemma-3-12b",
    "gemma-3-27b",
    "gemma-4-12b",
    "gemma-4-31b",
];

macro_rules! tiny {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../tests/tiny/", $name, "/config.json")))),*]
    };
}

/// Tiny random models of every family, for tests against transformers; in BF16 and in FP32.
const TINY: &[(&str, &str)] = tiny![
    "llama",
    "llama-untied",
    "qwen2",
    "qwen3",
    "ministral",
    "ministral3",
    "phi3",
    "gemma2",
    "gemma3",
    "gemma4",
    "gemma4-shared",
    "olmo2",
    "olmo3",
    "granite",
    "granite4",
    "smollm3",
    "ernie4_5",
];

/// Models whose weights the tests fetch: in FP32 too, against transformers' FP32.
const FETCHED: [&str; 2] = ["smollm2-135m", "gemma-3-270m"];

/// The specialisations of every known configuration for a target, by configuration.
pub fn inventory(target: &str) -> Result<Vec<(String, Vec<Spec>)>> {
    let bf16 = MODELS.iter().chain(TINY).map(|(name, text)| (*name, *text, Act::Bf16));
    let fetched = MODELS.iter().filter(|(name, _)| FETCHED.contains(name));
    let f32 = fetched.chain(TINY).map(|(name, text)| (*name, *text, Act::F32));
    let mut out = Vec::new();
    for (name, text, act) in bf16.chain(f32) {
        let config = serde_json::from_str(text)
            .map_err(|e| ModelError::Damaged { file: format!("{name}.json"), why: e.to_string() })?;
        let decoder = families::from_config(name, &config)?;
        let plan = plan(&decoder, &PlanOptions { target, act, context: Some(1), lists: true })?;
        out.push((format!("{name}-{act}"), specs(&plan)));
    }
    Ok(out)
}

/// Refuses a plan one of whose kernels is not built in.
pub fn check_kernels(plan: &ModelPlan) -> Result<()> {
    for spec in specs(plan) {
        if vosti_kernels::ttir(&spec).is_none() {
            return Err(ModelError::NoKernel { spec: spec.to_string() });
        }
    }
    Ok(())
}
