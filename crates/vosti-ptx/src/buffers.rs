//! Global memory as named buffers, far apart, so that no wrong address of one is inside another.
//!
//! No order of blocks may show, unless they run [`Buffers::one_by_one`]: what a block has stored, no other block of the launch stores
//! with other bits, or loads. (If the load comes first, in this order of blocks, nothing is found.)

use crate::launch::Global;
use std::ops::Range;

/// The bits of an address within a buffer.
const WITHIN: u32 = 36;

/// Named buffers.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    all: Vec<Place>,
    /// The place in its grid of each block of all launches, in the order in which they run. The last one runs.
    blocks: Vec<[u32; 3]>,
    /// How many are of earlier launches.
    earlier: usize,
    /// Whether blocks may store and load what others have stored.
    one_by_one: bool,
}

#[derive(Clone, Debug)]
struct Place {
    name: String,
    len: u64,
    /// None: zeros.
    bytes: Option<Vec<u8>>,
    /// The block that stored each byte, counted from 1, and 0 for none; empty if none has stored any.
    by: Vec<u32>,
}

impl Buffers {
    /// No buffers yet. Blocks run one by one, and may store and load what those before have stored: a text whose bits depend on the
    /// order of its blocks runs to its end.
    pub fn one_by_one() -> Buffers {
        Buffers { one_by_one: true, ..Buffers::default() }
    }

    /// Adds a buffer; gives its address, which is a multiple of 2^36.
    pub fn add(&mut self, name: &str, bytes: Vec<u8>) -> u64 {
        self.all.push(Place { name: name.into(), len: bytes.len() as u64, bytes: Some(bytes), by: vec![] });
        (self.all.len() as u64) << WITHIN
    }

    /// Adds a buffer of zeros that takes no memory: what is stored there is dropped.
    pub fn add_zeros(&mut self, name: &str, len: u64) -> u64 {
        self.all.push(Place { name: name.into(), len, bytes: None, by: vec![] });
        (self.all.len() as u64) << WITHIN
    }

    /// The bytes of a buffer, counted in the order they were added; none of a buffer of zeros.
    pub fn bytes(&self, at: usize) -> &[u8] {
        self.all[at].bytes.as_deref().unwrap_or_default()
    }

    /// The buffer with these bytes, by its place, and where they are in it.
    fn place(&self, at: u64, bytes: usize) -> Result<(usize, Range<usize>), String> {
        let (index, from) = ((at >> WITHIN) as usize, at & ((1 << WITHIN) - 1));
        let index = index.checked_sub(1).filter(|index| *index < self.all.len()).ok_or("no buffer is there")?;
        let (end, Place { name, len, .. }) = (from + bytes as u64, &self.all[index]);
        if end > *len {
            return Err(format!("bytes {from} to {end} of `{name}`, which has {len}"));
        }
        Ok((index, from as usize..end as usize))
    }

    /// The first of these blocks that may run at the same time as this one is an error.
    fn no_other(&self, mut stored: impl Iterator<Item = u32>) -> Result<(), String> {
        let other = |by: &u32| !self.one_by_one && (self.earlier + 1..self.blocks.len()).contains(&(*by as usize));
        match stored.find(other) {
            Some(by) => Err(format!("block {:?} of this launch has stored there", self.blocks[by as usize - 1])),
            None => Ok(()),
        }
    }
}

impl Global for Buffers {
    fn begin_launch(&mut self) {
        self.earlier = self.blocks.len();
    }

    fn begin_block(&mut self, block: [u32; 3]) {
        self.blocks.push(block);
    }

    fn load(&mut self, at: u64, to: &mut [u8]) -> Result<(), String> {
        let (index, range) = self.place(at, to.len())?;
        let place = &self.all[index];
        match &place.bytes {
            Some(bytes) => to.copy_from_slice(&bytes[range.clone()]),
            None => to.fill(0),
        }
        self.no_other(place.by.get(range).unwrap_or_default().iter().copied())
    }

    fn store(&mut self, at: u64, from: &[u8]) -> Result<(), String> {
        let (index, range) = self.place(at, from.len())?;
        let place = &self.all[index];
        let Some(bytes) = &place.bytes else { return Ok(()) };
        let stored = place.by.get(range.clone()).unwrap_or_default().iter().copied();
        let all = stored.zip(bytes[range.clone()].iter().zip(from));
        self.no_other(all.filter(|(_, (own, new))| own != new).map(|(by, _)| by))?;
        let block = self.blocks.len() as u32;
        let place = &mut self.all[index];
        place.by.resize(place.len as usize, 0);
        place.by[range.clone()].fill(block);
        if let Some(bytes) = &mut place.bytes {
            bytes[range].copy_from_slice(from);
        }
        Ok(())
    }
}
