//! Loads weights: each weight once, in the layout that its dots read.

use crate::device::CpuError;
use crate::memory::{Arena, Plain, Region};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use vosti_simd::layout::{Layout, PANEL};
use vosti_simd::micro::EncodeFn;
use vosti_simd::storage::{Form, Packed, Writer, blocks, exponents, integers};
use vosti_tile::Scalar;
use vosti_wiring::WiringError;
pub use vosti_wiring::{Quantised, TensorData, WeightError, Weights};

/// Elements that are read at once: enough to be fast, and a small part of the memory for weights.
const PART: usize = 1 << 20;

/// A weight's name, its elements and its layout, and whether panels that come in BF16 are kept in 13 bits.
type Key = (String, Scalar, Option<Layout>, bool);

/// Packed weights that several devices of one model share: each is loaded and packed once for all of them.
#[derive(Debug, Default)]
pub struct WeightCache {
    packed: Mutex<HashMap<Key, Arc<Buffer>>>,
}

impl WeightCache {
    /// A packed weight with at least `len` elements. If the cache has none, `pack` makes it.
    pub(crate) fn get<E>(
        &self,
        key: Key,
        len: usize,
        pack: impl FnOnce() -> Result<Buffer, E>,
    ) -> Result<Arc<Buffer>, E> {
        let mut packed = self.packed.lock().unwrap_or_else(|e| e.into_inner());
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
    /// The bytes.
    pub region: Region,
    /// The type of an element.
    pub elem: Scalar,
    /// Elements, in the kernel's view.
    pub len: usize,
    /// The order of the elements.
    pub layout: Layout,
}

impl Buffer {
    /// A buffer of `len` zeros, in the wanted layout if it accepts that length, else row-major.
    pub fn zeroed(arena: &mut Arena, elem: Scalar, len: usize, wanted: Option<Layout>) -> std::io::Result<Self> {
        let layout = Layout::chosen(wanted, len);
        let region = arena.zeroed(layout.bytes(len, elem.bytes()))?;
        Ok(Self { region, elem, len, layout })
    }

    /// A weight's first `rows` rows in the kernels' element type, packed. BF16 is widened to FP32 if a kernel reads FP32. Errors:
    /// the weight cannot be read, is FP32 where the kernel reads BF16, or does not fit into memory.
    pub fn packed(
        arena: &mut Arena,
        weights: &dyn Weights,
        name: &str,
        elem: Scalar,
        (rows, columns): (usize, usize),
        wanted: Option<Layout>,
        encode: Option<EncodeFn>,
    ) -> Result<Self, CpuError> {
        let part = (PART / columns.max(1)).next_multiple_of(PANEL).max(PANEL);
        let mut buffer = Self::zeroed(arena, elem, rows * columns, wanted)?;
        if let Layout::StoredPanels { row_len, .. } = buffer.layout {
            let used = buffer.store(weights, name, rows, row_len, encode)?;
            arena.shrink(&mut buffer.region, used);
            return Ok(buffer);
        }
        vosti_wiring::weights::read(weights, name, elem, rows, part, |first, data| {
            match data {
                TensorData::Bf16(data) => buffer.put(first, &data),
                TensorData::F32(data) => buffer.put(first, &data),
                TensorData::I8(data) => buffer.put(first, &data),
            }
            Ok::<_, CpuError>(())
        })?;
        Ok(buffer)
    }

    /// The panels of a matrix in blocks, for products in integers: `name` is a part of it. Errors: the weight cannot be read or
    /// has no blocks, or does not fit into memory.
    pub fn blocks(
        arena: &mut Arena,
        weights: &dyn Weights,
        name: &str,
        (rows, layout): (usize, Layout),
    ) -> Result<Self, CpuError> {
        let Layout::StoredPanels { row_len, cut, .. } = layout else { unreachable!("a matrix in panels") };
        let layout = Layout::StoredPanels { row_len, cut, part: None };
        let mut buffer = Self::zeroed(arena, Scalar::Bf16, rows * row_len, Some(layout))?;
        let used = buffer.panels(rows, |rows, number, room, writer| {
            if !quantised(weights, name, rows, room)? {
                let error = "its rows are not in blocks of one format".into();
                return Err(WiringError::Weight { name: name.into(), error }.into());
            }
            let form = Form::Integers(room.format);
            integers::pack(room, writer.place(number, form, form.bytes(row_len)));
            Ok(())
        })?;
        arena.shrink(&mut buffer.region, used);
        Ok(buffer)
    }

