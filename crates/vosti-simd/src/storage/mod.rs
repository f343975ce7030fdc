//! Compact forms of a BF16 matrix's panels: fewer bytes in memory, and exactly the same numbers.
//!
//! Decoding a few rows is limited by reading weights from memory, so weights are kept small and expanded for the dot. A panel
//! has one of four forms: BF16 as in `RowPanels`, 13 bits an element ([`exponents`], for weights that the file has in BF16),
//! or the blocks of a quantised file, for products in BF16 ([`blocks`]) or in integers ([`integers`]). All forms hold the same
//! BF16 numbers. The panels of a weight may have different forms, and the form changes no bit of a result.
//!
//! A weight is a list of its panels' offsets, followed by the panels, each at a multiple of 64 bytes. [`element_of_row`]
//! reads single elements; [`crate::micro`] has dots and whole panels.
//! Read next: [`blocks`], [`integers`], [`exponents`], [`crate::micro`].

pub mod blocks;
pub mod exponents;
pub mod integers;

use std::sync::Mutex;
use vosti_kernels::quantised::{BLOCK, FORMATS};
use vosti_kernels::{Format, Part, Quantised};

use crate::layout::{Layout, PANEL};

/// The alignment of every part of a weight in panels, in bytes.
pub const ALIGN: usize = 64;

/// The form of a panel's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In the order of `RowPanels`.
    Bf16,
    /// In 13 bits.
    Exponents,
    /// The blocks of this format, for products in BF16.
    Blocks(&'static Format),
    /// The blocks of this format, for products in integers.
    Integers(&'static Format),
}

impl Form {
    /// The form's number in a list of panels, below [`ALIGN`].
    fn number(self) -> usize {
        match self {
            Form::Bf16 => 0,
            Form::Exponents => 1,
            Form::Blocks(format) => 2 + index(format),
            Form::Integers(format) => 2 + FORMATS.len() + index(format),
        }
    }

    fn of(number: usize) -> Self {
        match number {
            0 => Form::Bf16,
            1 => Form::Exponents,
            _ => match FORMATS.get(number - 2) {
                Some(format) => Form::Blocks(format),
                None => Form::Integers(&FORMATS[number - 2 - FORMATS.len()]),
            },
        }
    }

    /// Bytes of a panel whose rows have `row_len` elements.
    pub fn bytes(self, row_len: usize) -> usize {
        match self {
            Form::Bf16 => 2 * PANEL * row_len.next_multiple_of(2),
            Form::Exponents => exponents::panel_bytes(row_len),
            Form::Blocks(format) | Form::Integers(format) => blocks::Shape::of(format).panel_bytes(row_len),
        }
    }

    /// A dot reads the panel in place if its first k and its length are multiples of this number of elements; else it reads a
    /// copy.
    pub fn granule(self) -> usize {
        match self {
            Form::Bf16 | Form::Exponents => 2,
            Form::Blocks(_) | Form::Integers(_) => blocks::UNIT,
        }
    }
}

/// A format's index in the list of all.
fn index(format: &Format) -> usize {
    FORMATS.iter().position(|known| known == format).expect("a format is one of all")
}

// A form's number stands in the bits below a panel's alignment.
const _: () = assert!(2 + 2 * FORMATS.len() <= ALIGN);

/// The most bytes that `panels` panels and their list take.
pub fn bytes_max(panels: usize, row_len: usize) -> usize {
    list_bytes(panels) + panels * Form::Bf16.bytes(row_len).max(exponents::panel_bytes(row_len))
}

/// Bytes of the list of `panels` panels.
pub fn list_bytes(panels: usize) -> usize {
    (8 * panels).next_multiple_of(ALIGN)
}

/// A panel in memory.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// The panel's first byte.
    pub at: *const u8,
    /// The form of its bytes.
    pub form: Form,
}

/// The panel with a number, from 0.
///
/// # Safety
/// `base` is a weight in panels that has the panel.
#[inline(always)]
pub unsafe fn panel(base: *const u8, number: usize) -> Panel {
    // SAFETY: the caller's; the list says where the panel is.
    unsafe {
        let entry = *base.cast::<u64>().add(number) as usize;
        Panel { at: base.add(entry / ALIGN * ALIGN), form: Form::of(entry % ALIGN) }
    }
}

/// The bytes of a panel, before they are written to a weight.
pub struct Packed {
    /// The form of its bytes.
    pub form: Form,
    /// The panel in its form.
    pub bytes: Vec<u8>,
}

