//! Zeroed memory from the operating system. Untouched pages cost nothing, and large pages are requested.
//!
//! Buffers are cut from large chunks, so small weights share large pages too.
//! Read next: [`vosti_simd::layout`].

use std::sync::Arc;

use memmap2::MmapMut;

/// Bytes of a chunk that buffers share.
const CHUNK: usize = 256 << 20;
/// Buffers start at a multiple of this.
const ALIGN: usize = 4096;

#[derive(Debug)]
struct Chunk {
    map: MmapMut,
}

impl Chunk {
    fn zeroed(len: usize) -> std::io::Result<Arc<Self>> {
        let map = MmapMut::map_anon(len)?;
        // Only advice: without large pages the device is slower.
        #[cfg(target_os = "linux")]
        if len >= 2 << 20 {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Arc::new(Self { map }))
    }
}

/// Hands out regions one after the other from chunks.
#[derive(Debug, Default)]
pub struct Arena {
    chunk: Option<Arc<Chunk>>,
    used: usize,
}

impl Arena {
    /// A new region of `len` zero bytes.
    pub fn zeroed(&mut self, len: usize) -> std::io::Result<Region> {
        let bytes = len.max(64).next_multiple_of(ALIGN);
        let left = self.chunk.as_ref().map_or(0, |chunk| chunk.map.len() - self.used);
        let chunk = match &self.chunk {
            Some(chunk) if left >= bytes => chunk.clone(),
            _ => {
                let chunk = Chunk::zeroed(bytes.max(CHUNK))?;
                self.used = 0;
                self.chunk.insert(chunk).clone()
            }
        };
        let offset = self.used;
        self.used += bytes;
        Ok(Region { chunk, offset, len })
    }

    /// Shortens the region that was handed out last to `len` bytes. The rest must not have been written.
    pub fn shrink(&mut self, region: &mut Region, len: usize) {
        assert!(len <= region.len);
        region.len = len;
        if self.chunk.as_ref().is_some_and(|chunk| Arc::ptr_eq(chunk, &region.chunk)) {
            self.used = region.offset + len.max(64).next_multiple_of(ALIGN);
        }
    }
}

/// A fixed-size zeroed allocation, page aligned, that several workers write disjoint parts of.
#[derive(Debug)]
pub struct Region {
    chunk: Arc<Chunk>,
    offset: usize,
    len: usize,
}

impl Region {
    /// `len` bytes of zeros in a mapping of their own.
    pub fn zeroed(len: usize) -> std::io::Result<Self> {
        Ok(Self { chunk: Chunk::zeroed(len.max(64))?, offset: 0, len })
    }

    /// The same bytes once more, for a reader with another view of them. Neither is written afterwards.
    pub fn again(&self) -> Region {
        Region { chunk: self.chunk.clone(), ..*self }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first byte. Whoever writes through it must make sure that workers write disjoint parts.
    pub fn base(&self) -> *mut u8 {
        // SAFETY: the region lies within its chunk.
        unsafe { self.chunk.map.as_ptr().add(self.offset).cast_mut() }
    }

    /// The first `count` values of a plain type.
    pub fn as_slice<T: Plain>(&self, count: usize) -> &[T] {
        assert!(count * size_of::<T>() <= self.len);
        // SAFETY: in bounds, page aligned, and T has no invalid bit patterns.
        unsafe { std::slice::from_raw_parts(self.base().cast(), count) }
    }

    /// As [`Region::as_slice`], to write.
    pub fn as_mut_slice<T: Plain>(&mut self, count: usize) -> &mut [T] {
        assert!(count * size_of::<T>() <= self.len);
        // SAFETY: in bounds, page aligned, T has no invalid bit patterns; an arena gives no byte out twice, and
        // this region is exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.base().cast(), count) }
    }
}

/// Types of which every bit pattern is a value.
pub trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for i8 {}
impl Plain for u16 {}
impl Plain for i32 {}
impl Plain for i64 {}
impl Plain for f32 {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_an_arena_are_zero_and_apart() {
        let mut arena = Arena::default();
        let mut a = arena.zeroed(100).unwrap();
        let mut b = arena.zeroed(CHUNK).unwrap();
        let c = arena.zeroed(8).unwrap();
        a.as_mut_slice::<u8>(100).fill(1);
        b.as_mut_slice::<u8>(100).fill(2);
        assert_eq!(a.as_slice::<u8>(100), [1; 100]);
        assert_eq!(c.as_slice::<u8>(8), [0; 8]);
        let mut last = arena.zeroed(3 * ALIGN).unwrap();
        arena.shrink(&mut last, ALIGN);
        let next = arena.zeroed(8).unwrap();
        assert_eq!((last.len(), next.base() as usize - last.base() as usize), (ALIGN, ALIGN));
        assert!((a.base() as usize).is_multiple_of(ALIGN) && (c.base() as usize).is_multiple_of(ALIGN));
    }
}
