//! The source of a deployment's weights: a model's files, or random numbers where there is only a configuration.
//!
//! Random weights are a function of the weight's name and the element's index (`vosti_wiring::Uniform`), so nothing is
//! downloaded and every run has the same weights. A GPU makes its matrices itself; otherwise all cores of the host make them,
//! a part at a time. Matrices are scaled by the square root of their width, so activations keep their size from layer to
//! layer. Matrices as high as the vocabulary are scaled by four times that, so logits have a spread of about four and a
//! moderate entropy.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::{fs, thread};
use vosti_kernels::Format;
use vosti_model::decoder::Decoder;
use vosti_model::{Model, ModelError, ModelPlan, Recipe, Replacement, Target, Text, WeightSource, families, plan};
use vosti_wiring::{Quantised, TensorData, Uniform, WeightError};

/// Fewest numbers that a thread of its own makes.
const STRETCH_MIN: usize = 1 << 16;

/// A model's files, or its configuration alone.
#[derive(Clone)]
pub enum ModelSource {
    /// Configuration, weights and tokenizer.
    Files(Arc<Model>),
    /// A `config.json` alone.
    Random(Arc<Decoder>),
}

impl ModelSource {
    /// Whether a path names a configuration alone: a `.json` file.
    pub fn is_configuration(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == "json")
    }

    /// Opens a GGUF file, a Hugging Face folder, or a configuration alone.
    pub fn open(path: &Path) -> Result<ModelSource, ModelError> {
        if !Self::is_configuration(path) {
            return Ok(ModelSource::Files(Arc::new(Model::open(path)?)));
        }
        let wrong = |why: String| ModelError::NotAModel { path: path.to_path_buf(), why };
        let text = fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let json = vosti_model::json::parse(&text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(ModelSource::Random(Arc::new(families::from_config(&name, &json)?)))
    }

    /// The same model with these tensors in the place of its own.
    pub fn with(path: &Path, tensors: Replacement) -> Result<ModelSource, ModelError> {
        Ok(ModelSource::Files(Arc::new(Model::open(path)?.with(tensors)?)))
    }

    /// The bytes that replace the file of this name, if tensors were replaced.
    pub fn held(&self, name: &str) -> Option<&[u8]> {
        match self {
            ModelSource::Files(model) => model.files.held(name),
            ModelSource::Random(_) => None,
        }
    }

    /// The model's dimensions and switches.
    pub fn decoder(&self) -> &Decoder {
        match self {
            ModelSource::Files(model) => &model.decoder,
            ModelSource::Random(decoder) => decoder,
        }
    }

    /// Reads the tokenizer and the chat template from the model's files; none for a configuration alone.
    pub fn text(&self) -> Result<Option<Text>, ModelError> {
        match self {
            ModelSource::Files(model) => model.text().map(Some),
            ModelSource::Random(_) => Ok(None),
        }
    }

    /// How many tensors of images and sounds its files have, which are not read.
    pub fn left_out(&self) -> usize {
        match self {
            ModelSource::Files(model) => model.files.left_out(),
            ModelSource::Random(_) => 0,
        }
    }

    /// Compiles the model for a target.
    pub fn plan(&self, target: &Target, context: Option<u32>) -> Result<ModelPlan, ModelError> {
        match self {
            ModelSource::Files(model) => model.plan(target, context),
            ModelSource::Random(decoder) => plan(decoder, target, context),
        }
    }

    /// The function that makes each element of a random matrix from its index; none for any other weight.
    pub fn made(&self, plan: &ModelPlan, name: &str) -> Option<Uniform> {
        match self {
            ModelSource::Random(decoder) => matrix(&plan.weights.get(name)?.recipe, decoder.vocab as usize, name),
            ModelSource::Files(_) => None,
        }
    }

    /// Reads some rows of a weight, as the file's blocks hold them, into `room`; false if the file has no blocks for them.
    pub fn quantised(
        &self,
        plan: &ModelPlan,
        name: &str,
        rows: Range<usize>,
        room: &mut Quantised,
    ) -> Result<bool, WeightError> {
        match self {
            ModelSource::Random(_) => Ok(false),
            ModelSource::Files(model) => Ok(model.weights(plan).quantised(name, rows, room)?),
        }
    }

    /// The format of these rows' blocks, without reading them; none if the file has no blocks for them.
    pub fn format(
        &self,
        plan: &ModelPlan,
        name: &str,
        rows: Range<usize>,
    ) -> Result<Option<&'static Format>, WeightError> {
        match self {
            ModelSource::Random(_) => Ok(None),
            ModelSource::Files(model) => Ok(model.weights(plan).format(name, rows)?),
        }
    }

    /// Some rows of a weight, in BF16 or FP32.
    pub fn rows(&self, plan: &ModelPlan, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        let model = match self {
            ModelSource::Random(decoder) => return random(plan, decoder.vocab as usize, name, rows),
            ModelSource::Files(model) => model,
        };
        Ok(model.weights(plan).rows(name, rows)?)
    }
}