    /// The same memory, seen as a part of its blocks or as BF16 numbers.
    pub fn seen_as(&self, elem: Scalar, len: usize, layout: Layout) -> Self {
        Self { region: self.region.again(), elem, len, layout }
    }

    /// Packs a weight's panels, each in its form, on all cores; returns the bytes that they take.
    fn store(
        &mut self,
        weights: &dyn Weights,
        name: &str,
        rows: usize,
        row_len: usize,
        encode: Option<EncodeFn>,
    ) -> Result<usize, CpuError> {
        self.panels(rows, |rows, number, room, writer| {
            if quantised(weights, name, rows.clone(), room)? {
                let shape = blocks::Shape::of(room.format);
                shape.pack(room, writer.place(number, Form::Blocks(room.format), shape.panel_bytes(row_len)));
            } else {
                writer.put(number, &packed(weights, name, rows, row_len, encode)?);
            }
            Ok(())
        })
    }

    /// Makes all panels on all cores: `pack` has a panel's rows and number, room for blocks, and the writer. Returns the bytes
    /// that the panels take.
    fn panels(
        &mut self,
        rows: usize,
        pack: impl Fn(Range<usize>, usize, &mut Quantised, &Writer<'_>) -> Result<(), CpuError> + Sync,
    ) -> Result<usize, CpuError> {
        let layout = self.layout;
        let panels = layout.panels(rows);
        let bytes = self.region.len();
        let writer = Writer::new(panels, self.region.as_mut_slice(bytes));
        // Panels are taken in order, so that files are read from front to back. After an error no thread takes another one.
        let next = AtomicUsize::new(0);
        let work = || {
            // One room for all panels of a thread: the system would clear newly allocated memory for each.
            let mut room = Quantised::default();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= panels {
                    return Ok(());
                }
                pack(layout.panel_rows(i, rows), i, &mut room, &writer)
                    .inspect_err(|_| next.store(panels, Ordering::Relaxed))?;
            }
        };
        rayon::broadcast(|_| work()).into_iter().collect::<Result<(), CpuError>>()?;
        Ok(writer.used())
    }

    /// Packs elements from the flat index `first` on.
    fn put<T: Plain>(&mut self, first: usize, data: &[T]) {
        let footprint = self.layout.footprint(self.len);
        self.layout.pack(first, data, self.region.as_mut_slice(footprint));
    }
}

/// Reads some rows of a weight into `room` if the file has them in blocks; false if it does not.
fn quantised(weights: &dyn Weights, name: &str, rows: Range<usize>, room: &mut Quantised) -> Result<bool, CpuError> {
    let quantised = weights.quantised(name, rows, room);
    Ok(quantised.map_err(|error| WiringError::Weight { name: name.into(), error })?)
}

/// A panel of a weight that the file does not have in blocks: in 13 bits if its exponents are few enough, else in BF16.
fn packed(
    weights: &dyn Weights,
    name: &str,
    rows: Range<usize>,
    row_len: usize,
    encode: Option<EncodeFn>,
) -> Result<Packed, CpuError> {
    let order = Layout::RowPanels { row_len, pair: 2, cut: 0 };
    let mut panel = vec![0; order.footprint(PANEL * row_len)];
    vosti_wiring::weights::read_rows(weights, name, Scalar::Bf16, rows, |data| {
        let TensorData::Bf16(data) = data else { unreachable!("BF16 was asked for") };
        order.pack(0, &data, &mut panel);
        Ok::<_, CpuError>(())
    })?;
    if let Some(encode) = encode {
        let mut bytes = vec![0; exponents::panel_bytes(row_len)];
        if encode(&panel, &mut bytes) {
            return Ok(Packed { form: Form::Exponents, bytes });
        }
    }
    Ok(Packed::plain(&panel))
}
