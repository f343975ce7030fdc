//! A terminal that does not show what is typed. The keys are kept, so the next read of a line gets them, and Ctrl-C works.
//! A process that ends early must call [`restore`], or the user's shell would show nothing either.

use std::io::IsTerminal;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

/// The terminal's settings before.
static BEFORE: Mutex<Option<libc::termios>> = Mutex::new(None);

/// Standard input shows nothing while this lives. Does nothing where it is no terminal.
pub struct Silent;

impl Silent {
    pub fn new() -> Self {
        if std::io::stdin().is_terminal() {
            let mut settings = MaybeUninit::<libc::termios>::uninit();
            // SAFETY: the call writes the settings unless it fails.
            let before = (unsafe { libc::tcgetattr(libc::STDIN_FILENO, settings.as_mut_ptr()) } == 0)
                // SAFETY: it did not fail.
                .then(|| unsafe { settings.assume_init() });
            if let Some(before) = before {
                // Ctrl-C would forget the keys that wait.
                set(&libc::termios { c_lflag: before.c_lflag & !libc::ECHO | libc::NOFLSH, ..before });
            }
            *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = before;
        }
        Silent
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal its settings back, if a [`Silent`] lives.
pub fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        set(&before);
    }
}

fn set(settings: &libc::termios) {
    // SAFETY: the settings are valid. A failure leaves the terminal as it is.
    unsafe {
        libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, settings);
    }
}
