//! Host memory that a GPU copies to and from. It is page-locked if it comes from a driver, so that a copy needs no staging.

use std::ptr::NonNull;

/// A fixed number of bytes, at a multiple of 8.
pub struct HostMemory {
    at: NonNull<u8>,
    bytes: usize,
    /// Frees the memory when it is dropped.
    _owner: Box<dyn Send>,
}

// SAFETY: it is owned memory like a `Vec`'s; its owner can be sent.
unsafe impl Send for HostMemory {}

impl HostMemory {
    /// Ordinary memory of `bytes` zeros, not page-locked.
    pub fn ordinary(bytes: usize) -> HostMemory {
        let mut words = vec![0u64; bytes.div_ceil(8)];
        let at = NonNull::new(words.as_mut_ptr().cast()).unwrap_or(NonNull::<u64>::dangling().cast());
        HostMemory { at, bytes, _owner: Box::new(words) }
    }

    /// Memory that `owner` frees when it is dropped.
    ///
    /// # Safety
    /// `at` is a multiple of 8 and points at `bytes` initialised bytes that no other code uses until `owner` is dropped.
    pub unsafe fn of(at: NonNull<u8>, bytes: usize, owner: Box<dyn Send>) -> HostMemory {
        HostMemory { at, bytes, _owner: owner }
    }

    /// All of it, as bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: it owns so many initialised bytes.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }

    /// All of it, as bytes that can be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: it owns so many initialised bytes, and is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }

    /// All of it, as 32-bit integers that can be written.
    pub fn ints_mut(&mut self) -> &mut [i32] {
        // SAFETY: as above, at a multiple of 8; every bit pattern is a value.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().cast(), self.bytes / 4) }
    }

    /// All of it, as 32-bit integers.
    pub fn ints(&self) -> &[i32] {
        // SAFETY: as above, at a multiple of 8; every bit pattern is a value.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast(), self.bytes / 4) }
    }

    /// All of it, as FP32 numbers that can be written.
    pub fn floats_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, at a multiple of 8; every bit pattern is a value.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().cast(), self.bytes / 4) }
    }

    /// All of it, as FP32 numbers.
    pub fn floats(&self) -> &[f32] {
        // SAFETY: as above, at a multiple of 8; every bit pattern is a value.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast(), self.bytes / 4) }
    }
}

/// Numbers without padding, for which every bit pattern is a value.
pub trait Plain: Copy {}
impl Plain for i8 {}
impl Plain for u16 {}
impl Plain for i32 {}
impl Plain for f32 {}

/// The bytes of numbers in the order in which a device reads them.
pub fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    const { assert!(cfg!(target_endian = "little"), "GPUs are little-endian, and so must be their host") };
    // SAFETY: plain numbers have no padding, and the length is in bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
