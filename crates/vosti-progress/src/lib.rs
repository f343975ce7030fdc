//! Long work reports its progress, and asks whether it should stop.
//!
//! Code that loads, fetches, compares or measures takes a [`Progress`]; the command line draws a bar from it. Libraries never
//! print, and no result may depend on progress. Read next: the command's `cli/bar.rs`, which draws.

/// Is told of stages, each of so many units (bytes, pairs, tensors), and may end the work. Several threads may tell it.
pub trait Progress: Sync {
    /// A new stage begins, of `total` units.
    fn stage(&self, label: &str, total: u64);
    /// So many units of the stage are done.
    fn done(&self, units: u64);
    /// True ends the work at the next opportunity, with an error that says so.
    fn cancelled(&self) -> bool;
}

/// Passes on that the work shall end, and nothing of how far it is: for work inside a stage of somebody else's.
pub struct CancelOnly<'a>(pub &'a dyn Progress);

impl Progress for CancelOnly<'_> {
    fn stage(&self, _label: &str, _total: u64) {}
    fn done(&self, _units: u64) {}
    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}

/// Tells nobody, and never ends the work.
pub struct NoProgress;

impl Progress for NoProgress {
    fn stage(&self, _label: &str, _total: u64) {}
    fn done(&self, _units: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}
