//! The source of weights. A device asks for some rows at a time, so no weight is in memory twice.

use crate::error::WiringError;
use crate::uniform::Uniform;
use std::ops::Range;
use vosti_kernels::{Format, Part, Quantised, TensorData};
use vosti_tile::Scalar;
use vosti_tile::numerics::from_bf16;

/// An error of the source of weights.
pub type WeightError = Box<dyn std::error::Error + Send + Sync>;

/// The source of a device's weights, by the names in the bindings. A device asks for one weight at a time, in parts;
/// several threads may ask for parts at once.
pub trait Weights: Sync {
    /// The weight's axes, slowest first.
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError>;

    /// The elements of some rows (indices of the first axis), row-major.
    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError>;

    /// Puts the same rows as blocks in `room`, if they are stored as blocks of one format; a device may keep the blocks instead.
    /// False if they are not; the contents of `room` are then undefined.
    fn quantised(&self, _name: &str, _rows: Range<usize>, _room: &mut Quantised) -> Result<bool, WeightError> {
        Ok(false)
    }

    /// The format in which [`Weights::quantised`] gives these rows, without reading them; None if it gives none. One exception:
    /// blocks whose scales are not FP16 numbers are found only when they are read.
    fn format(&self, _name: &str, _rows: Range<usize>) -> Result<Option<&'static Format>, WeightError> {
        Ok(None)
    }

    /// The matrix whose blocks the weight is a part of, and the part; None for any other weight. [`Weights::quantised`] of the
    /// weight's name gives the blocks of the matrix's rows.
    fn part(&self, _name: &str) -> Option<(String, Part)> {
        None
    }

    /// How every element is made from its index, for a weight that is in no file; a device may then make it itself, in BF16.
    fn made(&self, _name: &str) -> Option<Uniform> {
        None
    }

    /// Whether the first axis is positions, so that a device whose requests are all shorter needs fewer rows.
    fn by_position(&self, _name: &str) -> bool {
        false
    }
}

/// The extent of a weight's first axis, and the product of the others.
pub fn shape(weights: &dyn Weights, name: &str) -> Result<(usize, usize), WiringError> {
    let shape = weights.shape(name).map_err(|error| WiringError::Weight { name: name.into(), error })?;
    Ok((shape.first().copied().unwrap_or(1), shape.iter().skip(1).product()))
}

/// Gives the first `rows` of a weight to `put` as the kernels' element type, `part` rows at a time, each time with the flat
/// index of the first element. BF16 widens to FP32. FP32 never narrows: [`WiringError::WeightType`].
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

/// Gives some rows of a weight to `put` as the kernels' element type; errors as in [`read`].
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
        (data @ TensorData::Bf16(_), Scalar::Bf16)
        | (data @ TensorData::F32(_), Scalar::F32)
        | (data @ TensorData::I8(_), Scalar::I8) => data,
        (TensorData::Bf16(data), Scalar::F32) => TensorData::F32(data.into_iter().map(from_bf16).collect()),
        _ => return Err(WiringError::WeightType { name: name.into(), elem }.into()),
    };
    if data.len() != count * columns {
        return Err(failed("its source gave rows of another length than its shape's".into()).into());
    }
    put(data)
}
