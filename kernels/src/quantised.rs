//! Rows of a block-quantised weight, unpacked without loss: the blocks of a file, in one form for all of GGML's types.
//!
//! Every element is `f32(scale * value - minimum)`, rounded to BF16 after that. `scale` is its chunk's `d`, times its group's
//! own scale where the format has one; `minimum` is made in the same way; `value` is the small integer of its code. Both
//! products are exact in FP32 for every format (11 bits of an FP16, at most 7 of a group's scale and 7 of a value), so only
//! the subtraction rounds, and a fused multiply-add gives the same bits. `vosti-model` reads the blocks of a file.
//! Read next: [`crate::spec::TensorData`].

use crate::spec::TensorData;

/// The numbers that codes stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// The code plus this number.
    From(i16),
    /// One of 16 numbers, which the code's low four bits select.
    Table(&'static [i8; 16]),
}

/// How a quantised type's elements are made.
#[derive(Debug, PartialEq, Eq)]
pub struct Format {
    /// GGML's name.
    pub name: &'static str,
    /// Bits of a code: 2, 3, 4, 5, 6 or 8.
    pub bits: usize,
    /// How a code becomes a number.
    pub values: Values,
    /// Elements that share a scale: 16 or 32.
    pub group: usize,
    /// Elements that share a `d`: 32 or 256. Groups of a longer chunk have scales of their own, which multiply it.
    pub chunk: usize,
    /// Whether a minimum is subtracted.
    pub minimum: bool,
}

impl Format {
    const fn small(name: &'static str, bits: usize, values: Values, minimum: bool) -> Self {
        Self { name, bits, values, group: 32, chunk: 32, minimum }
    }

    const fn large(name: &'static str, bits: usize, first: i16, group: usize, minimum: bool) -> Self {
        Self { name, bits, values: Values::From(first), group, chunk: 256, minimum }
    }

    /// Whether groups have scales of their own.
    pub fn two_levels(&self) -> bool {
        self.chunk > self.group
    }

    /// The number that a code stands for.
    #[inline(always)]
    pub fn value(&self, code: u8) -> f32 {
        match self.values {
            Values::From(first) => f32::from(i16::from(code) + first),
            Values::Table(values) => f32::from(values[usize::from(code & 15)]),
        }
    }
}

const IQ4: Values = Values::Table(&[-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]);
const FP4: Values = Values::Table(&[0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);

/// Every format. A device may name a format by its index.
pub static FORMATS: [Format; 13] = [
    Format::small("Q8_0", 8, Values::From(-128), false),
    Format::small("Q4_0", 4, Values::From(-8), false),
    Format::small("Q4_1", 4, Values::From(0), true),
    Format::small("Q5_0", 5, Values::From(-16), false),
    Format::small("Q5_1", 5, Values::From(0), true),
    Format::large("Q2_K", 2, 0, 16, true),
    Format::large("Q3_K", 3, -4, 16, false),
    Format::large("Q4_K", 4, 0, 32, true),
    Format::large("Q5_K", 5, 0, 32, true),
    Format::large("Q6_K", 6, -32, 16, false),
    Format::small("IQ4_NL", 4, IQ4, false),
    Format { name: "IQ4_XS", bits: 4, values: IQ4, group: 32, chunk: 256, minimum: false },
    Format::small("MXFP4", 4, FP4, false),
];

/// The format of GGML's name, and its index in [`FORMATS`]; None if there is none.
pub fn format(name: &str) -> Option<(usize, &'static Format)> {
    FORMATS.iter().enumerate().find(|(_, format)| format.name == name)
}

/// Elements of a block of products in integers, along k. Each half of one has a scale and an offset.
pub const BLOCK: usize = 32;

/// What products in integers read of a matrix in blocks: one of three weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// `[row][column]`, 8 bits: the value of each element's code.
    Codes,
    /// `[row][half block]`, FP32: the scale of the elements of half a block.
    Scales,
    /// `[row][half block]`, FP32: what is added to them, the negative of their minimum; -0 if the format has none.
    Offsets,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 3] = [Part::Codes, Part::Scales, Part::Offsets];

    /// The name of the kernel parameter that the part is bound to.
    pub fn parameter(self) -> &'static str {
        match self {
            Part::Codes => "codes",
            Part::Scales => "scales",
            Part::Offsets => "offsets",
        }
    }

    /// The part's elements in a row of `columns` elements.
    pub fn columns(self, columns: usize) -> usize {
        match self {
            Part::Codes => columns,
            Part::Scales | Part::Offsets => columns / (BLOCK / 2),
        }
    }
}

/// Rows of one format and of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// The format of all rows.
    pub format: &'static Format,
    /// Elements of a row: a multiple of the format's chunk.
    pub columns: usize,
    /// `[row][chunk]`: the scale `d` of each chunk, as FP16 bit patterns.
    pub scales: Vec<u16>,
    /// `[row][chunk]`: the minimum of each chunk, as FP16 bit patterns; empty if the format has no minimum.
    pub minima: Vec<u16>,
    /// `[row][group]`: the factor of each group's scale; empty if the format has one level.
    pub group_scales: Vec<i8>,
    /// `[row][group]`: the factor of each group's minimum; empty if the format has one level or no minimum.
    pub group_minima: Vec<i8>,
    /// `[row][column]`: one code in each byte.
    pub codes: Vec<u8>,
}

impl Quantised {
    /// No rows of this format and length. Panics if `columns` is no multiple of the format's chunk.
    pub fn new(format: &'static Format, columns: usize) -> Self {
        assert!(columns.is_multiple_of(format.chunk));
        let none = Vec::new;
        Self {
            format,
            columns,
            scales: none(),
            minima: none(),
            group_scales: vec![],
            group_minima: vec![],
            codes: vec![],
        }
    }

    /// Removes all rows, and keeps their memory for rows of this format and length. Panics as [`Quantised::new`].
    pub fn restart(&mut self, format: &'static Format, columns: usize) {
        assert!(columns.is_multiple_of(format.chunk));
        (self.format, self.columns) = (format, columns);
        self.scales.clear();
        self.minima.clear();
        self.group_scales.clear();
        self.group_minima.clear();
        self.codes.clear();
    }

    /// A part of all rows, row-major.
    pub fn part(&self, part: Part) -> TensorData {
        let Format { group, chunk, minimum, .. } = *self.format;
        if part == Part::Codes {
            return TensorData::I8(self.codes.iter().map(|code| self.format.value(*code) as i8).collect());
        }
        let (level, factors) = match part {
            Part::Offsets => (&self.minima, &self.group_minima),
            _ => (&self.scales, &self.group_scales),
        };
        let of = |half: usize| {
            let first = half * BLOCK / 2;
            let scale = half::f16::from_bits(level[first / chunk]).to_f32();
            factors.get(first / group).map_or(scale, |factor| scale * f32::from(*factor))
        };
        let halves = 0..self.codes.len() / (BLOCK / 2);
        TensorData::F32(match part {
            Part::Offsets if minimum => halves.map(|half| -of(half)).collect(),
            Part::Offsets => vec![-0.0; halves.len()],
            _ => halves.map(of).collect(),
        })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.codes.len().checked_div(self.columns).unwrap_or(0)
    }
}

impl Default for Quantised {
    /// No rows; [`Quantised::restart`] gives the format and length.
    fn default() -> Self {
        Self::new(&FORMATS[0], 0)
    }
}
