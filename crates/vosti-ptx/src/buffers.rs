//! Global memory as named buffers, far apart, so that no wrong address of one is inside another.

use crate::launch::Global;

/// The bits of an address within a buffer.
const WITHIN: u32 = 36;

/// Named buffers.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    all: Vec<(String, Vec<u8>)>,
}

impl Buffers {
    /// Adds a buffer; gives its address, which is a multiple of 2^36.
    pub fn add(&mut self, name: &str, bytes: Vec<u8>) -> u64 {
        self.all.push((name.into(), bytes));
        (self.all.len() as u64) << WITHIN
    }

    /// The bytes of a buffer, counted in the order they were added.
    pub fn bytes(&self, at: usize) -> &[u8] {
        &self.all[at].1
    }

    fn place(&mut self, at: u64, bytes: usize) -> Result<&mut [u8], String> {
        let (index, from) = ((at >> WITHIN) as usize, (at & ((1 << WITHIN) - 1)) as usize);
        let known = index.checked_sub(1).and_then(|index| self.all.get_mut(index));
        let (name, all) = known.ok_or("no buffer is there")?;
        let len = all.len();
        all.get_mut(from..from + bytes)
            .ok_or_else(|| format!("bytes {from} to {} of `{name}`, which has {len}", from + bytes))
    }
}

impl Global for Buffers {
    fn load(&mut self, at: u64, to: &mut [u8]) -> Result<(), String> {
        let from = self.place(at, to.len())?;
        to.copy_from_slice(from);
        Ok(())
    }

    fn store(&mut self, at: u64, from: &[u8]) -> Result<(), String> {
        self.place(at, from.len())?.copy_from_slice(from);
        Ok(())
    }
}
