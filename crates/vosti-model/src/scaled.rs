//! Quantised weights of Hugging Face folders, with codes and scales in separate tensors: FP8, and compressed-tensors of 8 and 4
//! bits. MXFP4 is in `mxfp4.rs`.
//!
//! An element is `scale * (code - zero)`, computed in FP32 and then rounded to BF16. If scales are BF16 or FP16 the product is
//! exact, so there is one rounding. Activations are never quantised, even if the configuration says so. Read next: `matrix.rs`;
//! `files.rs` finds the tensors.

use std::ops::Range;

use safetensors::Dtype;
use vosti_kernels::quantised::format;
use vosti_kernels::{Format, Quantised};

use crate::config::Fields;
use crate::dequantise::GgmlType;
use crate::error::{ModelError, Result};
use crate::matrix::append_scales;

/// Elements of a block that a device may keep.
const CHUNK: usize = 32;

/// The method by which a folder stores its weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Method {
    /// Rows and columns that share a scale, if scales are of two-dimensional blocks.
    block: Option<[usize; 2]>,
}

impl Method {
    /// The method of a configuration; `None` if its weights are plain numbers. Error: an unsupported method, by its name.
    pub(crate) fn of(root: &Fields, fields: &Fields, family: &'static str) -> Result<Option<Method>> {
        let key = "quantization_config";
        let Some(stored) = root.object(key).or_else(|| fields.object(key)) else { return Ok(None) };
        let refused = |method: &str| {
            let feature = format!("weights stored by {method} ({key}); its BF16 or GGUF version has others");
            Err(ModelError::Feature { family, feature })
        };
        match stored.str_opt("quant_method")? {
            Some("fp8") => match stored.str_opt("fmt")? {
                Some(other) if other != "e4m3" => refused(&format!("fp8 in {other}")),
                _ => Ok(Some(Method { block: extents(&stored, "weight_block_size")? })),
            },
            // Only experts are in blocks, whose tensors `mxfp4.rs` finds.
            Some("mxfp4") if fields.str_opt("model_type")? == Some("gpt_oss") => Ok(Some(Method::default())),
            Some("compressed-tensors") => match unread(&stored)? {
                Some(what) => refused(&format!("compressed-tensors {what}")),
                None => Ok(Some(Method { block: block_structure(&stored)? })),
            },
            Some(other) => refused(other),
            None => refused("an unnamed method"),
        }
    }

    /// The matrix with a name in this method's form; `None` if the tensor has plain numbers or is missing.
    pub(crate) fn find<'a>(&self, name: &str, find: &dyn Fn(&str) -> Option<Stored<'a>>) -> Result<Option<Scaled<'a>>> {
        let Some(stem) = name.strip_suffix("weight") else { return Ok(None) };
        let beside = |part: &str| find(&format!("{stem}weight_{part}"));
        let wrong = |why: String| ModelError::Scales { tensor: name.into(), why };
        let (codes, stored, columns) = match find(name) {
            Some(stored) => match (stored.dtype, stored.shape) {
                (Dtype::F8_E4M3, [_, columns]) => (Codes::Float8, stored, *columns),
                (Dtype::I8, [_, columns]) => (Codes::Int8, stored, *columns),
                _ => return Ok(None),
            },
            None => {
                let Some(stored) = beside("packed") else { return Ok(None) };
                let columns = beside("shape").and_then(|shape| columns(&shape));
                let columns = columns.ok_or_else(|| wrong("its weight_shape is missing or is no shape".into()))?;
                let codes = packed(&stored, columns).ok_or_else(|| {
                    wrong(format!(
                        "{columns} columns packed in {:?} of {:?} are not of 4 or 8 bits",
                        stored.shape, stored.dtype
                    ))
                })?;
                (codes, stored, columns)
            }
        };
        if beside("g_idx").is_some() {
            return Err(wrong("its groups are not neighbours (weight_g_idx)".into()));
        }
        let scales = beside("scale").or_else(|| beside("scale_inv"));
        let scales = scales.ok_or_else(|| wrong("its weight_scale is missing".into()))?;
        let shape = [stored.shape[0], columns];
        let scales = Scales::new(&scales, shape, self.block)
            .ok_or_else(|| wrong(format!("scales of shape {:?} do not fit its shape {shape:?}", scales.shape)))?;
        let zeros = match beside("zero_point") {
            Some(zeros) => Some(Zeros::new(&zeros, codes, &scales).ok_or_else(|| {
                wrong(format!(
                    "zero points of shape {:?} and type {:?} do not fit its scales",
                    zeros.shape, zeros.dtype
                ))
            })?),
            None => None,
        };
        Ok(Some(Scaled { shape, codes, bytes: stored.bytes, scales, zeros }))
    }
}

