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
            if std::io::stderr().is_terminal() {
                eprintln!(); // what was typed, ^C too, keeps its line
            }
            std::process::exit(130);
        }
        if let Some(on_first) = ON_FIRST.get() {
            on_first();
        }
    };
    // Without a handler Ctrl-C ends the process, which is no worse.
    let _ = ctrlc::set_handler(handler);
}

/// What the first one does besides; for a command that waits instead of working. Only the first call counts.
pub fn on_first(what: impl Fn() + Send + Sync + 'static) {
    let _ = ON_FIRST.set(Box::new(what));
}

/// Does what waits for the user, reading standard input say: it would be taken up again after the signal, so Ctrl-C
/// ends the process.
pub fn ends_at_once<T>(wait: impl FnOnce() -> T) -> T {
    WAITING.store(true, Ordering::SeqCst);
    if interrupted() {
        std::process::exit(130);
    }
    let waited = wait();
    WAITING.store(false, Ordering::SeqCst);
    waited
}

/// Whether it was pressed.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Forgets it: in `chat`, Ctrl-C ends the answer, not the conversation.
pub fn reset() -> bool {
    INTERRUPTED.swap(false, Ordering::SeqCst)
}
