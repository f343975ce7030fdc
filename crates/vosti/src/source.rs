//! Where a deployment's weights come from: a model's files, or random numbers where there is only a configuration.
//!
//! Random weights are a function of the weight's name and the element's index (a counter through SplitMix64), made on the
//! host a part at a time, so nothing is downloaded and every run has the same. Matrices are scaled by the square root of
//! their width, so that activations keep their size from layer to layer; what is as high as the vocabulary four times
//! that, so that logits have a spread of about four and an entropy that is neither none nor all.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use vosti_kernels::Act;
use vosti_model::decoder::Decoder;
use vosti_model::{Model, ModelError, ModelPlan, PlanOptions, Recipe, Text, WeightSource, families, plan};
use vosti_wiring::{TensorData, WeightError};

/// A model, or the shape of one.
#[derive(Clone)]
pub enum Source {
    Files(Arc<Model>),
    /// A `config.json` alone.
    Random(Arc<Decoder>),
}

impl Source {
    /// Opens a GGUF file, a Hugging Face folder, or a configuration alone (a `.json` file).
    pub fn open(path: &Path) -> Result<Source, ModelError> {
        if path.extension().is_none_or(|extension| extension != "json") {
            return Ok(Source::Files(Arc::new(Model::open(path)?)));
        }
        let wrong = |why: String| ModelError::NotAModel { path: path.to_path_buf(), why };
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let json = serde_json::from_str(&text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Source::Random(Arc::new(families::from_config(&name, &json)?)))
    }

    pub fn decoder(&self) -> &Decoder {
        match self {
            Source::Files(model) => &model.decoder,
            Source::Random(decoder) => decoder,
        }
    }

    /// Makes the tokenizer and the chat template, if there are files to make them of.
    pub fn text(&self) -> Result<Option<Text>, ModelError> {
        match self {
            Source::Files(model) => model.text().map(Some),
            Source::Random(_) => Ok(None),
        }
    }

    /// Compiles the model for a deployment.
    pub fn plan(&self, options: &PlanOptions) -> Result<ModelPlan, ModelError> {
        plan(self.decoder(), options)
    }

    /// Some rows of a weight.
    pub fn rows(&self, plan: &ModelPlan, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        let model = match self {
            Source::Random(decoder) => return random(plan, decoder.vocab as usize, name, rows),
            Source::Files(model) => model,
        };
        Ok(model.weights(plan, Act::Bf16).rows(name, rows)?)
    }
}

/// Rows of a random weight.
fn random(plan: &ModelPlan, vocab: usize, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
    let recipe = plan.weights.get(name).ok_or_else(|| format!("the model has no weight {name}"))?;
    if let Some(table) = vosti_model::rotary(recipe, rows.clone()) {
        return Ok(TensorData::F32(table));
    }
    let shape = recipe.shape();
    let columns: usize = shape[1..].iter().product();
    let numbers = uniform(name, rows.start * columns..rows.end * columns);
    Ok(match recipe {
        Recipe::Matrix { .. } => {
            let gain = if shape[0] == vocab { 4.0 } else { 1.0 };
            let scale = gain * (3.0 / columns.max(1) as f32).sqrt();
            TensorData::Bf16(numbers.map(|x| vosti_tile::numerics::to_bf16(scale * x)).collect())
        }
        // Norms, and what is stored once for a layer: about one.
        _ => TensorData::F32(numbers.map(|x| 1.0 + 0.1 * x).collect()),
    })
}

/// Numbers in -1..1, each a function of the name and its index.
fn uniform(name: &str, indices: Range<usize>) -> impl Iterator<Item = f32> {
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |s, b| (s ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    indices.map(move |i| {
        let seed = seed.wrapping_add((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (SplitMix64::seed_from_u64(seed).next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_weight_is_the_same_in_any_parts() {
        let whole: Vec<f32> = uniform("layers.0.qkv", 0..1000).collect();
        let parts: Vec<f32> = uniform("layers.0.qkv", 0..333).chain(uniform("layers.0.qkv", 333..1000)).collect();
        assert_eq!(whole, parts);
        assert_ne!(whole, uniform("layers.1.qkv", 0..1000).collect::<Vec<_>>());
        let mean = whole.iter().sum::<f32>() / 1000.0;
        let square = whole.iter().map(|x| x * x).sum::<f32>() / 1000.0;
        assert!(mean.abs() < 0.1 && (square - 1.0 / 3.0).abs() < 0.05, "{mean} {square}");
    }
}