/// The first field of a compressed-tensors configuration with an unsupported value, described for a message.
fn unread(stored: &Fields) -> Result<Option<String>> {
    const READ: [&str; 4] = ["pack-quantized", "int-quantized", "float-quantized", "naive-quantized"];
    let unread = |format: Option<&str>| match format {
        Some(format) if READ.contains(&format) => None,
        Some(format) => Some(format!("in the format {format}")),
        None => Some("in no format".to_string()),
    };
    let top = stored.str_opt("format")?;
    if top != Some("mixed-precision") && unread(top).is_some() {
        return Ok(unread(top));
    }
    if let Some(sparse) = stored.object("sparsity_config").map(|sparse| sparse.str_opt("format")).transpose()?.flatten()
        && sparse != "dense"
    {
        return Ok(Some(format!("in the format {sparse}")));
    }
    if stored.object("transform_config").is_some_and(|transforms| transforms.keys().next().is_some()) {
        return Ok(Some("with transforms (transform_config)".into()));
    }
    for group in groups(stored) {
        if top == Some("mixed-precision") && unread(group.str_opt("format")?).is_some() {
            return Ok(unread(group.str_opt("format")?));
        }
        let Some(weights) = group.object("weights") else { continue };
        let (bits, kind) = (weights.u32_or("num_bits", 8)?, weights.str_opt("type")?.unwrap_or("int"));
        if !matches!((bits, kind), (4 | 8, "int") | (8, "float")) {
            return Ok(Some(format!("of {bits} bits ({kind})")));
        }
        if weights
            .get("actorder")
            .and_then(|order| order.as_str())
            .is_some_and(|order| matches!(order, "group" | "dynamic"))
        {
            return Ok(Some("with actorder".into()));
        }
    }
    Ok(None)
}

/// The groups of a compressed-tensors configuration. The modules of a group are stored alike.
fn groups<'a>(stored: &Fields<'a>) -> Vec<Fields<'a>> {
    let Some(groups) = stored.object("config_groups") else { return Vec::new() };
    let names: Vec<&str> = groups.keys().collect();
    names.into_iter().filter_map(|name| groups.object(name)).collect()
}

/// The block structure of a compressed-tensors configuration, if it has one. Error: groups have different ones.
fn block_structure(stored: &Fields) -> Result<Option<[usize; 2]>> {
    let mut found = None;
    for weights in groups(stored).iter().filter_map(|group| group.object("weights")) {
        let block = extents(&weights, "block_structure")?;
        if found.is_some() && block.is_some() && block != found {
            return Err(weights.bad("block_structure", "is not the same for all groups"));
        }
        found = found.or(block);
    }
    Ok(found)
}

/// Two positive integers, if the key is there.
fn extents(fields: &Fields, key: &str) -> Result<Option<[usize; 2]>> {
    match fields.u32s_opt(key)?.as_deref() {
        None => Ok(None),
        Some([rows, columns]) if *rows > 0 && *columns > 0 => Ok(Some([*rows as usize, *columns as usize])),
        Some(_) => Err(fields.bad(key, "is not two numbers above zero")),
    }
}

/// The number of columns in a tensor with a shape: the second of its two integers.
fn columns(shape: &Stored<'_>) -> Option<usize> {
    let second = shape.bytes.get(8..16)?.try_into().map(i64::from_le_bytes).ok()?;
    let columns = usize::try_from(second).ok().filter(|columns| *columns > 0);
    columns.filter(|_| shape.dtype == Dtype::I64 && shape.shape == [2])
}

/// The packing of `columns` codes in the words of a row: of 4 or 8 bits.
fn packed(stored: &Stored<'_>, columns: usize) -> Option<Codes> {
    let [_, words] = *stored.shape else { return None };
    let fits = |bits: &usize| columns.checked_mul(*bits).is_some_and(|all| all.div_ceil(32) == words);
    let bits = [4, 8].into_iter().find(fits).filter(|_| stored.dtype == Dtype::I32)?;
    Some(Codes::Packed { bits })
}

/// A tensor of safetensors, of any type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    pub shape: &'a [usize],
    pub dtype: Dtype,
    pub bytes: &'a [u8],
}

/// The encoding of codes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codes {
    /// E4M3 without infinities.
    Float8,
    Int8,
    /// Codes of 4 or 8 bits in words of 32 bits, low bits first. The middle of their range stands for zero.
    Packed {
        bits: usize,
    },
}

