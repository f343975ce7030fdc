//! Collects a model's new weights, one tensor after another, until every tensor has one; `LLM.update_weights` fills it.
//!
//! `_weights.py` checks types, shapes and numbers; here a tensor is its bytes, as many as the file has.

use super::refused;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vosti_model::Replacement;

#[pyclass(name = "Replacement", frozen)]
pub struct PyReplacement {
    /// None after it was used.
    begun: Mutex<Option<Replacement>>,
}

impl PyReplacement {
    pub fn new(begun: Replacement) -> Self {
        PyReplacement { begun: Mutex::new(Some(begun)) }
    }

    pub fn take(&self) -> PyResult<Replacement> {
        self.lock().take().ok_or_else(used)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Replacement>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyReplacement {
    /// Name, type and shape of each tensor.
    fn wanted(&self) -> PyResult<Vec<(String, String, Vec<usize>)>> {
        let begun = self.lock();
        let wanted = begun.as_ref().ok_or_else(used)?.wanted();
        Ok(wanted.into_iter().map(|tensor| (tensor.name, tensor.dtype, tensor.shape)).collect())
    }

    /// A tensor's elements in its type, row-major, little-endian.
    fn put(&self, name: &str, elements: &[u8]) -> PyResult<()> {
        self.lock().as_mut().ok_or_else(used)?.put(name, elements).map_err(refused)
    }
}

fn used() -> PyErr {
    refused("these tensors were used already: begin again")
}
