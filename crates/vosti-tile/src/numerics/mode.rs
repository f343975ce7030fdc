//! The floating-point mode that the definitions assume: denormals are zeros, round to nearest.

use std::marker::PhantomData;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the floating-point mode is set on x86-64 only: on another processor denormals would not be flushed");

/// While it lives, this thread flushes denormal operands and results to zero; what was set before
/// comes back when it is dropped.
///
/// The compiler may move arithmetic across the change inside one function: set the mode in a caller of
/// the function that computes, as [`FloatMode::with`] does.
pub struct FloatMode {
    before: u32,
    /// The mode is the thread's: the guard stays in it.
    thread: PhantomData<*const ()>,
}

/// All exceptions masked, to nearest, denormal results flushed (bit 15), denormal operands zero (bit 6).
const MODE: u32 = 0x1f80 | 0x8000 | 0x0040;

impl FloatMode {
    #[must_use = "the mode lasts as long as the guard"]
    #[inline(never)]
    pub fn set() -> FloatMode {
        let mut before = 0u32;
        // SAFETY: stores the control register to a live local, then loads one with no reserved bit.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &mut before, options(nostack));
            std::arch::asm!("ldmxcsr [{}]", in(reg) &MODE, options(nostack));
        }
        FloatMode { before, thread: PhantomData }
    }

    /// Runs `f` in the mode.
    #[inline(never)]
    pub fn with<T>(f: impl FnOnce() -> T) -> T {
        let _mode = FloatMode::set();
        apart(f)
    }
}

#[inline(never)]
fn apart<T>(f: impl FnOnce() -> T) -> T {
    f()
}

impl Drop for FloatMode {
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: the value was the control register's.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &self.before, options(nostack)) }
    }
}
