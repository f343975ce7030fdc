//! Ctrl-C: the first ends the work at its next step, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Catches Ctrl-C and termination.
pub fn install() {
    let handler = || {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    };
    // Without a handler Ctrl-C ends the process, which is no worse.
    let _ = ctrlc::set_handler(handler);
}

/// Whether it was pressed.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Forgets it: in `chat`, Ctrl-C ends the answer, not the conversation.
pub fn reset() -> bool {
    INTERRUPTED.swap(false, Ordering::SeqCst)
}
