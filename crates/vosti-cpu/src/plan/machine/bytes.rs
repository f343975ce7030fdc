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
