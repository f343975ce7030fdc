//! The floating-point mode that the definitions assume: denormals are zeros, round to nearest.
//!
//! x86-64 has the definition in its control register MXCSR: FTZ flushes a result that is below the smallest normal number
//! *after* rounding, DAZ an operand.
//!
//! AArch64 has FPCR.FZ, which flushes operands in the same way, but flushes a result that is below the smallest normal number
//! *before* rounding. An exact result in the last half ulp below that number rounds up to it on x86-64 and is zero on AArch64
//! (Arm Architecture Reference Manual, DDI 0487: "Flushing denormals to zero" and `FPRoundBase` of the pseudocode). Only a
//! product, a quotient or a fused multiply-add can have such a result: sums and differences are multiples of the smallest
//! denormal, and roots are large. For these three, `super::edge` restores the smallest normal number. FPCR.AH decides after
//! rounding on processors with FEAT_AFP (Armv8.7). [`FloatMode`] leaves it off, so that all processors work alike, and because
//! it changes other instructions too.
//! Read next: [`super::soft`], the same definition without a mode.

use std::marker::PhantomData;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "the floating-point mode is set on x86-64 and AArch64: on another processor denormals would not be flushed"
);

/// A guard: until it is dropped, this thread flushes denormal operands and results to zero and rounds to nearest even. The
/// drop restores the thread's earlier mode.
///
/// The compiler may move arithmetic across the change inside one function: set the mode in a caller of
/// the function that computes, as [`FloatMode::with`] does.
pub struct FloatMode {
    before: Control,
    /// The mode belongs to the thread, so the guard cannot be sent to another.
    thread: PhantomData<*const ()>,
}

impl FloatMode {
    /// Sets this thread's rounding to nearest even and flushes denormals, until the guard is dropped.
    #[must_use = "the mode lasts as long as the guard"]
    #[inline(never)]
    pub fn set() -> FloatMode {
        let before = control();
        // SAFETY: a mode without traps.
        unsafe { set_control(MODE) }
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
        unsafe { set_control(self.before) }
    }
}

#[cfg(target_arch = "x86_64")]
type Control = u32;
#[cfg(target_arch = "aarch64")]
type Control = u64;

/// All exceptions masked, to nearest, denormal results flushed (bit 15), denormal operands zero (bit 6).
#[cfg(target_arch = "x86_64")]
const MODE: Control = 0x1f80 | 0x8000 | 0x0040;

/// No exception trapped, to nearest, denormal operands and results flushed (FZ, bit 24), no alternative behaviour.
#[cfg(target_arch = "aarch64")]
const MODE: Control = 1 << 24;

#[cfg(target_arch = "x86_64")]
fn control() -> Control {
    let mut control = 0;
    // SAFETY: stores the control register to a live local.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut control, options(nostack)) }
    control
}

#[cfg(target_arch = "aarch64")]
fn control() -> Control {
    let control;
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) control, options(nomem, nostack)) }
    control
}

/// # Safety
/// The value has no reserved bit and traps nothing that this thread does not expect.
#[cfg(target_arch = "x86_64")]
unsafe fn set_control(control: Control) {
    // SAFETY: loads the control register from a live local; the value is the caller's.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &control, options(nostack)) }
}

/// # Safety
/// The value has no reserved bit and traps nothing that this thread does not expect.
#[cfg(target_arch = "aarch64")]
unsafe fn set_control(control: Control) {
    // SAFETY: the value is the caller's. Memory counts as written, so that no load or store moves across.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) control, options(nostack)) }
}
