//! Where weights come from, and how they are kept: once each, in the layout that their dots read.

use crate::layout::Layout;
use crate::memory::{Arena, Plain, Region};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use vosti_tile::Scalar;

/// A weight's elements, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// BF16 bit patterns.
    Bf16(Vec<u16>),
    F32(Vec<f32>),
}

/// A weight as it is loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Axes, slowest first.
    pub shape: Vec<usize>,
    pub data: TensorData,
}

/// Where a device gets its weights from, by the names in the bindings. It asks for one at a time, each once.
pub trait Weights {
    fn load(&self, name: &str) -> Result<Tensor, Box<dyn std::error::Error + Send + Sync>>;
}

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
        data: TensorData,
        elem: Scalar,
        wanted: Option<Layout>,
    ) -> std::io::Result<Option<Self>> {
        Ok(match (data, elem) {
            (TensorData::Bf16(data), Scalar::Bf16) => Some(Self::of(arena, &data, elem, wanted)?),
            (TensorData::F32(data), Scalar::F32) => Some(Self::of(arena, &data, elem, wanted)?),
            (TensorData::Bf16(data), Scalar::F32) => {
                let wide: Vec<f32> = data.into_iter().map(vosti_tile::numerics::from_bf16).collect();
                Some(Self::of(arena, &wide, elem, wanted)?)
            }
            _ => None,
        })
    }

    fn of<T: Plain>(arena: &mut Arena, data: &[T], elem: Scalar, wanted: Option<Layout>) -> std::io::Result<Self> {
        let mut buffer = Self::zeroed(arena, elem, data.len(), wanted)?;
        let footprint = buffer.layout.footprint(data.len());
        buffer.layout.pack(data, buffer.region.as_mut_slice(footprint));
        Ok(buffer)
    }
}
