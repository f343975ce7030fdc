//! Makes the rows of each weight of a plan from its recipe and the model's tensors, one weight at a time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use vosti_contract::Dtype;
use vosti_kernels::{Format, Part, Quantised, TensorData};

use crate::decoder::Rope;
use crate::error::{ModelError, Result};
use crate::files::TensorFiles;
use crate::matrix::Matrix;
use crate::plan::ModelPlan;
use crate::recipe::{MatrixPart, Recipe, Weight};
use crate::rope;

/// A weight ready for a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Axes, slowest first.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: TensorData,
}

/// A device's source of weights, by the names in the plan's bindings. It keeps no weight: a second call makes the weight
/// again. Errors: a tensor is missing, has another shape, or has an element that is not finite.
pub trait WeightSource {
    /// A weight's axes, slowest first.
    fn shape(&self, name: &str) -> Result<Vec<usize>>;

    /// The elements of some rows (indices of the first axis), row-major.
    ///
    /// # Panics
    /// If the rows are not in the weight's shape.
    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData>;

    /// Writes the same rows in blocks to `room`, if all of them have one quantised format and FP16 scales. False if not; the
    /// contents of `room` are then undefined.
    ///
    /// # Panics
    /// As [`WeightSource::rows`].
    fn quantised(&self, name: &str, rows: Range<usize>, room: &mut Quantised) -> Result<bool>;

    /// The format of [`WeightSource::quantised`] for these rows, without reading them. `quantised` may still give false, if a
    /// scale is not an FP16 number.
    ///
    /// # Panics
    /// As [`WeightSource::rows`].
    fn format(&self, name: &str, rows: Range<usize>) -> Result<Option<&'static Format>>;

    /// A whole weight.
    fn load(&self, name: &str) -> Result<Tensor> {
        let shape = self.shape(name)?;
        let data = self.rows(name, 0..shape[0])?;
        Ok(Tensor { shape, data })
    }
}

/// The weights of a plan, from a model's files.
pub struct Weights<'a> {
    files: &'a TensorFiles,
    weights: &'a BTreeMap<String, Weight>,
}

impl<'a> Weights<'a> {
    /// The weights of `plan` from `files`.
    pub fn new(files: &'a TensorFiles, plan: &'a ModelPlan) -> Self {
        Self { files, weights: &plan.weights }
    }

    fn recipe(&self, name: &str) -> Result<&Recipe> {
        let weight = self.weights.get(name).ok_or_else(|| ModelError::TensorMissing { name: name.into() })?;
        Ok(&weight.recipe)
    }

    /// Rows of a matrix, in BF16 or in FP32.
    fn matrix(&self, parts: &[MatrixPart], columns: usize, dtype: Dtype, rows: Range<usize>) -> Result<TensorData> {
        let elements = rows.len() * columns;
        let mut data = match dtype {
            Dtype::Bf16 => TensorData::Bf16(Vec::with_capacity(elements)),
            _ => TensorData::F32(Vec::with_capacity(elements)),
        };
        self.each_part(parts, columns, rows, |part, matrix, rows| {
            append_rows(matrix, part, columns, rows, &mut data);
        })?;
        Ok(data)
    }

    /// Calls `each` with every part of a matrix that has some of the rows, and with those rows of the part. It refuses blocks
    /// with elements that are not finite, and releases the pages of the rows, because they are not read again.
    fn each_part(
        &self,
        parts: &[MatrixPart],
        columns: usize,
        rows: Range<usize>,
        mut each: impl FnMut(&MatrixPart, &Matrix<'_>, Range<usize>),
    ) -> Result<()> {
        let mut first = 0;
        for part in parts {
            let within = rows.start.max(first)..rows.end.min(first + part.rows);
            if !within.is_empty() {
                let matrix = self.files.matrix(&part.tensor)?;
                let matrix = if part.transposed { matrix.transposed() } else { matrix };
                expect_shape(&part.tensor, &stacked(matrix.shape()), &[part.of, columns])?;
                let within = within.start - first..within.end - first;
                let stored = part.span(within.clone());
                if let Some((block, kind)) = matrix.first_not_finite(stored.clone()) {
                    return Err(ModelError::NotFinite { tensor: part.tensor.clone(), block, kind });
                }
                each(part, &matrix, within);
                self.files.give_back(matrix.bytes(stored), matrix.bytes(0..part.of));
            }
            first += part.rows;
        }
        assert!(rows.end <= first, "rows {rows:?} of {first}");
        Ok(())
    }

    /// The format of some rows' blocks, if all have one.
    fn format_of(&self, parts: &[MatrixPart], rows: Range<usize>) -> Result<Option<&'static Format>> {
        let (mut first, mut found) = (0, None);
        for part in parts {
            if rows.start < first + part.rows && first < rows.end {
                let format = self.files.matrix(&part.tensor)?.format().filter(|_| part.as_stored());
                if format.is_none() || found.is_some_and(|found| Some(found) != format) {
                    return Ok(None);
                }
                found = format;
            }
            first += part.rows;
        }
        Ok(found)
    }