impl Codes {
    /// Bytes of a row.
    fn row_bytes(self, columns: usize) -> usize {
        match self {
            Codes::Float8 | Codes::Int8 => columns,
            Codes::Packed { bits } => (columns * bits).div_ceil(32) * 4,
        }
    }

    /// The k-th integer of a row.
    #[inline(always)]
    fn integer(self, row: &[u8], k: usize) -> i32 {
        match self {
            Codes::Packed { bits: 4 } => i32::from(row[k / 2] >> (4 * (k % 2)) & 15) - 8,
            Codes::Packed { .. } => i32::from(row[k]) - 128,
            Codes::Float8 | Codes::Int8 => i32::from(row[k] as i8),
        }
    }
}

/// Scales of blocks, row-major.
struct Scales<'a> {
    kind: GgmlType,
    bytes: &'a [u8],
    /// Rows and columns that share a scale.
    block: [usize; 2],
    /// Scales in a row of blocks.
    across: usize,
}

impl<'a> Scales<'a> {
    /// The scales of a matrix: one for all, one for each row, one for each group of a row's columns, or one for each block.
    /// `None` if their shape is another.
    fn new(stored: &Stored<'a>, [rows, columns]: [usize; 2], block: Option<[usize; 2]>) -> Option<Self> {
        let kind = match stored.dtype {
            Dtype::F32 => GgmlType::F32,
            Dtype::F16 => GgmlType::F16,
            Dtype::BF16 => GgmlType::BF16,
            _ => return None,
        };
        let (block, across) = match (stored.shape, block) {
            ([down, across], Some([r, c])) if [rows.div_ceil(r), columns.div_ceil(c)] == [*down, *across] => {
                ([r, c], *across)
            }
            ([] | [1] | [1, 1], _) => ([rows, columns], 1),
            ([down] | [down, 1], _) if *down == rows => ([1, columns], 1),
            ([down, across], _) if *down == rows && *across > 0 && columns.is_multiple_of(*across) => {
                ([1, columns / across], *across)
            }
            _ => return None,
        };
        Some(Self { kind, bytes: stored.bytes, block, across })
    }

    /// The index of the scale of a row in the block of columns `across`.
    fn index(&self, row: usize, across: usize) -> usize {
        row / self.block[0] * self.across + across
    }

    fn at(&self, index: usize) -> f32 {
        let (size, mut value) = (self.kind.block_bytes(), [0.0]);
        self.kind.expand(&self.bytes[index * size..][..size], &mut value);
        value[0]
    }
}

/// The zero points, one for each scale.
struct Zeros<'a> {
    bytes: &'a [u8],
    /// The packing of zero points in words of 32 bits, along rows; `None` if they are not packed.
    packed: Option<Codes>,
}

impl<'a> Zeros<'a> {
    fn new(stored: &Stored<'a>, codes: Codes, scales: &Scales<'_>) -> Option<Self> {
        let count = scales.bytes.len() / scales.kind.block_bytes();
        let down = count / scales.across;
        match (stored.dtype, codes) {
            (Dtype::I8, Codes::Int8 | Codes::Packed { .. }) if stored.bytes.len() == count => {
                Some(Self { bytes: stored.bytes, packed: None })
            }
            (Dtype::I32, Codes::Packed { bits }) if *stored.shape == [(down * bits).div_ceil(32), scales.across] => {
                Some(Self { bytes: stored.bytes, packed: Some(codes) })
            }
            _ => None,
        }
    }

    /// The zero point for a scale.
    fn at(&self, scales: &Scales<'_>, index: usize) -> i32 {
        let Some(codes @ Codes::Packed { bits }) = self.packed else { return i32::from(self.bytes[index] as i8) };
        let (down, across) = (index / scales.across, index % scales.across);
        let word = down / (32 / bits) * scales.across + across;
        codes.integer(&self.bytes[4 * word..][..4], down % (32 / bits))
    }
}

/// A matrix of codes, scales and zero points.
pub(crate) struct Scaled<'a> {
    /// Rows and columns.
    pub shape: [usize; 2],
    codes: Codes,
    bytes: &'a [u8],
    scales: Scales<'a>,
    zeros: Option<Zeros<'a>>,
}

