//! Tiles in shared memory that matrix products read by themselves, and what one such product adds.

use crate::fault::Fault;
use vosti_tile::numerics::{self, FloatMode, from_bf16};

/// Bytes of a row of one product's k: 16 numbers of BF16, or 32 bytes.
pub(crate) const DEPTH: usize = 32;

/// A row or column of an operand, its k side by side.
pub(crate) type Line = [u8; DEPTH];

/// A tile in shared memory (PTX ISA, "Matrix Descriptor Format" of `wgmma` and "Shared Memory Descriptor" of `tcgen05`, "Strides",
/// "Swizzling modes").
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    start: u64,
    /// Bytes between groups along the dimension that is not contiguous, and along the contiguous one.
    stride: u64,
    leading: u64,
    /// Bytes of a row before the tile goes on elsewhere: 128, 64 or 32.
    width: u64,
}

impl Tile {
    /// By a descriptor of `wgmma`.
    pub fn of_warpgroup(descriptor: u64) -> Result<Tile, Fault> {
        let width = match descriptor >> 62 {
            1 => Some(128),
            2 => Some(64),
            3 => Some(32),
            _ => None,
        };
        Tile::of(descriptor, width.filter(|_| descriptor >> 49 & 7 == 0))
    }

    /// By a descriptor of `tcgen05.mma`: bit 46 is its mark, the base offset and bits 52 to 60 are zero.
    pub fn of_tensor(descriptor: u64) -> Result<Tile, Fault> {
        let width = match descriptor >> 61 {
            2 => Some(128),
            4 => Some(64),
            6 => Some(32),
            _ => None,
        };
        Tile::of(descriptor, width.filter(|_| descriptor >> 46 & 0x7fff == 1))
    }

    fn of(descriptor: u64, width: Option<u64>) -> Result<Tile, Fault> {
        let width = width.ok_or(Fault::Descriptor { descriptor })?;
        let field = |from: u32| (descriptor >> from & 0x3fff) << 4;
        Ok(Tile { start: field(0), leading: field(16), stride: field(32), width })
    }

    /// The address of 16 bytes of a row or column, `at` bytes behind its first.
    fn chunk(&self, line: usize, at: usize, transposed: bool) -> u64 {
        let (line, at) = (line as u64, at as u64);
        let place = match transposed {
            // Lines of eight, each `width` bytes after the one before.
            false => line % 8 * self.width + line / 8 * self.stride + at,
            true => line % 8 * self.width + line / 8 * self.stride + at / self.width * self.leading + at % self.width,
        };
        let address = self.start + place;
        address ^ (address >> 3 & (self.width - 16))
    }

    /// Lines `first` and on, by what reads 16 bytes at an address.
    pub fn lines(
        &self,
        first: usize,
        lines: usize,
        transposed: bool,
        mut read: impl FnMut(u64) -> Result<[u8; 16], Fault>,
    ) -> Result<Vec<Line>, Fault> {
        let mut rows = vec![[0; DEPTH]; lines];
        if !transposed {
            for (line, row) in rows.iter_mut().enumerate() {
                for at in [0, 16] {
                    row[at..at + 16].copy_from_slice(&read(self.chunk(first + line, at, false))?);
                }
            }
            return Ok(rows);
        }
        for (k, line) in (0..16).flat_map(|k| (0..lines / 8).map(move |group| (k, 8 * group))) {
            let bytes = read(self.chunk(k, 2 * (first + line), true))?;
            for (i, number) in bytes.chunks(2).enumerate() {
                rows[line + i][2 * k..2 * k + 2].copy_from_slice(number);
            }
        }
        Ok(rows)
    }
}

/// Adds the products of rows and columns of BF16 numbers to sums, row by row: tile IR's `dot` of its block of k.
pub(crate) fn bf16(sums: &mut [u32], rows: &[Line], columns: &[Line]) {
    const K: usize = DEPTH / 2;
    let number = |row: &Line, k: usize| from_bf16(u16::from_le_bytes([row[2 * k], row[2 * k + 1]]));
    let a: Vec<f32> = rows.iter().flat_map(|row| (0..K).map(|k| number(row, k))).collect();
    let b: Vec<f32> = (0..K).flat_map(|k| columns.iter().map(move |row| number(row, k))).collect();
    let mut acc: Vec<f32> = sums.iter().map(|sum| f32::from_bits(*sum)).collect();
    FloatMode::with(|| numerics::dot(&mut acc, &a, &b, [rows.len(), K, columns.len()], true));
    sums.iter_mut().zip(acc).for_each(|(to, sum)| *to = sum.to_bits());
}