/// Rows of a random weight.
fn random(plan: &ModelPlan, vocab: usize, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
    let recipe = &plan.weights.get(name).ok_or_else(|| format!("the model has no weight {name}"))?.recipe;
    if let Some(table) = vosti_model::rotary(recipe, rows.clone()) {
        return Ok(TensorData::F32(table));
    }
    let columns: usize = recipe.shape()[1..].iter().product();
    let indices = rows.start * columns..rows.end * columns;
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Ok(match matrix(recipe, vocab, name) {
        Some(numbers) => TensorData::Bf16(made(threads, indices, |i| numbers.bf16(i))),
        // States fade over tens of positions.
        None if matches!(recipe, Recipe::Rates { .. }) => {
            TensorData::F32(made(threads, indices, |i| -0.03 * (1.0 + Uniform::named(name, 0.5).at(i))))
        }
        // Norms and single numbers of a layer: close to 1.
        None => TensorData::F32(made(threads, indices, |i| 1.0 + Uniform::named(name, 0.1).at(i))),
    })
}

/// The numbers of a random matrix.
fn matrix(recipe: &Recipe, vocab: usize, name: &str) -> Option<Uniform> {
    let shape = recipe.shape();
    let columns: usize = shape[1..].iter().product();
    let gain = if shape[0] == vocab { 4.0 } else { 1.0 };
    let scale = gain * (3.0 / columns.max(1) as f32).sqrt();
    matches!(recipe, Recipe::Matrix { .. }).then(|| Uniform::named(name, scale))
}

/// The values of a function at each index, computed by several threads, a stretch of indices each. The values do not depend on the
/// number of threads.
fn made<T: Copy + Default + Send>(threads: usize, indices: Range<usize>, of: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut all = vec![T::default(); indices.len()];
    let stretch = indices.len().div_ceil(threads.max(1)).max(STRETCH_MIN);
    let fill = |first: usize, out: &mut [T]| out.iter_mut().enumerate().for_each(|(i, x)| *x = of(first + i));
    thread::scope(|scope| {
        let mut parts = all.chunks_mut(stretch).enumerate().map(|(part, out)| (indices.start + part * stretch, out));
        // This thread computes one part itself.
        let own = parts.next();
        for (first, out) in parts {
            scope.spawn(move || fill(first, out));
        }
        own.into_iter().for_each(|(first, out)| fill(first, out));
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_weight_is_the_same_in_any_parts() {
        let numbers = |name: &str, threads, indices| made(threads, indices, |i| Uniform::named(name, 1.0).at(i));
        let n = 3 * STRETCH_MIN + 17;
        let whole = numbers("layers.0.qkv", 1, 0..n);
        for threads in [2, 3, 16] {
            let (mut parts, rest) =
                (numbers("layers.0.qkv", threads, 0..333), numbers("layers.0.qkv", threads, 333..n));
            parts.extend(rest);
            assert_eq!(whole, parts, "{threads} threads");
        }
        assert_ne!(whole, numbers("layers.1.qkv", 1, 0..n));
        // Recorded values: the logits of random models must not change.
        assert_eq!(whole[..3].iter().map(|x| x.to_bits()).collect::<Vec<_>>(), [0x3f03_53d8, 0xbd6e_9a40, 0x3f42_4554]);
        let mean = whole.iter().sum::<f32>() / n as f32;
        let square = whole.iter().map(|x| x * x).sum::<f32>() / n as f32;
        assert!(mean.abs() < 0.1 && (square - 1.0 / 3.0).abs() < 0.05, "{mean} {square}");
    }
}
