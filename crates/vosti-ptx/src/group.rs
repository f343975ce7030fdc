//! Matrix products of a warpgroup, which sm90 has: `wgmma` (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
//!
//! A warp computes its own 16 of the 64 rows. The result exists from the wait on: until then its registers are poison, and the
//! operands in shared memory must stay as they were. A register that another instruction wrote needs `wgmma.fence` before, and
//! what a store or `cp.async` wrote to shared memory needs `fence.proxy.async` of that thread. What a copy by descriptor
//! brought needs no fence, because it is by the same proxy, but that the warp's first thread has waited for it. That all four
//! warps come to the same instruction is not checked.

use crate::decode::{Factor, Gemm, Product, Register};
use crate::fault::Fault;
use crate::launch::{Block, Global};
use crate::matrix::Lanes;
use crate::tile::{self, DEPTH, Line, Tile};
use crate::warp::Warp;
use std::collections::VecDeque;

/// Rows of a warp.
const ROWS: usize = 16;

/// A product whose result has not landed.
#[derive(Clone, Debug)]
struct Flight {
    to: Vec<Register>,
    values: Vec<Lanes>,
    /// What it read of shared memory.
    reads: Vec<(u64, [u8; 16])>,
}

/// The products of a warp that are under way.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    open: Vec<Flight>,
    groups: VecDeque<Vec<Flight>>,
}

impl Warp {
    /// `wgmma.mma_async`.
    pub(crate) fn gemm<G: Global + ?Sized>(&mut self, gemm: &Gemm, block: &mut Block<'_, G>) -> Result<(), Fault> {
        let mut reads = vec![];
        let b = self.tile(gemm.b, 0, gemm.columns, gemm.transposed[1], block, &mut reads)?;
        let second = reads.len();
        let a = match gemm.a {
            Factor::Registers(registers) => self.rows(registers)?,
            Factor::Shared(tile) => {
                let first = (self.first() / 32 % 4) as usize * ROWS;
                self.tile(tile, first, ROWS, gemm.transposed[0], block, &mut reads)?
            }
        };
        // The first operand, or its part of it, is a warp's own; the second is read once for the four warps.
        let own = if self.first().is_multiple_of(128) { reads.len() } else { reads.len() - second };
        block.counts.operand_bytes += 16 * own as u64;
        let keep = self.same(gemm.keep, "a scale of a matrix product")? != 0;
        let c = self.accumulators(&gemm.to, keep)?;
        let values = match gemm.product {
            Product::Bf16 => bf16(&a, &b, c, gemm.columns),
            Product::S8 => bytes(&a, &b, c, gemm.columns),
        };
        self.forget(&gemm.to);
        self.flights().open.push(Flight { to: gemm.to.clone(), values, reads });
        Ok(())
    }

    /// What the accumulators are before a product: those of the last one that is under way to them, or the registers.
    fn accumulators(&mut self, to: &[Register], keep: bool) -> Result<Vec<Lanes>, Fault> {
        if !keep {
            return Ok(vec![[0; 32]; to.len()]);
        }
        let flights = self.flights();
        let mut all = flights.groups.iter().flatten().chain(&flights.open).rev();
        if let Some(flight) = all.find(|flight| flight.to == to) {
            return Ok(flight.values.clone());
        }
        to.iter().map(|register| self.fenced(*register, "an accumulator")).collect()
    }

    /// A warp's rows in registers, as rows of bytes.
    fn rows(&self, registers: [Register; 4]) -> Result<Vec<Line>, Fault> {
        let mut rows = vec![[0; DEPTH]; ROWS];
        for (i, register) in registers.into_iter().enumerate() {
            let lanes = self.fenced(register, "an operand of a matrix product")?;
            for (lane, value) in lanes.iter().enumerate() {
                let at = lane % 4 * 4 + 16 * (i / 2);
                rows[lane / 4 + 8 * (i % 2)][at..at + 4].copy_from_slice(&(*value as u32).to_le_bytes());
            }
        }
        Ok(rows)
    }

    /// Lines `first` and on of a tile in shared memory, each with its k side by side.
    fn tile<G: Global + ?Sized>(
        &mut self,
        descriptor: Register,
        first: usize,
        lines: usize,
        transposed: bool,
        block: &mut Block<'_, G>,
        reads: &mut Vec<(u64, [u8; 16])>,
    ) -> Result<Vec<Line>, Fault> {
        let tile = Tile::of_warpgroup(self.same(descriptor, "a descriptor")?)?;
        tile.lines(first, lines, transposed, |address| {
            let bytes = block.shared.load_by_warpgroup(address, self.leader())?;
            reads.push((address, bytes));
            Ok(bytes)
        })
    }

    /// `wgmma.commit_group`.
    pub(crate) fn close_group(&mut self) {
        let flights = self.flights();
        let open = std::mem::take(&mut flights.open);
        flights.groups.push_back(open);
    }

    /// `wgmma.wait_group`: all groups but the last `but` land. Registers of a product that is still under way stay poison.
    pub(crate) fn land<G: Global + ?Sized>(&mut self, but: usize, block: &mut Block<'_, G>) -> Result<(), Fault> {
        while self.flights().groups.len() > but {
            for flight in self.flights().groups.pop_front().into_iter().flatten() {
                for (at, bytes) in flight.reads {
                    if block.shared.load_by_warpgroup(at, self.leader())? != bytes {
                        return Err(Fault::Changed { at });
                    }
                }
                let flights = self.flights();
                let mut others = flights.groups.iter().flatten().chain(&flights.open);
                if !others.any(|other| other.to == flight.to) {
                    self.landed(&flight.to, &flight.values);
                }
            }
        }
        Ok(())
    }
}

/// Row and column of accumulator `i` of a thread ("Register Fragments for wgmma.mma_async": matrix D).
fn place(lane: usize, i: usize, columns: usize) -> usize {
    (lane / 4 + 8 * (i / 2 % 2)) * columns + 8 * (i / 4) + lane % 4 * 2 + i % 2
}

fn spread(acc: &[u32], columns: usize) -> Vec<Lanes> {
    let lanes = |i: usize| std::array::from_fn(|lane| acc[place(lane, i, columns)].into());
    (0..columns / 2).map(lanes).collect()
}

fn gathered(c: &[Lanes], columns: usize) -> Vec<u32> {
    let mut acc = vec![0; ROWS * columns];
    for (i, lanes) in c.iter().enumerate() {
        lanes.iter().enumerate().for_each(|(lane, value)| acc[place(lane, i, columns)] = *value as u32);
    }
    acc
}

fn bf16(a: &[Line], b: &[Line], c: Vec<Lanes>, columns: usize) -> Vec<Lanes> {
    let mut acc = gathered(&c, columns);
    tile::bf16(&mut acc, a, b);
    spread(&acc, columns)
}

/// Sums of whole numbers, which wrap (no `.satfinite`).
fn bytes(a: &[Line], b: &[Line], c: Vec<Lanes>, columns: usize) -> Vec<Lanes> {
    let mut acc = gathered(&c, columns);
    for (at, sum) in acc.iter_mut().enumerate() {
        let pairs = a[at / columns].iter().zip(&b[at % columns]);
        let products: i32 = pairs.map(|(x, y)| i32::from(*x as i8) * i32::from(*y as i8)).sum();
        *sum = (*sum as i32).wrapping_add(products) as u32;
    }
    spread(&acc, columns)
}
