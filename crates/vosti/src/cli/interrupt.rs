//! Ctrl-C: the first ends the work at its next step, the second ends the process. While a command waits for its user there is
//! no next step, so the first already ends the process.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static WAITING: AtomicBool = AtomicBool::new(false);
static ON_FIRST: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Catches Ctrl-C and termination.
pub fn install() {
    let handler = || {
        if INTERRUPTED.swap(true, Ordering::SeqCst) || WAITING.load(Ordering::SeqCst) {
            super::silent::restore();
            if std::io::stderr().is_terminal() {
                eprintln!(); // the shell's prompt begins below the line with ^C
            }
            std::process::exit(130);
        }
        if let Some(on_first) = ON_FIRST.get() {
            on_first();
        }
    };
    // Without a handler Ctrl-C ends the process at once.
    let _ = ctrlc::set_handler(handler);
}

/// Runs `what` at the first Ctrl-C, for a command that waits instead of working. Only the first call of this function counts.
pub fn on_first(what: impl Fn() + Send + Sync + 'static) {
    let _ = ON_FIRST.set(Box::new(what));
}

/// Runs a function that waits for the user, such as a read of standard input. The system restarts the read after a signal, so
/// Ctrl-C ends the process.
pub fn ends_at_once<T>(wait: impl FnOnce() -> T) -> T {
    WAITING.store(true, Ordering::SeqCst);
    if interrupted() {
        std::process::exit(130);
    }
    let waited = wait();
    WAITING.store(false, Ordering::SeqCst);
    waited
}

/// Whether Ctrl-C was pressed since the last [`reset`].
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Forgets a Ctrl-C, and returns whether there was one: in `chat` it ends the answer, not the conversation.
pub fn reset() -> bool {
    INTERRUPTED.swap(false, Ordering::SeqCst)
}
