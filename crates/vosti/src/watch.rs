//! Who watches something long: it is told how far it is, and may ask it to end.
//!
//! The library never prints; the command line draws a bar from this.

/// A watcher of stages, each of so many units (bytes, pairs, tensors).
pub trait Watch: Sync {
    /// A new stage begins, of `total` units.
    fn stage(&self, label: &str, total: u64);
    /// So many units of the stage are done.
    fn done(&self, units: u64);
    /// True ends the work at the next opportunity, with an error that says so.
    fn cancelled(&self) -> bool;
}

/// How many of something, as people say it: `1 page`, `2 pages`.
pub fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Passes on that the work shall end, and nothing of how far it is: for work inside a stage of the watcher's own.
pub struct Quiet<'a>(pub &'a dyn Watch);

impl Watch for Quiet<'_> {
    fn stage(&self, _label: &str, _total: u64) {}
    fn done(&self, _units: u64) {}
    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}

/// Watches nothing.
pub struct Silent;

impl Watch for Silent {
    fn stage(&self, _label: &str, _total: u64) {}
    fn done(&self, _units: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}