impl Packed {
    /// A panel in the order of `RowPanels`.
    pub fn plain(panel: &[u16]) -> Self {
        Self { form: Form::Bf16, bytes: panel.iter().flat_map(|bits| bits.to_ne_bytes()).collect() }
    }

    /// A panel of up to 64 rows in the blocks of their format.
    pub fn blocks(rows: &Quantised) -> Self {
        let shape = blocks::Shape::of(rows.format);
        let mut bytes = vec![0; shape.panel_bytes(rows.columns)];
        shape.pack(rows, &mut bytes);
        Self { form: Form::Blocks(rows.format), bytes }
    }

    /// A panel of up to 64 rows in the blocks of their format, for products in integers.
    pub fn integers(rows: &Quantised) -> Self {
        let form = Form::Integers(rows.format);
        let mut bytes = vec![0; form.bytes(rows.columns)];
        integers::pack(rows, &mut bytes);
        Self { form, bytes }
    }
}

/// Writes a weight's panels, from several threads and in any order.
pub struct Writer<'a>(Mutex<Room<'a>>);

/// The list of panels, and the bytes that no panel has yet.
struct Room<'a> {
    list: &'a mut [u8],
    rest: &'a mut [u8],
    used: usize,
}

impl<'a> Writer<'a> {
    /// A writer of `panels` panels to `out`, which has the bytes of [`bytes_max`].
    pub fn new(panels: usize, out: &'a mut [u8]) -> Self {
        let used = list_bytes(panels);
        let (list, rest) = out.split_at_mut(used);
        Self(Mutex::new(Room { list, rest, used }))
    }

    /// Writes the panel with a number.
    pub fn put(&self, number: usize, panel: &Packed) {
        self.place(number, panel.form, panel.bytes.len()).copy_from_slice(&panel.bytes);
    }

    /// Room for the panel with a number, which no other panel has; zeros if `out` was zero. Each number must come once.
    pub fn place(&self, number: usize, form: Form, len: usize) -> &'a mut [u8] {
        let mut room = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let entry = (room.used + form.number()) as u64;
        room.list[8 * number..][..8].copy_from_slice(&entry.to_ne_bytes());
        let rest = std::mem::take(&mut room.rest);
        let (place, rest) = rest.split_at_mut(len.next_multiple_of(ALIGN).min(rest.len()));
        (room.rest, room.used) = (rest, room.used + place.len());
        &mut place[..len]
    }

    /// Bytes that the list and all panels take.
    pub fn used(self) -> usize {
        self.0.into_inner().unwrap_or_else(|e| e.into_inner()).used
    }
}

/// The bits of an element of a stored weight, by its index in the kernel's view.
///
/// # Safety
/// `base` is a weight in panels of this layout that has the element.
#[inline(always)]
pub unsafe fn load(base: *const u8, layout: Layout, index: usize) -> u32 {
    let Layout::StoredPanels { row_len, part, .. } = layout else { unreachable!("a weight in panels") };
    let width = layout.row(row_len);
    let (row, at) = (layout.place(index / width), index % width);
    // SAFETY: the caller's promise.
    unsafe {
        let Some(part) = part else { return element_of_row(base, row, at).into() };
        let Panel { at: panel, form: Form::Integers(format) } = panel(base, row / PANEL) else {
            unreachable!("a panel for products in integers")
        };
        let of = |k| integers::element(format, panel, row % PANEL, k);
        match part {
            Part::Codes => of(at).value as u8 as u32,
            Part::Scales => of(at * BLOCK / 2).scale.to_bits(),
            Part::Offsets => (-of(at * BLOCK / 2).minimum).to_bits(),
        }
    }
}

/// The k-th element of a row, by the row's place among all panels' ([`crate::layout::Layout::place`]).
///
/// # Safety
/// `base` is a weight in panels that has the element.
#[inline(always)]
pub unsafe fn element_of_row(base: *const u8, row: usize, k: usize) -> u16 {
    // SAFETY: the caller's promise; every part lies within its panel.
    unsafe {
        let Panel { at, form } = panel(base, row / PANEL);
        match form {
            Form::Bf16 => *at.cast::<u16>().add(k / 2 * 2 * PANEL + row % PANEL * 2 + k % 2),
            Form::Exponents => exponents::element(at, row % PANEL, k),
            Form::Blocks(format) => blocks::Shape::of(format).element(at, row % PANEL, k),
            Form::Integers(format) => integers::element(format, at, row % PANEL, k).bf16(),
        }
    }
}
