//! A stack for work that recurses as deep as its input goes, such as a chain of references in a schema. Whoever uses it bounds the input's
//! length, and with it the depth. Chat templates have such a stack too, with a bound of memory (`bounded.rs`).

use std::{io, thread};

/// Runs this on a thread whose stack has so many bytes; pages that are not touched cost nothing. An error if there is no thread for it.
pub fn on_deep_stack<T: Send>(bytes: usize, run: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(bytes).spawn_scoped(scope, run)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
