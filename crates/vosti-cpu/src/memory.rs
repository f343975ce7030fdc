//! Zeroed memory straight from the operating system: untouched pages cost nothing, large pages are asked for.
//!
//! Read next: [`crate::layout`].

use memmap2::MmapMut;

/// A fixed-size zeroed allocation, page aligned, that several workers write disjoint parts of.
#[derive(Debug)]
pub struct Region {
    map: MmapMut,
    len: usize,
}

impl Region {
    /// `len` bytes of zeros.
    pub fn zeroed(len: usize) -> std::io::Result<Self> {
        let map = MmapMut::map_anon(len.max(64))?;
        // Advice only: a system without large pages runs the same, slower.
        #[cfg(target_os = "linux")]
        if len >= 2 << 20 {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self { map, len })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First byte. Writing through it is the launcher's business: it proves that workers write disjoint parts.
    pub fn base(&self) -> *mut u8 {
        self.map.as_ptr().cast_mut()
    }

    /// The first `count` values of a plain type.
    pub fn as_slice<T: Plain>(&self, count: usize) -> &[T] {
        assert!(count * size_of::<T>() <= self.len);
        // SAFETY: in bounds, page aligned, and T has no invalid bit patterns.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), count) }
    }

    /// As [`Region::as_slice`], to write.
    pub fn as_mut_slice<T: Plain>(&mut self, count: usize) -> &mut [T] {
        assert!(count * size_of::<T>() <= self.len);
        // SAFETY: in bounds, page aligned, exclusively borrowed, and T has no invalid bit patterns.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), count) }
    }
}

/// Types of which every bit pattern is a value.
pub trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for i32 {}
impl Plain for i64 {}
impl Plain for f32 {}