impl<'a> Scaled<'a> {
    /// The bytes of some rows.
    pub fn bytes(&self, rows: Range<usize>) -> &'a [u8] {
        let row = self.codes.row_bytes(self.shape[1]);
        &self.bytes[rows.start * row..rows.end * row]
    }

    fn zero(&self, index: usize) -> i32 {
        self.zeros.as_ref().map_or(0, |zeros| zeros.at(&self.scales, index))
    }

    /// The first block of some rows with an element that is not finite, and the name of its type.
    pub fn first_not_finite(&self, rows: Range<usize>) -> Option<(usize, &'static str)> {
        // An upper bound of `code - zero`.
        const MOST: f32 = 512.0;
        let kind = match self.codes {
            Codes::Float8 => "FP8",
            Codes::Int8 | Codes::Packed { bits: 8 } => "INT8",
            Codes::Packed { .. } => "INT4",
        };
        let found = rows.into_iter().find_map(|row| {
            let nan = |byte: &u8| self.codes == Codes::Float8 && byte & 0x7f == 0x7f;
            let nan = self.bytes(row..row + 1).iter().position(nan).map(|k| k / self.scales.block[1]);
            let scale =
                (0..self.scales.across).find(|i| !(self.scales.at(self.scales.index(row, *i)) * MOST).is_finite());
            scale.or(nan).map(|across| self.scales.index(row, across))
        });
        found.map(|block| (block, kind))
    }

    /// Expands a row to f32.
    pub fn expand(&self, row: usize, out: &mut [f32]) {
        let bytes = self.bytes(row..row + 1);
        let width = self.scales.block[1];
        for (across, out) in out.chunks_mut(width).enumerate() {
            let index = self.scales.index(row, across);
            let (scale, zero) = (self.scales.at(index), self.zero(index));
            let columns = (across * width..).zip(out);
            match self.codes {
                Codes::Float8 => columns.for_each(|(k, out)| *out = scale * float8(bytes[k])),
                codes => columns.for_each(|(k, out)| *out = scale * (codes.integer(bytes, k) - zero) as f32),
            }
        }
    }

    /// The format of blocks with the same elements, if every scale is an FP16 number. Codes of four bits with zero points of four
    /// bits need five: a minimum in place of the zero point would be scale * zero, which is seldom an FP16 number.
    pub fn format(&self) -> Option<&'static Format> {
        let whole = self.shape[1].is_multiple_of(CHUNK) && self.scales.block[1].is_multiple_of(CHUNK);
        let name = match (self.codes, &self.zeros) {
            (Codes::Int8 | Codes::Packed { bits: 8 }, None) => "Q8_0",
            (Codes::Packed { bits: 4 }, None) => "Q4_0",
            (Codes::Packed { bits: 4 }, Some(zeros)) if zeros.packed.is_some() => "Q5_0",
            _ => return None,
        };
        format(name).map(|(_, format)| format).filter(|_| whole)
    }

    /// Appends a row in blocks of its format; false if a scale is not an FP16 number.
    pub fn append_blocks(&self, row: usize, out: &mut Quantised) -> bool {
        let bytes = self.bytes(row..row + 1);
        // The value of code 0.
        let least = out.format.value(0) as i32;
        let mut exact = true;
        for first in (0..self.shape[1]).step_by(CHUNK) {
            let index = self.scales.index(row, first / self.scales.block[1]);
            let zero = self.zero(index) + least;
            out.codes.extend((first..first + CHUNK).map(|k| (self.codes.integer(bytes, k) - zero) as u8));
            exact &= append_scales(self.scales.at(index), 0.0, out);
        }
        exact
    }
}

/// The value of an E4M3 byte: a sign, four bits of exponent, three of significand. 127 and 255 are NaN.
fn float8(byte: u8) -> f32 {
    let (exponent, low) = (u32::from(byte >> 3 & 15), u32::from(byte & 7));
    let size = match (exponent, low) {
        (15, 7) => f32::NAN,
        (0, low) => low as f32 / 512.0,
        _ => f32::from_bits((exponent + 120) << 23 | low << 20),
    };
    if byte & 0x80 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_of_fp8_is_what_the_format_says() {
        let values =
            [(0x00, 0.0), (0x01, 1.0 / 512.0), (0x07, 7.0 / 512.0), (0x08, 1.0 / 64.0), (0x38, 1.0), (0xbc, -1.5)];
        for (byte, value) in values.into_iter().chain([(0x7e, 448.0), (0xfe, -448.0)]) {
            assert_eq!(float8(byte), value, "{byte:#x}");
        }
        assert!(float8(0x7f).is_nan() && float8(0xff).is_nan());
        assert!((0..=255).all(|byte| byte & 0x7f == 0x7f || float8(byte).is_finite()));
    }
}
