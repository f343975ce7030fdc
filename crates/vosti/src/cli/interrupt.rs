//! Ctrl-C: the first ends the work at its next step, the second ends the process. While a command waits for its user, or does work
//! that has no steps, the first already ends the process. Either ends the programs that the command has started.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static WAITING: AtomicBool = AtomicBool::new(false);
static WITHOUT_STEPS: AtomicBool = AtomicBool::new(false);
static ON_FIRST: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Catches Ctrl-C and termination.
pub fn install() {
    let handler = || {
        let again = INTERRUPTED.swap(true, Ordering::SeqCst);
        vosti_child::stop_all();
        if again || WAITING.load(Ordering::SeqCst) {
            super::silent::restore();
            if std::io::stderr().is_terminal() {
                tell!(); // the shell's prompt begins below the line with ^C
            }
            std::process::exit(130);
        }
        if WITHOUT_STEPS.load(Ordering::SeqCst) {
            std::thread::sleep(vosti_child::CLEARING);
            end();
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

/// Runs work that does not ask whether it should end, such as a proof or the making of an environment. Ctrl-C ends the process.
pub fn without_steps<T>(work: impl FnOnce() -> T) -> T {
    WITHOUT_STEPS.store(true, Ordering::SeqCst);
    let done = work();
    if interrupted() {
        drop(done); // perhaps an error that says that a program was ended
        end();
    }
    WITHOUT_STEPS.store(false, Ordering::SeqCst);
    done
}

fn end() -> ! {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    tell!("vosti: interrupted");
    std::process::exit(130)
}

/// Whether Ctrl-C was pressed since the last [`reset`].
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Forgets a Ctrl-C, and returns whether there was one: in `chat` it ends the answer, not the conversation.
pub fn reset() -> bool {
    INTERRUPTED.swap(false, Ordering::SeqCst)
}
