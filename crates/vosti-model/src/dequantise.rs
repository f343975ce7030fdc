//! GGML's element types: unpacks blocks and expands them to f32.
//!
//! A quantised block is first unpacked into its scales and codes ([`Block`]), which a device may keep. One formula
//! (`vosti_kernels::quantised`) computes the floats from them. They equal those of the `gguf` package's NumPy code, bit for bit
//! (`tests/dequantise.rs`).

use vosti_kernels::Format;
use vosti_kernels::quantised::format;

/// The version of the expansions, part of a deployment's fingerprint. A change of any expanded bit must raise it.
pub const VERSION: u32 = 1;

/// The supported element types of GGUF files and safetensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, missing_docs)] // the names are GGML's
pub enum GgmlType {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
}

const SMALL: usize = 32;
const SUPER: usize = 256;

/// Every type, its code in a GGUF file and its name.
const TYPES: [(GgmlType, u32, &str); 16] = [
    (GgmlType::F32, 0, "F32"),
    (GgmlType::F16, 1, "F16"),
    (GgmlType::BF16, 30, "BF16"),
    (GgmlType::Q8_0, 8, "Q8_0"),
    (GgmlType::Q4_0, 2, "Q4_0"),
    (GgmlType::Q4_1, 3, "Q4_1"),
    (GgmlType::Q5_0, 6, "Q5_0"),
    (GgmlType::Q5_1, 7, "Q5_1"),
    (GgmlType::Q2_K, 10, "Q2_K"),
    (GgmlType::Q3_K, 11, "Q3_K"),
    (GgmlType::Q4_K, 12, "Q4_K"),
    (GgmlType::Q5_K, 13, "Q5_K"),
    (GgmlType::Q6_K, 14, "Q6_K"),
    (GgmlType::IQ4_NL, 20, "IQ4_NL"),
    (GgmlType::IQ4_XS, 23, "IQ4_XS"),
    (GgmlType::MXFP4, 39, "MXFP4"),
];

/// GGML's names of unsupported types, by code, for messages.
const UNREAD: [(u32, &str); 19] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
    (4, "Q4_2"),
    (5, "Q4_3"),
];

impl GgmlType {
    /// The type with this code in a GGUF file.
    pub fn from_code(code: u32) -> Option<Self> {
        TYPES.iter().find(|(_, known, _)| *known == code).map(|(kind, ..)| *kind)
    }

    /// The name of an unsupported type, if it is known.
    pub fn unread(code: u32) -> String {
        match UNREAD.iter().find(|(known, _)| *known == code) {
            Some((_, name)) => format!("{name} (GGML type {code})"),
            None => format!("GGML type {code}"),
        }
    }

    /// Every supported type, for messages.
    pub fn names() -> Vec<&'static str> {
        TYPES.iter().map(|(.., name)| *name).collect()
    }

    /// GGML's name.
    pub fn name(self) -> &'static str {
        TYPES.iter().find(|(kind, ..)| *kind == self).map_or("?", |(.., name)| *name)
    }

    /// Elements in a block.
    pub fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::IQ4_NL | Self::MXFP4 => SMALL,
            Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K | Self::IQ4_XS => SUPER,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 | Self::IQ4_NL => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q2_K => 84,
            Self::Q3_K => 110,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
            Self::IQ4_XS => 136,
            Self::MXFP4 => 17,
        }
    }

    /// The format of a quantised type's elements; `None` for a type of plain numbers.
    pub fn format(self) -> Option<&'static Format> {
        format(self.name()).map(|(_, format)| format)
    }

    /// The first block with an element that is not finite, because of its scale or minimum. `None` for plain numbers, which are
    /// not checked.
    pub fn first_not_finite(self, bytes: &[u8]) -> Option<usize> {
        let f16 = |b: &[u8], at: usize| b[at + 1] & 0x7c != 0x7c;
        let finite = |b: &[u8]| match self {
            Self::F32 | Self::F16 | Self::BF16 => true,
            Self::Q8_0 | Self::Q4_0 | Self::Q5_0 | Self::IQ4_NL | Self::IQ4_XS => f16(b, 0),
            Self::Q4_1 | Self::Q5_1 | Self::Q4_K | Self::Q5_K => f16(b, 0) && f16(b, 2),
            Self::Q2_K => f16(b, 80) && f16(b, 82),
            Self::Q3_K => f16(b, 108),
            Self::Q6_K => f16(b, 208),
            // 255 is NaN in OCP's specification; from 253 on, twelve times the scale is infinite.
            Self::MXFP4 => b[0] < 253,
        };
        bytes.chunks_exact(self.block_bytes()).position(|block| !finite(block))
    }

    /// Expands whole blocks to f32. `bytes` has as many elements as `out`.
    pub fn expand(self, bytes: &[u8], out: &mut [f32]) {
        let blocks = bytes.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_elements()));
        match (self, self.format()) {
            (_, Some(format)) => {
                let mut unpacked = Block::default();
                for (bytes, out) in blocks {
                    unpacked.read(self, bytes);
                    unpacked.expand(format, out);
                }
            }
            (Self::F32, _) => blocks.for_each(|(b, o)| o[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            (Self::F16, _) => blocks.for_each(|(b, o)| o[0] = half16(b, 0)),
            _ => blocks.for_each(|(b, o)| o[0] = f32::from_bits(u32::from(b[1]) << 24 | u32::from(b[0]) << 16)),
        }
    }
}

