//! Global memory as named buffers, far apart, so that no wrong address of one is inside another.
//!
//! No order of blocks may show, unless they run [`Buffers::one_by_one`]: what a block stores, no other block of the launch stores with
//! other bits, or loads, whichever of them runs first.

use crate::launch::Global;
use std::ops::Range;

/// The bits of an address within a buffer.
const WITHIN: u32 = 36;

/// Named buffers.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    all: Vec<Place>,
    /// The place in its grid of each block of the launch, in the order in which they run. The last one runs.
    blocks: Vec<[u32; 3]>,
    /// Whether blocks may store and load what others have stored.
    one_by_one: bool,
}

#[derive(Clone, Debug)]
struct Place {
    name: String,
    len: u64,
    /// None: zeros.
    bytes: Option<Vec<u8>>,
    /// The last block of the launch that stored each byte.
    stored: Blocks,
    /// The first block of the launch that loaded each byte, and whether others have.
    loaded: Blocks,
}

/// Blocks by byte of a buffer: each counted from 1, and 0 for none. Empty if no byte has one.
#[derive(Clone, Debug, Default)]
struct Blocks(Vec<u32>);

/// In place of a block: several.
const SEVERAL: u32 = u32::MAX;

impl Blocks {
    fn of(&self, bytes: Range<usize>) -> &[u32] {
        self.0.get(bytes).unwrap_or_default()
    }

    fn of_mut(&mut self, bytes: Range<usize>, len: u64) -> &mut [u32] {
        self.0.resize(len as usize, 0);
        &mut self.0[bytes]
    }
}

impl Buffers {
    /// No buffers yet. Blocks run one by one, and may store and load what those before have stored: a text whose bits depend on the
    /// order of its blocks runs to its end.
    pub fn one_by_one() -> Buffers {
        Buffers { one_by_one: true, ..Buffers::default() }
    }

    /// Adds a buffer; gives its address, which is a multiple of 2^36.
    pub fn add(&mut self, name: &str, bytes: Vec<u8>) -> u64 {
        self.all.push(Place {
            name: name.into(),
            len: bytes.len() as u64,
            bytes: Some(bytes),
            stored: Blocks::default(),
            loaded: Blocks::default(),
        });
        (self.all.len() as u64) << WITHIN
    }

    /// Adds a buffer of zeros that takes no memory: what is stored there is dropped.
    pub fn add_zeros(&mut self, name: &str, len: u64) -> u64 {
        self.all.push(Place {
            name: name.into(),
            len,
            bytes: None,
            stored: Blocks::default(),
            loaded: Blocks::default(),
        });
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

    /// A block of these that is not the running one is an error.
    fn no_other(&self, mut blocks: impl Iterator<Item = u32>, has: &str) -> Result<(), String> {
        let own = self.blocks.len() as u32;
        match blocks.find(|block| !self.one_by_one && *block != 0 && *block != own) {
            Some(SEVERAL) => Err(format!("other blocks of this launch have {has} there")),
            Some(block) => Err(format!("block {:?} of this launch has {has} there", self.blocks[block as usize - 1])),
            None => Ok(()),
        }
    }
}

impl Global for Buffers {
    fn begin_launch(&mut self) {
        self.blocks.clear();
        self.all.iter_mut().for_each(|place| (place.stored, place.loaded) = (Blocks::default(), Blocks::default()));
    }

    fn begin_block(&mut self, block: [u32; 3]) {
        self.blocks.push(block);
    }

    fn load(&mut self, at: u64, to: &mut [u8]) -> Result<(), String> {
        let (index, range) = self.place(at, to.len())?;
        let Some(bytes) = &self.all[index].bytes else {
            to.fill(0);
            return Ok(());
        };
        to.copy_from_slice(&bytes[range.clone()]);
        self.no_other(self.all[index].stored.of(range.clone()).iter().copied(), "stored")?;
        let (block, place) = (self.blocks.len() as u32, &mut self.all[index]);
        for by in place.loaded.of_mut(range, place.len) {
            *by = if *by == 0 || *by == block { block } else { SEVERAL };
        }
        Ok(())
    }

    fn store(&mut self, at: u64, from: &[u8]) -> Result<(), String> {
        let (index, range) = self.place(at, from.len())?;
        let place = &self.all[index];
        let Some(bytes) = &place.bytes else { return Ok(()) };
        self.no_other(place.loaded.of(range.clone()).iter().copied(), "loaded from")?;
        let stored = place.stored.of(range.clone()).iter().copied();
        let all = stored.zip(bytes[range.clone()].iter().zip(from));
        self.no_other(all.filter(|(_, (own, new))| own != new).map(|(by, _)| by), "stored")?;
        let (block, place) = (self.blocks.len() as u32, &mut self.all[index]);
        place.stored.of_mut(range.clone(), place.len).fill(block);
        if let Some(bytes) = &mut place.bytes {
            bytes[range].copy_from_slice(from);
        }
        Ok(())
    }
}
