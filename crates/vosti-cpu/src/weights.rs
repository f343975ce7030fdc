//! Where weights come from, and how they are kept: once each, in the layout that their dots read.

use crate::device::CpuError;
use crate::layout::{Layout, PANEL};
use crate::memory::{Arena, Plain, Region};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use vosti_tile::Scalar;

/// A weight's elements, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// BF16 bit patterns.
    Bf16(Vec<u16>),
    F32(Vec<f32>),
}

impl TensorData {
    /// The elements of a range.
    pub fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::Bf16(data) => Self::Bf16(data[range].to_vec()),
            Self::F32(data) => Self::F32(data[range].to_vec()),
        }
    }
}

/// Where a device gets its weights from, by the names in the bindings. It asks for one at a time, each once, in parts,
/// so that no weight is in memory twice.
pub trait Weights {
    /// The weight's axes, slowest first.
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError>;

    /// The elements of some rows (indices of the first axis), row-major.
    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError>;
}

/// Whatever went wrong in the weights' source.
pub type WeightError = Box<dyn std::error::Error + Send + Sync>;

/// Elements that are asked for at once: enough to be quick, few enough to be nothing beside the weights.
const PART: usize = 1 << 20;

/// A weight's name, its elements and its layout.
type Packed = (String, Scalar, Option<Layout>);

/// Packed weights that several devices of one model share: each is loaded and packed once for all of them.
#[derive(Debug, Default)]
pub struct WeightCache {
    packed: Mutex<HashMap<Packed, Arc<Buffer>>>,
}

impl WeightCache {
    /// The weight in this form, made by `pack` if no device has asked for it yet.
    pub(crate) fn get<E>(
        &self,
        name: &str,
        elem: Scalar,
        layout: Option<Layout>,
        pack: impl FnOnce() -> Result<Buffer, E>,
    ) -> Result<Arc<Buffer>, E> {
        let mut packed = self.packed.lock().unwrap_or_else(|e| e.into_inner());
        let key = (name.to_string(), elem, layout);
        if let Some(found) = packed.get(&key) {
            return Ok(found.clone());
        }
        let made = Arc::new(pack()?);
        packed.insert(key, made.clone());
        Ok(made)
    }
}

/// A buffer in memory: element type, length in elements, layout.
#[derive(Debug)]
pub struct Buffer {
    pub region: Region,
    pub elem: Scalar,
    pub len: usize,
    pub layout: Layout,
}

impl Buffer {
    /// Zeros, row-major unless the layout fits the length.
    pub fn zeroed(arena: &mut Arena, elem: Scalar, len: usize, wanted: Option<Layout>) -> std::io::Result<Self> {
        let layout = wanted.filter(|l| l.accepts(len)).unwrap_or(Layout::RowMajor);
        let region = arena.zeroed(layout.footprint(len) * elem.bytes())?;
        Ok(Self { region, elem, len, layout })
    }

    /// A weight as the kernels' element type, packed. BF16 widens to FP32; FP32 never narrows by itself.
    pub fn packed(
        arena: &mut Arena,
        weights: &dyn Weights,
        name: &str,
        elem: Scalar,
        wanted: Option<Layout>,
    ) -> Result<Self, CpuError> {
        let failed = |error: WeightError| CpuError::Weight { name: name.into(), error };
        let shape = weights.shape(name).map_err(failed)?;
        let (rows, columns) = (shape.first().copied().unwrap_or(1), shape.iter().skip(1).product::<usize>());
        let mut buffer = Self::zeroed(arena, elem, rows * columns, wanted)?;
        let part = (PART / columns.max(1)).next_multiple_of(PANEL).max(PANEL);
        for start in (0..rows).step_by(part) {
            let end = rows.min(start + part);
            let first = start * columns;
            let length = (end - start) * columns;
            match (weights.rows(name, start..end).map_err(failed)?, elem) {
                (TensorData::Bf16(data), Scalar::Bf16) if data.len() == length => buffer.put(first, &data),
                (TensorData::F32(data), Scalar::F32) if data.len() == length => buffer.put(first, &data),
                (TensorData::Bf16(data), Scalar::F32) if data.len() == length => {
                    let wide: Vec<f32> = data.into_iter().map(vosti_tile::numerics::from_bf16).collect();
                    buffer.put(first, &wide);
                }
                (TensorData::F32(_), _) => return Err(CpuError::WeightType { name: name.into(), elem }),
                _ => return Err(failed("its source gave rows of another length than its shape's".into())),
            }
        }
        Ok(buffer)
    }

    /// Packs elements from the flat index `first` on.
    fn put<T: Plain>(&mut self, first: usize, data: &[T]) {
        let footprint = self.layout.footprint(self.len);
        self.layout.pack(first, data, self.region.as_mut_slice(footprint));
    }
}
