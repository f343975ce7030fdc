//! How weights get to the device: each once, a part at a time, row-major.

use crate::driver::{Address, Driver};
use crate::error::CudaError;
use vosti_tile::Scalar;
use vosti_wiring::{TensorData, Weights, weights};

/// Elements that are asked for at once.
const PART: usize = 1 << 22;

/// Uploads a weight as the kernels' element type.
pub(crate) fn upload(
    driver: &mut dyn Driver,
    at: Address,
    source: &dyn Weights,
    name: &str,
    elem: Scalar,
) -> Result<(), CudaError> {
    let (_, columns) = weights::shape(source, name)?;
    weights::read(source, name, elem, PART / columns.max(1), |first, data| {
        let bytes: Vec<u8> = match data {
            TensorData::Bf16(data) => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            TensorData::F32(data) => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        Ok(driver.upload(at + (first * elem.bytes()) as u64, &bytes)?)
    })
}
