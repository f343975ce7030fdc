//! How weights are kept: once each, in the layout that their dots read.

use crate::coded::Writer;
use crate::device::CpuError;
use crate::layout::{Layout, PANEL};
use crate::memory::{Arena, Plain, Region};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use vosti_tile::Scalar;
pub use vosti_wiring::{TensorData, WeightError, Weights};

/// Codes a panel, if it has a code.
type Encode = fn(&[u16], &mut [u8]) -> bool;

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
    /// The weight's first `len` elements or more in this form, made by `pack` if no device has asked for as many yet.
    pub(crate) fn get<E>(
        &self,
        name: &str,
        elem: Scalar,
        layout: Option<Layout>,
        len: usize,
        pack: impl FnOnce() -> Result<Buffer, E>,
    ) -> Result<Arc<Buffer>, E> {
        let mut packed = self.packed.lock().unwrap_or_else(|e| e.into_inner());
        let key = (name.to_string(), elem, layout);
        if let Some(found) = packed.get(&key).filter(|found| found.len >= len) {
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
        let region = arena.zeroed(layout.bytes(len, elem.bytes()))?;
        Ok(Self { region, elem, len, layout })
    }

    /// A weight's first `rows` as the kernels' element type, packed. BF16 widens to FP32; FP32 never narrows by itself.
    pub fn packed(
        arena: &mut Arena,
        weights: &dyn Weights,
        name: &str,
        elem: Scalar,
        (rows, columns): (usize, usize),
        wanted: Option<Layout>,
        encode: Option<Encode>,
    ) -> Result<Self, CpuError> {
        let part = (PART / columns.max(1)).next_multiple_of(PANEL).max(PANEL);
        let mut buffer = Self::zeroed(arena, elem, rows * columns, wanted)?;
        if let (Layout::CodedPanels { row_len }, Some(encode)) = (buffer.layout, encode) {
            let mut writer = Writer::new(rows.div_ceil(PANEL));
            let (order, mut panel) = (Layout::RowPanels { row_len, pair: 2 }, vec![0; PANEL * row_len]);
            let bytes = buffer.region.len();
            vosti_wiring::weights::read(weights, name, elem, rows, part, |_, data| {
                let TensorData::Bf16(data) = data else { unreachable!("BF16 was asked for") };
                for rows in data.chunks(panel.len()) {
                    panel.fill(0);
                    order.pack(0, rows, &mut panel);
                    writer.add(&panel, buffer.region.as_mut_slice(bytes), encode);
                }
                Ok::<_, CpuError>(())
            })?;
            arena.shrink(&mut buffer.region, writer.used());
            return Ok(buffer);
        }
        vosti_wiring::weights::read(weights, name, elem, rows, part, |first, data| {
            match data {
                TensorData::Bf16(data) => buffer.put(first, &data),
                TensorData::F32(data) => buffer.put(first, &data),
            }
            Ok::<_, CpuError>(())
        })?;
        Ok(buffer)
    }

    /// Packs elements from the flat index `first` on.
    fn put<T: Plain>(&mut self, first: usize, data: &[T]) {
        let footprint = self.layout.footprint(self.len);
        self.layout.pack(first, data, self.region.as_mut_slice(footprint));
    }
}
