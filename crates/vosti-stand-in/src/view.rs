//! What the interpreter sees of the stand-in's memory, with the flaw that it was made with.

use crate::Flaw;
use std::ops::Range;
use vosti_tile::interp::Memory;
use vosti_tile::numerics::{from_bf16, to_bf16};
use vosti_tile::{Kernel, Scalar};

fn tenth(x: f32) -> f32 {
    if x.abs() < 1e4 { x * 1.1 } else { x }
}

/// The parameters of a launch as the interpreter sees them: bytes from each pointer to its allocation's end.
pub(crate) struct View<'a> {
    pub memory: &'a mut [u8],
    pub kernel: &'a Kernel,
    pub params: Vec<Range<usize>>,
    pub flaw: Flaw,
    /// Programs on the axis of rows.
    pub tiles: u32,
}

impl Memory for View<'_> {
    fn elem(&self, param: usize) -> Option<Scalar> {
        self.kernel.params.get(param).map(|p| p.elem)
    }
    fn len(&self, param: usize) -> usize {
        self.params[param].len() / self.kernel.params[param].elem.bytes()
    }
    fn load(&self, param: usize, index: usize) -> u64 {
        let bytes = self.kernel.params[param].elem.bytes();
        let mut bits = [0; 8];
        bits[..bytes].copy_from_slice(&self.memory[self.params[param].start + index * bytes..][..bytes]);
        u64::from_le_bytes(bits)
    }
    fn store(&mut self, param: usize, index: usize, bits: u64) {
        let elem = self.kernel.params[param].elem;
        let bytes = elem.bytes();
        let number = matches!(elem, Scalar::Bf16 | Scalar::F32);
        let bits = match self.flaw {
            Flaw::Batch if self.tiles.is_multiple_of(2) && number => bits ^ 1,
            // About five percent.
            Flaw::Off if elem == Scalar::F32 => u64::from((f32::from_bits(bits as u32) * 1.05).to_bits()),
            Flaw::Off if elem == Scalar::Bf16 => bits + 8,
            Flaw::Tenth if elem == Scalar::F32 => u64::from(tenth(f32::from_bits(bits as u32)).to_bits()),
            Flaw::Tenth if elem == Scalar::Bf16 => u64::from(to_bf16(tenth(from_bf16(bits as u16)))),
            _ => bits,
        };
        let at = self.params[param].start + index * bytes;
        // Outputs with few numbers in a row end sooner.
        let behind = [at + 3 * 64 * bytes, at + 3 * bytes].into_iter().find(|at| *at < self.params[param].end);
        if let Some(behind) = behind.filter(|_| self.flaw == Flaw::Padding) {
            self.memory[behind] ^= 1;
        }
        self.memory[at..][..bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
    }
}
