//! Makes a kernel's specialisation from a model's dimensions. No other module does.

use vosti_contract::{Const, Dtype};
use vosti_kernels::Spec;

use crate::error::{ModelError, Result};

/// The specialisation of `kernel` for a target, given the model's dimensions.
pub(crate) fn specialise(target: &str, kernel: &str, act: Dtype, dims: &[(&str, Const)]) -> Result<Spec> {
    vosti_kernels::specialise(target, kernel, act, dims).map_err(ModelError::from)
}
