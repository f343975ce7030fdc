//! Who knows that something asynchronous has ended.

use super::{THREADS_MAX, Who};

/// The threads of a block that have waited for something, or have met one that has.
#[derive(Debug, Default)]
pub(super) struct Seen {
    threads: [u32; THREADS_MAX / 32],
    all: bool,
}

impl Seen {
    pub fn add(&mut self, who: Who) {
        self.threads[who.thread as usize / 32] |= 1 << (who.thread % 32);
    }

    pub fn by(&self, who: Who) -> bool {
        self.all || self.threads[who.thread as usize / 32] >> (who.thread % 32) & 1 == 1
    }

    /// By one thread or more.
    pub fn some(&self) -> bool {
        self.all || self.threads.iter().any(|threads| *threads != 0)
    }

    /// All threads have met.
    pub fn publish(&mut self) {
        self.all = self.some();
    }

    pub fn by_all(&self) -> bool {
        self.all
    }
}
