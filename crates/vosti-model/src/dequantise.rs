//! GGML's element types, expanded to f32 one block at a time.
//!
//! Each routine repeats the reference's operations in the reference's order, so that its floats are the
//! reference's (tested against the `gguf` package's NumPy code, bit for bit).

/// Part of a deployment's fingerprint: raised whenever an expansion gives other bits than before.
pub const VERSION: u32 = 1;

/// Element types that are read, from GGUF and from safetensors.
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
    Q4_K,
    Q5_K,
    Q6_K,
}

const SMALL: usize = 32;
const SUPER: usize = 256;

impl GgmlType {
    /// The type with this code in a GGUF file.
    pub fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4_K,
            13 => Self::Q5_K,
            14 => Self::Q6_K,
            30 => Self::BF16,
            _ => return None,
        })
    }

    /// Every supported type, for messages.
    pub fn names() -> Vec<&'static str> {
        vec!["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
    }

    /// Elements in a block.
    pub fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 => SMALL,
            Self::Q4_K | Self::Q5_K | Self::Q6_K => SUPER,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }

    /// Expands whole blocks: `bytes` holds as many elements as `out`.
    pub fn expand(self, bytes: &[u8], out: &mut [f32]) {
        let blocks = bytes.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_elements()));
        match self {
            Self::F32 => blocks.for_each(|(b, o)| o[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            Self::F16 => blocks.for_each(|(b, o)| o[0] = half16(b, 0)),
            Self::BF16 => {
                blocks.for_each(|(b, o)| o[0] = f32::from_bits(u32::from(b[1]) << 24 | u32::from(b[0]) << 16))
            }
            Self::Q8_0 => blocks.for_each(|(b, o)| q8_0(b, o)),
            Self::Q4_0 => blocks.for_each(|(b, o)| q4_0(b, o)),
            Self::Q4_1 => blocks.for_each(|(b, o)| q4_1(b, o)),
            Self::Q5_0 => blocks.for_each(|(b, o)| q5_0(b, o)),
            Self::Q5_1 => blocks.for_each(|(b, o)| q5_1(b, o)),
            Self::Q4_K => blocks.for_each(|(b, o)| q4_k(b, o)),
            Self::Q5_K => blocks.for_each(|(b, o)| q5_k(b, o)),
            Self::Q6_K => blocks.for_each(|(b, o)| q6_k(b, o)),
        }
    }
}

fn half16(b: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

fn q8_0(b: &[u8], out: &mut [f32]) {
    let d = half16(b, 0);
    for (o, q) in out.iter_mut().zip(&b[2..]) {
        *o = f32::from(*q as i8) * d;
    }
}

/// Low halves of the bytes are the block's first half.
fn q4_0(b: &[u8], out: &mut [f32]) {
    let d = half16(b, 0);
    let (low, high) = out.split_at_mut(SMALL / 2);
    for ((q, l), h) in b[2..].iter().zip(low).zip(high) {
        *l = d * f32::from((q & 15) as i8 - 8);
        *h = d * f32::from((q >> 4) as i8 - 8);
    }
}

fn q4_1(b: &[u8], out: &mut [f32]) {
    let (d, m) = (half16(b, 0), half16(b, 2));
    let (low, high) = out.split_at_mut(SMALL / 2);
    for ((q, l), h) in b[4..].iter().zip(low).zip(high) {
        *l = d * f32::from(q & 15) + m;
        *h = d * f32::from(q >> 4) + m;
    }
}

/// The fifth bits of the 32 elements are one little-endian word.
fn fifth_bits(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn fifth(bits: u32, i: usize) -> u8 {
    ((bits >> i & 1) as u8) << 4
}

fn q5_0(b: &[u8], out: &mut [f32]) {
    let (d, bits) = (half16(b, 0), fifth_bits(b, 2));
    let (low, high) = out.split_at_mut(SMALL / 2);
    for (i, ((q, l), h)) in b[6..].iter().zip(low).zip(high).enumerate() {
        *l = d * f32::from((q & 15 | fifth(bits, i)) as i8 - 16);
        *h = d * f32::from((q >> 4 | fifth(bits, i + SMALL / 2)) as i8 - 16);
    }
}

fn q5_1(b: &[u8], out: &mut [f32]) {
    let (d, m, bits) = (half16(b, 0), half16(b, 2), fifth_bits(b, 4));
    let (low, high) = out.split_at_mut(SMALL / 2);
    for (i, ((q, l), h)) in b[8..].iter().zip(low).zip(high).enumerate() {
        *l = d * f32::from(q & 15 | fifth(bits, i)) + m;
        *h = d * f32::from(q >> 4 | fifth(bits, i + SMALL / 2)) + m;
    }
}

/// The j-th of eight 6-bit scales and minima packed in 12 bytes.
fn scale_min(s: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        (s[j + 4] & 15 | (s[j - 4] >> 6) << 4, s[j + 4] >> 4 | (s[j] >> 6) << 4)
    };
    (f32::from(scale), f32::from(min))
}

fn q4_k(b: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half16(b, 0), half16(b, 2));
    let (scales, quants) = (&b[4..16], &b[16..144]);
    for (j, group) in out.chunks_exact_mut(SMALL).enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (scale, min) = (d * scale, dmin * min);
        let shift = 4 * (j % 2);
        for (o, q) in group.iter_mut().zip(&quants[j / 2 * SMALL..]) {
            *o = scale * f32::from(q >> shift & 15) - min;
        }
    }
}

fn q5_k(b: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half16(b, 0), half16(b, 2));
    let (scales, fifths, quants) = (&b[4..16], &b[16..48], &b[48..176]);
    for (j, group) in out.chunks_exact_mut(SMALL).enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (scale, min) = (d * scale, dmin * min);
        let shift = 4 * (j % 2);
        for ((o, q), f) in group.iter_mut().zip(&quants[j / 2 * SMALL..]).zip(fifths) {
            *o = scale * f32::from(q >> shift & 15 | (f >> j & 1) << 4) - min;
        }
    }
}

fn q6_k(b: &[u8], out: &mut [f32]) {
    let (low, high, scales, d) = (&b[..128], &b[128..192], &b[192..208], half16(b, 208));
    for (j, group) in out.chunks_exact_mut(SMALL).enumerate() {
        // Groups 0..4 share the first 64 low bytes and 32 high bytes, groups 4..8 the second.
        let (half, quarter) = (j / 4, j % 4);
        let low = &low[half * 64 + quarter % 2 * SMALL..];
        let high = &high[half * SMALL..];
        let (low_shift, high_shift) = (quarter / 2 * 4, quarter * 2);
        for (i, (o, (l, h))) in group.iter_mut().zip(low.iter().zip(high)).enumerate() {
            let q = (l >> low_shift & 15 | (h >> high_shift & 3) << 4) as i8 - 32;
            let scale = d * f32::from(scales[j * 2 + i / 16] as i8);
            *o = scale * f32::from(q);
        }
    }
}