    /// See [`WeightSource::quantised`].
    fn blocks(&self, parts: &[MatrixPart], columns: usize, rows: Range<usize>, room: &mut Quantised) -> Result<bool> {
        let Some(format) = self.format_of(parts, rows.clone())? else { return Ok(false) };
        if !columns.is_multiple_of(format.chunk) {
            return Ok(false); // The files do not belong together; reading the rows gives that error.
        }
        room.restart(format, columns);
        room.codes.reserve(rows.len() * columns);
        let mut exact = true;
        self.each_part(parts, columns, rows, |part, matrix, rows| {
            rows.for_each(|row| exact &= matrix.append_blocks(part.stored(row), room));
        })?;
        Ok(exact)
    }

    /// A part of some rows in blocks. Error: a tensor has no blocks, so it is not of the model that the plan was made for.
    fn part(&self, parts: &[MatrixPart], columns: usize, part: Part, rows: Range<usize>) -> Result<TensorData> {
        let (mut codes, mut numbers) = (Vec::new(), Vec::new());
        let mut without = None;
        self.each_part(parts, columns, rows, |own, matrix, rows| {
            let format = matrix.format().filter(|format| columns.is_multiple_of(format.chunk));
            let Some(format) = format else { return without = Some(own.tensor.clone()) };
            let mut room = Quantised::new(format, columns);
            rows.for_each(|row| _ = matrix.append_blocks(own.stored(row), &mut room));
            match room.part(part) {
                TensorData::I8(more) => codes.extend(more),
                TensorData::F32(more) => numbers.extend(more),
                TensorData::Bf16(_) => unreachable!("no part is in BF16"),
            }
        })?;
        match (without, part) {
            (Some(name), _) => Err(ModelError::TensorMissing { name }),
            (None, Part::Codes) => Ok(TensorData::I8(codes)),
            (None, _) => Ok(TensorData::F32(numbers)),
        }
    }

    /// A whole tensor in f32. Errors: it does not have `length` elements, or a quantised block has one that is not finite.
    fn floats(&self, name: &str, length: usize) -> Result<Vec<f32>> {
        let raw = self.files.tensor(name)?;
        if raw.shape.iter().product::<usize>() != length {
            return Err(ModelError::TensorShape { name: name.into(), found: raw.shape, expected: vec![length] });
        }
        if let Some(block) = raw.kind.first_not_finite(raw.bytes) {
            return Err(ModelError::NotFinite { tensor: name.into(), block, kind: raw.kind.name() });
        }
        let mut out = vec![0.0; length];
        raw.kind.expand(raw.bytes, &mut out);
        Ok(out)
    }

    /// The parts of a vector in f32, concatenated.
    fn vector(&self, parts: &[MatrixPart]) -> Result<Vec<f32>> {
        let (mut out, mut tensors) = (Vec::new(), BTreeMap::new());
        for part in parts {
            // The biases of all experts are parts of two tensors.
            let values = match tensors.entry(&part.tensor) {
                Entry::Occupied(known) => &*known.into_mut(),
                Entry::Vacant(new) => &*new.insert(self.floats(&part.tensor, part.of)?),
            };
            out.extend((0..part.rows).map(|row| values[part.stored(row)]));
        }
        Ok(out)
    }

    /// Rows of the rotary table of a deployment of `positions` positions.
    fn rope(&self, rope: &Rope, positions: usize, rows: Range<usize>, sine: bool) -> Result<Vec<f32>> {
        let factors = match rope::tensor(rope, positions) {
            Some(tensor) => self.floats(tensor, rope.rotary as usize / 2)?,
            None => Vec::new(),
        };
        Ok(rope::table(rope, &rope::frequencies(rope, positions, &factors), rows, sine))
    }
}

