//! Bounds on memory and time of work that an untrusted program does: one step of a chat template can ask for any amount of them.
//!
//! [`Bounded`] is the allocator of a process that renders templates; the binary's crate declares it. It counts what a thread with a bound
//! holds. An allocation cannot end with an error, so a thread that reaches its bound stops in the allocation, for ever, and [`within`] tells
//! its caller; so does a thread that is out of time, at its next allocation. Such a thread keeps its memory until the process ends; after a
//! few of them no more work begins. Read next: `chat.rs`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use std::{io, ptr, thread};

/// The room of threads without a bound.
const UNBOUNDED: usize = usize::MAX;

/// Threads that may stop at their bounds in the life of a process.
const STOPPED_MAX: usize = 8;

/// Longest time until a caller sees that its thread has stopped.
const TICK: Duration = Duration::from_millis(20);

thread_local! {
    // Neither is made at its first use or dropped, so an allocator may read them.
    /// Bytes that this thread may still take.
    static ROOM: Cell<usize> = const { Cell::new(UNBOUNDED) };
    /// Whether it stops: it has reached its bound, or its caller has given it up.
    static STOPS: Cell<*const AtomicBool> = const { Cell::new(ptr::null()) };
}

static STOPPED: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with bounds for threads that [`within`] starts. Without it they have none.
pub struct Bounded;

/// Takes bytes of this thread's room, or stops the thread.
fn take(bytes: usize) {
    let room = ROOM.get();
    if room == UNBOUNDED {
        return;
    }
    // SAFETY: `within` set the pointer to a flag that this thread's closure keeps.
    let stops = unsafe { &*STOPS.get() };
    if bytes > room || stops.load(Relaxed) {
        stops.store(true, Relaxed);
        loop {
            thread::sleep(Duration::from_secs(1 << 20));
        }
    }
    ROOM.set(room - bytes);
}

fn give_back(bytes: usize) {
    let room = ROOM.get();
    if room != UNBOUNDED {
        // Memory that another thread took may come back here.
        ROOM.set(room.saturating_add(bytes).min(UNBOUNDED - 1));
    }
}

// SAFETY: every call is the system's allocator's; counting allocates nothing and does not unwind.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        take(bytes.saturating_sub(layout.size()));
        give_back(layout.size().saturating_sub(bytes));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

/// What a user can do.
pub(crate) const WITHOUT: &str = "use another file of the model, or continue texts without a template";

/// Why work has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    #[error("there is no thread to run it: {0}")]
    NoThread(#[from] io::Error),
    #[error("it takes more than {} MB of memory, which is the limit: {WITHOUT}", .0 >> 20)]
    Memory(usize),
    #[error("it takes longer than {} s, which is the limit: {WITHOUT}", .0.as_secs())]
    Time(Duration),
    #[error("{0} templates took more memory or time than the limit, and go on: end this process, and {WITHOUT}")]
    TooMany(usize),
    #[error("the template engine failed at it: {0}")]
    Panicked(String),
}

/// Runs work for so long at most, on a thread with so many bytes of stack, and with a bound of so many bytes for what it holds beside that.
/// Pages of the stack that are not touched cost nothing.
pub(crate) fn within<T: Send + 'static>(
    bytes: usize,
    stack: usize,
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Stopped> {
    let before = STOPPED.load(Relaxed);
    if before >= STOPPED_MAX {
        return Err(Stopped::TooMany(before));
    }
    let stops = Arc::new(AtomicBool::new(false));
    let (tell, told) = sync_channel(1);
    let flag = stops.clone();
    let bounded = move || {
        STOPS.set(Arc::as_ptr(&flag));
        ROOM.set(bytes);
        let done = catch_unwind(AssertUnwindSafe(work));
        ROOM.set(UNBOUNDED);
        _ = tell.send(done);
    };
    let thread = thread::Builder::new().stack_size(stack).spawn(bounded)?;
    let start = Instant::now();
    let done = loop {
        match told.recv_timeout(TICK) {
            Ok(done) => break done,
            Err(RecvTimeoutError::Timeout) if stops.load(Relaxed) => {
                STOPPED.fetch_add(1, Relaxed);
                return Err(Stopped::Memory(bytes));
            }
            Err(RecvTimeoutError::Timeout) if start.elapsed() > time => {
                stops.store(true, Relaxed);
                STOPPED.fetch_add(1, Relaxed);
                return Err(Stopped::Time(time));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Stopped::Panicked("its thread ended".into())),
        }
    };
    _ = thread.join();
    done.map_err(|panic| Stopped::Panicked(said(&*panic)))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn work_has_a_result_a_panic_or_an_end_of_its_time() {
        assert_eq!(within(1 << 20, 1 << 20, MINUTE, || 7).ok(), Some(7));
        let panics = within(1 << 20, 1 << 20, MINUTE, || -> u8 { panic!("seven") });
        assert_eq!(
            panics.map_err(|stopped| stopped.to_string()),
            Err("the template engine failed at it: seven".into())
        );
        let endless = within(1 << 20, 1 << 20, Duration::from_millis(50), || -> u8 {
            loop {
                thread::sleep(MINUTE);
            }
        });
        let told = endless.map_err(|stopped| stopped.to_string()).unwrap_err();
        assert!(told.starts_with("it takes longer than 0 s, which is the limit: "), "{told}");
    }
}
