//! Where weights come from, and how they get to the device: each once, a part at a time, row-major.

use crate::driver::{Address, Driver};
use crate::error::CudaError;
use std::ops::Range;
use vosti_tile::Scalar;

/// A weight's elements, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// BF16 bit patterns.
    Bf16(Vec<u16>),
    F32(Vec<f32>),
}

/// Whatever went wrong in the weights' source.
pub type WeightError = Box<dyn std::error::Error + Send + Sync>;

/// Where a device gets its weights from, by the names in the bindings.
pub trait Weights {
    /// The weight's axes, slowest first.
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError>;

    /// The elements of some rows (indices of the first axis), row-major.
    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError>;
}

/// Elements that are asked for at once.
const PART: usize = 1 << 22;

/// Elements of a weight.
pub(crate) fn len(weights: &dyn Weights, name: &str) -> Result<usize, CudaError> {
    let shape = weights.shape(name).map_err(|error| CudaError::Weight { name: name.into(), error })?;
    Ok(shape.iter().product())
}

/// Uploads a weight as the kernels' element type. BF16 widens to FP32; FP32 never narrows by itself.
pub(crate) fn upload(
    driver: &mut dyn Driver,
    at: Address,
    weights: &dyn Weights,
    name: &str,
    elem: Scalar,
) -> Result<(), CudaError> {
    let failed = |error: WeightError| CudaError::Weight { name: name.into(), error };
    let shape = weights.shape(name).map_err(failed)?;
    let (rows, columns) = (shape.first().copied().unwrap_or(1), shape.iter().skip(1).product::<usize>());
    let part = (PART / columns.max(1)).max(1);
    for start in (0..rows).step_by(part) {
        let end = rows.min(start + part);
        let data = weights.rows(name, start..end).map_err(failed)?;
        let (bytes, found): (Vec<u8>, usize) = match (data, elem) {
            (TensorData::Bf16(data), Scalar::Bf16) => (data.iter().flat_map(|x| x.to_le_bytes()).collect(), data.len()),
            (TensorData::F32(data), Scalar::F32) => (data.iter().flat_map(|x| x.to_le_bytes()).collect(), data.len()),
            (TensorData::Bf16(data), Scalar::F32) => {
                let wide = data.iter().map(|x| vosti_tile::numerics::from_bf16(*x));
                (wide.flat_map(|x| x.to_le_bytes()).collect(), data.len())
            }
            (TensorData::F32(_), _) | (_, Scalar::I1 | Scalar::I32 | Scalar::I64) => {
                return Err(failed(format!("its kernels read {elem}").into()));
            }
        };
        if found != (end - start) * columns {
            return Err(failed("its source gave rows of another length than its shape's".into()));
        }
        driver.upload(at + (start * columns * elem.bytes()) as u64, &bytes)?;
    }
    Ok(())
}
