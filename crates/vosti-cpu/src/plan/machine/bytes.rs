//! Truth values and integers of 8 bits, which take a byte in a buffer and four in scratch.

use super::Param;
use super::access::Run;

pub(super) unsafe fn load_bytes(param: &Param, run: Run, tile: *mut i32) {
    for i in 0..run.count {
        let at = param.layout.position((run.index + i as i64 * run.stride) as usize);
        // SAFETY: the caller checked every index.
        unsafe { *tile.add(i) = i32::from(*param.base.add(at).cast::<i8>()) }
    }
}

/// Integers of 8 bits as 32.
#[inline(always)]
pub(super) unsafe fn widen(from: *const i8, to: *mut i32, count: usize) {
    // SAFETY: the caller's.
    let (from, to) = unsafe { (std::slice::from_raw_parts(from, count), std::slice::from_raw_parts_mut(to, count)) };
    to.iter_mut().zip(from).for_each(|(to, from)| *to = i32::from(*from));
}

/// The lowest 8 bits of integers.
#[inline(always)]
pub(super) unsafe fn narrow(from: *const i32, to: *mut u8, count: usize) {
    // SAFETY: the caller's.
    let (from, to) = unsafe { (std::slice::from_raw_parts(from, count), std::slice::from_raw_parts_mut(to, count)) };
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as u8);
}

pub(super) unsafe fn store_bytes(param: &Param, run: Run, tile: *const i32) {
    for i in 0..run.count {
        let at = param.layout.position((run.index + i as i64 * run.stride) as usize);
        // SAFETY: the caller checked every index.
        unsafe { *param.base.add(at) = *tile.add(i) as u8 }
    }
}

pub(super) unsafe fn load_truth(param: &Param, run: Run, tile: *mut u8) {
    for i in 0..run.count {
        let at = param.layout.position((run.index + i as i64 * run.stride) as usize);
        // SAFETY: the caller checked every index.
        unsafe { *tile.cast::<i32>().add(i) = i32::from(*param.base.add(at) != 0) }
    }
}

pub(super) unsafe fn store_truth(param: &Param, run: Run, tile: *const u8) {
    for i in 0..run.count {
        let at = param.layout.position((run.index + i as i64 * run.stride) as usize);
        // SAFETY: the caller checked every index.
        unsafe { *param.base.add(at) = u8::from(*tile.cast::<i32>().add(i) != 0) }
    }
}