fn half16(b: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

/// An unpacked quantised block. If a type has no minimum it is 0, and if it has no scales of groups they are 1.
#[derive(Clone, Debug)]
pub struct Block {
    /// The block's scale.
    pub d: f32,
    /// The factor of its groups' minima. The product is subtracted; for types that add it, the factor is negated.
    pub m: f32,
    /// The scale of each group.
    pub scales: [i8; 16],
    /// The minimum of each group.
    pub minima: [i8; 16],
    /// The code of each element.
    pub codes: [u8; SUPER],
}

impl Default for Block {
    fn default() -> Self {
        Self { d: 0.0, m: 0.0, scales: [1; 16], minima: [1; 16], codes: [0; SUPER] }
    }
}

impl Block {
    /// Unpacks a block of a quantised type from its bytes. Panics if `kind` is a type of plain numbers.
    pub fn read(&mut self, kind: GgmlType, b: &[u8]) {
        use GgmlType::*;
        self.m = 0.0;
        match kind {
            F32 | F16 | BF16 => unreachable!("no quantised type"),
            Q8_0 => {
                self.d = half16(b, 0);
                self.codes.iter_mut().zip(&b[2..]).for_each(|(code, q)| *code = q ^ 0x80);
            }
            Q4_0 | IQ4_NL => self.nibbles(half16(b, 0), 0.0, &b[2..]),
            MXFP4 => self.nibbles(power(b[0]), 0.0, &b[1..]),
            Q4_1 => self.nibbles(half16(b, 0), -half16(b, 2), &b[4..]),
            Q5_0 => {
                self.nibbles(half16(b, 0), 0.0, &b[6..]);
                self.fifths(&b[2..6]);
            }
            Q5_1 => {
                self.nibbles(half16(b, 0), -half16(b, 2), &b[8..]);
                self.fifths(&b[4..8]);
            }
            Q2_K => self.q2_k(b),
            Q3_K => self.q3_k(b),
            Q4_K => self.q4_k(b, &b[16..], None),
            Q5_K => self.q4_k(b, &b[48..], Some(&b[16..48])),
            Q6_K => self.q6_k(b),
            IQ4_XS => self.iq4_xs(b),
        }
    }

    /// Computes the elements in f32.
    fn expand(&self, format: &Format, out: &mut [f32]) {
        let groups = out.chunks_exact_mut(format.group).zip(self.codes.chunks_exact(format.group));
        for ((out, codes), (scale, minimum)) in groups.zip(self.scales.iter().zip(&self.minima)) {
            let (scale, minimum) = (self.d * f32::from(*scale), self.m * f32::from(*minimum));
            out.iter_mut().zip(codes).for_each(|(out, code)| *out = scale * format.value(*code) - minimum);
        }
    }

    /// Unpacks 16 bytes: their low halves are a small block's first 16 codes, their high halves the others.
    fn nibbles(&mut self, d: f32, m: f32, quants: &[u8]) {
        (self.d, self.m) = (d, m);
        let (low, high) = self.codes.split_at_mut(SMALL / 2);
        for ((q, low), high) in quants[..SMALL / 2].iter().zip(low).zip(high) {
            (*low, *high) = (q & 15, q >> 4);
        }
    }

    /// Adds the fifth bits of a small block's codes, which are one little-endian word.
    fn fifths(&mut self, b: &[u8]) {
        let bits = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let codes = self.codes[..SMALL].iter_mut().enumerate();
        codes.for_each(|(i, code)| *code |= ((bits >> i & 1) as u8) << 4);
    }

    fn q2_k(&mut self, b: &[u8]) {
        (self.d, self.m) = (half16(b, 80), half16(b, 82));
        for (i, byte) in b[..16].iter().enumerate() {
            (self.scales[i], self.minima[i]) = ((byte & 15) as i8, (byte >> 4) as i8);
        }
        self.crumbs(&b[16..80]);
    }

    /// Unpacks codes of two bits: of 128 codes, the first 32 are the lowest two bits of 32 bytes, the next 32 the next two, and
    /// so on.
    fn crumbs(&mut self, quants: &[u8]) {
        for (j, codes) in self.codes.chunks_exact_mut(SMALL).enumerate() {
            let shift = 2 * (j % 4);
            codes.iter_mut().zip(&quants[j / 4 * SMALL..]).for_each(|(code, q)| *code = q >> shift & 3);
        }
    }

    fn q3_k(&mut self, b: &[u8]) {
        self.d = half16(b, 108);
        let scales = &b[96..108];
        for (j, scale) in self.scales.iter_mut().enumerate() {
            let (low, high) = (scales[j % 8] >> (j / 8 * 4) & 15, scales[8 + j % 4] >> (j / 4 * 2) & 3);
            *scale = (low | high << 4) as i8 - 32;
        }
        self.crumbs(&b[32..96]);
        for (j, codes) in self.codes.chunks_exact_mut(SMALL).enumerate() {
            codes.iter_mut().zip(&b[..32]).for_each(|(code, thirds)| *code |= (thirds >> j & 1) << 2);
        }
    }

    /// Unpacks Q4_K and Q5_K: four bits for each code and, in Q5_K, a fifth.
    fn q4_k(&mut self, b: &[u8], quants: &[u8], fifths: Option<&[u8]>) {
        (self.d, self.m) = (half16(b, 0), half16(b, 2));
        for j in 0..8 {
            (self.scales[j], self.minima[j]) = scale_min(&b[4..16], j);
        }
        for (j, codes) in self.codes.chunks_exact_mut(SMALL).enumerate() {
            let shift = 4 * (j % 2);
            codes.iter_mut().zip(&quants[j / 2 * SMALL..]).for_each(|(code, q)| *code = q >> shift & 15);
            if let Some(fifths) = fifths {
                codes.iter_mut().zip(fifths).for_each(|(code, f)| *code |= (f >> j & 1) << 4);
            }
        }
    }

    fn q6_k(&mut self, b: &[u8]) {
        self.d = half16(b, 208);
        self.scales.iter_mut().zip(&b[192..208]).for_each(|(scale, byte)| *scale = *byte as i8);
        for (j, codes) in self.codes.chunks_exact_mut(SMALL).enumerate() {
            // Groups 0..4 share the first 64 low bytes and 32 high bytes, groups 4..8 the second.
            let (half, quarter) = (j / 4, j % 4);
            let (low, high) = (&b[half * 64 + quarter % 2 * SMALL..], &b[128 + half * SMALL..]);
            let (low_shift, high_shift) = (quarter / 2 * 4, quarter * 2);
            for (code, (l, h)) in codes.iter_mut().zip(low.iter().zip(high)) {
                *code = l >> low_shift & 15 | (h >> high_shift & 3) << 4;
            }
        }
    }

    fn iq4_xs(&mut self, b: &[u8]) {
        self.d = half16(b, 0);
        let high = u16::from_le_bytes([b[2], b[3]]);
        for (j, codes) in self.codes.chunks_exact_mut(SMALL).enumerate() {
            let scale = b[4 + j / 2] >> (j % 2 * 4) & 15 | ((high >> (2 * j) & 3) as u8) << 4;
            self.scales[j] = scale as i8 - 32;
            let (low, up) = codes.split_at_mut(SMALL / 2);
            for ((q, low), up) in b[8 + j * SMALL / 2..].iter().zip(low).zip(up) {
                (*low, *up) = (q & 15, q >> 4);
            }
        }
    }
}

/// The j-th of eight 6-bit scales and minima packed in 12 bytes.
fn scale_min(s: &[u8], j: usize) -> (i8, i8) {
    let (scale, min) = if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        (s[j + 4] & 15 | (s[j - 4] >> 6) << 4, s[j + 4] >> 4 | (s[j] >> 6) << 4)
    };
    (scale as i8, min as i8)
}

/// Half of the power of two of MXFP4's scale, because the values of codes are doubled. The two smallest are denormal.
fn power(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 | 1 => 0x0020_0000 << exponent,
        _ => u32::from(exponent - 1) << 23,
    })
}
