//! Reads a deployment's weights for its devices, on several threads, and reports progress.
//!
//! It reads and counts; [`crate::model_source`] knows what a weight is.

use crate::model_source::ModelSource;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vosti_engine::progress::Progress;
use vosti_kernels::{Format, Part};
use vosti_model::{ModelPlan, Recipe};
use vosti_wiring::{Quantised, TensorData, Uniform, WeightError, Weights};

/// The weights as a device asks for them, and the progress that counts them.
pub struct DeviceWeights<'a> {
    pub source: &'a ModelSource,
    pub plan: &'a ModelPlan,
    pub progress: Option<&'a LoadProgress<'a>>,
}

pub struct LoadProgress<'a> {
    pub progress: &'a dyn Progress,
    /// Bytes loaded so far, counted as BF16 and FP32, whatever form the file has.
    pub loaded: AtomicU64,
}

impl DeviceWeights<'_> {
    fn check_cancelled(&self) -> Result<(), WeightError> {
        match self.progress.is_some_and(|load| load.progress.cancelled()) {
            true => Err("interrupted".into()),
            false => Ok(()),
        }
    }

    fn loaded(&self, name: &str, bytes: usize) {
        if let Some(load) = self.progress.filter(|_| !self.by_position(name)) {
            load.progress.done(load.loaded.fetch_add(bytes as u64, Relaxed) + bytes as u64);
        }
    }
}

impl Weights for DeviceWeights<'_> {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        let weight = self.plan.weights.get(name).ok_or_else(|| format!("the model has no weight {name}"))?;
        Ok(weight.shape())
    }

    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        self.check_cancelled()?;
        let data = self.source.rows(self.plan, name, rows)?;
        let bytes = match &data {
            TensorData::Bf16(data) => 2 * data.len(),
            TensorData::I8(data) => 2 * data.len(),
            // The numbers of a matrix in blocks are counted with its codes.
            TensorData::F32(_) if self.part(name).is_some() => 0,
            TensorData::F32(data) => 4 * data.len(),
        };
        self.loaded(name, bytes);
        Ok(data)
    }

    fn quantised(&self, name: &str, rows: Range<usize>, room: &mut Quantised) -> Result<bool, WeightError> {
        self.check_cancelled()?;
        let quantised = self.source.quantised(self.plan, name, rows, room)?;
        self.loaded(name, if quantised { 2 * room.codes.len() } else { 0 });
        Ok(quantised)
    }

    fn format(&self, name: &str, rows: Range<usize>) -> Result<Option<&'static Format>, WeightError> {
        self.source.format(self.plan, name, rows)
    }

    fn part(&self, name: &str) -> Option<(String, Part)> {
        match &self.plan.weights.get(name)?.recipe {
            Recipe::Blocks { matrix, part, .. } => Some((matrix.clone(), *part)),
            _ => None,
        }
    }

    fn made(&self, name: &str) -> Option<Uniform> {
        self.source.made(self.plan, name)
    }

    fn by_position(&self, name: &str) -> bool {
        self.plan.weights.get(name).is_some_and(|weight| matches!(weight.recipe, Recipe::Rope { .. }))
    }
}
