//! Global memory as named buffers, far apart, so that no wrong address of one is inside another.

use crate::launch::Global;

/// The bits of an address within a buffer.
const WITHIN: u32 = 36;

/// Named buffers.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    all: Vec<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    name: String,
    len: u64,
    /// None: zeros.
    bytes: Option<Vec<u8>>,
}

impl Buffers {
    /// Adds a buffer; gives its address, which is a multiple of 2^36.
    pub fn add(&mut self, name: &str, bytes: Vec<u8>) -> u64 {
        self.all.push(Place { name: name.into(), len: bytes.len() as u64, bytes: Some(bytes) });
        (self.all.len() as u64) << WITHIN
    }

    /// Adds a buffer of zeros that takes no memory: what is stored there is dropped.
    pub fn add_zeros(&mut self, name: &str, len: u64) -> u64 {
        self.all.push(Place { name: name.into(), len, bytes: None });
        (self.all.len() as u64) << WITHIN
    }

    /// The bytes of a buffer, counted in the order they were added; none of a buffer of zeros.
    pub fn bytes(&self, at: usize) -> &[u8] {
        self.all[at].bytes.as_deref().unwrap_or_default()
    }

    /// The buffer's bytes at an address; none of a buffer of zeros.
    fn place(&mut self, at: u64, bytes: usize) -> Result<Option<&mut [u8]>, String> {
        let (index, from) = ((at >> WITHIN) as usize, at & ((1 << WITHIN) - 1));
        let known = index.checked_sub(1).and_then(|index| self.all.get_mut(index));
        let Place { name, len, bytes: all } = known.ok_or("no buffer is there")?;
        let end = from + bytes as u64;
        if end > *len {
            return Err(format!("bytes {from} to {end} of `{name}`, which has {len}"));
        }
        Ok(all.as_mut().map(|all| &mut all[from as usize..end as usize]))
    }
}

impl Global for Buffers {
    fn load(&mut self, at: u64, to: &mut [u8]) -> Result<(), String> {
        match self.place(at, to.len())? {
            Some(from) => to.copy_from_slice(from),
            None => to.fill(0),
        }
        Ok(())
    }

    fn store(&mut self, at: u64, from: &[u8]) -> Result<(), String> {
        if let Some(to) = self.place(at, from.len())? {
            to.copy_from_slice(from);
        }
        Ok(())
    }
}