impl WeightSource for Weights<'_> {
    fn shape(&self, name: &str) -> Result<Vec<usize>> {
        Ok(self.recipe(name)?.shape())
    }

    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData> {
        Ok(match self.recipe(name)? {
            Recipe::Matrix { parts, columns, dtype } => self.matrix(parts, *columns, *dtype, rows)?,
            Recipe::Blocks { parts, columns, part, .. } => self.part(parts, *columns, *part, rows)?,
            Recipe::Vector { parts, offset, divisor } => {
                let values = self.vector(parts)?;
                TensorData::F32(values[rows].iter().map(|v| (v + offset) / divisor).collect())
            }
            Recipe::Rates { part } => {
                let values = self.vector(std::slice::from_ref(part))?;
                TensorData::F32(values[rows].iter().map(|v| -libm::expf(*v)).collect())
            }
            Recipe::Repeat { tensor, .. } => TensorData::F32(vec![self.floats(tensor, 1)?[0]; rows.len()]),
            Recipe::Unread { .. } => TensorData::F32(vec![0.0; rows.len()]),
            Recipe::Rope { rope, positions, sine } => TensorData::F32(self.rope(rope, *positions, rows, *sine)?),
        })
    }

    fn quantised(&self, name: &str, rows: Range<usize>, room: &mut Quantised) -> Result<bool> {
        match self.recipe(name)? {
            Recipe::Matrix { parts, columns, dtype: Dtype::Bf16 } | Recipe::Blocks { parts, columns, .. } => {
                self.blocks(parts, *columns, rows, room)
            }
            _ => Ok(false),
        }
    }

    fn format(&self, name: &str, rows: Range<usize>) -> Result<Option<&'static Format>> {
        match self.recipe(name)? {
            Recipe::Matrix { parts, dtype: Dtype::Bf16, .. } | Recipe::Blocks { parts, .. } => {
                self.format_of(parts, rows)
            }
            _ => Ok(None),
        }
    }
}

/// Rows of a rotary table that needs no file; `None` for any other recipe.
pub fn rotary(recipe: &Recipe, rows: Range<usize>) -> Option<Vec<f32>> {
    match recipe {
        Recipe::Rope { rope, positions, sine } if rope::tensor(rope, *positions).is_none() => {
            Some(rope::table(rope, &rope::frequencies(rope, *positions, &[]), rows, *sine))
        }
        _ => None,
    }
}

/// The axes of a stack of matrices as one matrix that has all of their rows.
fn stacked(shape: &[usize]) -> Vec<usize> {
    match shape {
        [outer @ .., rows, columns] if !outer.is_empty() => vec![outer.iter().product::<usize>() * rows, *columns],
        _ => shape.to_vec(),
    }
}

fn expect_shape(name: &str, found: &[usize], expected: &[usize]) -> Result<()> {
    // A file may have a matrix of one row as a vector.
    let vector = matches!(expected, [1, columns] if found == [*columns]);
    if found == expected || vector {
        return Ok(());
    }
    Err(ModelError::TensorShape { name: name.into(), found: found.to_vec(), expected: expected.to_vec() })
}

/// Expands some rows of a part one by one, in the order of the recipe.
fn append_rows(matrix: &Matrix, part: &MatrixPart, columns: usize, rows: Range<usize>, data: &mut TensorData) {
    let mut row = vec![0.0f32; columns];
    let expand = |stored: usize, row: &mut Vec<f32>| {
        matrix.expand(stored, row);
        if let Some(turned) = part.columns {
            *row = (0..columns).map(|at| row[turned.stored(at)]).collect();
        }
        if part.scale != 1.0 {
            row.iter_mut().for_each(|element| *element *= part.scale);
        }
    };
    for stored in rows.map(|i| part.stored(i)) {
        match data {
            TensorData::Bf16(out) => match matrix.bf16(stored).filter(|_| part.as_stored()) {
                Some(bytes) => out.extend(bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]))),
                _ => {
                    expand(stored, &mut row);
                    out.extend(row.iter().map(|v| to_bf16(*v)));
                }
            },
            TensorData::I8(_) => unreachable!("no matrix is made of bytes"),
            TensorData::F32(out) => {
                expand(stored, &mut row);
                let rounds = matrix.rounds();
                out.extend(row.iter().map(|v| if rounds { from_bf16(to_bf16(*v)) } else { *v }));
            }
        }
    }
}

/// Rounds to nearest, ties to even, without a branch, so that the compiler vectorises loops over it.
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let quiet_nan = bits >> 16 | 0x40;
    (if value.is_nan() { quiet_nan } else { rounded }) as u16
}

fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_bf16_is_the_half_crates() {
        let specials = [0.0, -0.0, 1e-45, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
        let ties = [1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, 1.0 + 1.0 / 256.0 + 1e-7, 3.3895314e38];
        let spread = (0..100_000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761)));
        for value in specials.into_iter().chain(ties).chain(spread) {
            assert_eq!(to_bf16(value), half::bf16::from_f32(value).to_bits(), "{value:e}");
        }
    }
}
