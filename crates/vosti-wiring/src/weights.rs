//! The source of weights: a device asks it for some rows at a time, so no weight is in memory twice.

use crate::error::WiringError;
use crate::uniform::Uniform;
use std::ops::Range;
use vosti_kernels::{Format, Quantised, TensorData};
use vosti_tile::Scalar;
use vosti_tile::numerics::from_bf16;

/// Whatever went wrong in the weights' source.
pub type WeightError = Box<dyn std::error::Error + Send + Sync>;

/// Where a device gets its weights from, by the names in the bindings. It asks for one at a time, in parts,
/// which several threads may ask for at once.
pub trait Weights: Sync {
    /// The weight's axes, slowest first.
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError>;

    /// The elements of some rows (indices of the first axis), row-major.
    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError>;

    /// Puts the same rows as blocks in `room`, if that is how they are stored and all are alike: a device may keep these instead.
    /// False if not; `room` then holds nothing of use.
    fn quantised(&self, _name: &str, _rows: Range<usize>, _room: &mut Quantised) -> Result<bool, WeightError> {
        Ok(false)
    }

    /// The format that [`Weights::quantised`] gives these rows in, told without reading them. Blocks whose scales are no FP16's
    /// are the exception: they are found when they are read.
    fn format(&self, _name: &str, _rows: Range<usize>) -> Result<Option<&'static Format>, WeightError> {
        Ok(None)
    }

    /// How every element is made from its index, where it is no file's: a device may make the weight itself, in BF16.
    fn made(&self, _name: &str) -> Option<Uniform> {
        None
    }

    /// Whether the first axis is positions, so that a device whose requests are all shorter needs fewer rows.
    fn by_position(&self, _name: &str) -> bool {
        false
    }
}

/// A weight's first axis, and the product of the others.
pub fn shape(weights: &dyn Weights, name: &str) -> Result<(usize, usize), WiringError> {
    let shape = weights.shape(name).map_err(|error| WiringError::Weight { name: name.into(), error })?;
    Ok((shape.first().copied().unwrap_or(1), shape.iter().skip(1).product()))
}

/// Gives the first `rows` of a weight to `put` as the kernels' element type, `part` rows at a time, each time with the flat
/// index of the first element. BF16 widens to FP32; FP32 never narrows by itself.
pub fn read<E: From<WiringError>>(
    weights: &dyn Weights,
    name: &str,
    elem: Scalar,
    rows: usize,
    part: usize,
    mut put: impl FnMut(usize, TensorData) -> Result<(), E>,
) -> Result<(), E> {
    let (_, columns) = shape(weights, name)?;
    for start in (0..rows).step_by(part.max(1)) {
        let end = rows.min(start + part.max(1));
        read_rows(weights, name, elem, start..end, |data| put(start * columns, data))?;
    }
    Ok(())
}

/// Gives some rows of a weight to `put` as the kernels' element type.
pub fn read_rows<E: From<WiringError>>(
    weights: &dyn Weights,
    name: &str,
    elem: Scalar,
    rows: Range<usize>,
    put: impl FnOnce(TensorData) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |error: WeightError| WiringError::Weight { name: name.into(), error };
    let (_, columns) = shape(weights, name)?;
    let count = rows.len();
    let data = match (weights.rows(name, rows).map_err(failed)?, elem) {
        (data @ TensorData::Bf16(_), Scalar::Bf16) | (data @ TensorData::F32(_), Scalar::F32) => data,
        (TensorData::Bf16(data), Scalar::F32) => TensorData::F32(data.into_iter().map(from_bf16).collect()),
        _ => return Err(WiringError::WeightType { name: name.into(), elem }.into()),
    };
    if data.len() != count * columns {
        return Err(failed("its source gave rows of another length than its shape's".into()).into());
    }
    put(data)
}
