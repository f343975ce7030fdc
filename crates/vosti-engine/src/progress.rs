//! The trait to which long work reports its progress, and which may stop the work.
//!
//! Code that loads, fetches, compares or measures takes a [`Progress`]; the command line draws a bar from it. Libraries never
//! print, and no result may depend on progress. Read next: the command's `cli/bar.rs`, which draws the bar.

/// Receives the progress of work, in stages of units (bytes, pairs, tensors), and may end the work. Several threads may call it.
pub trait Progress: Sync {
    /// A new stage begins, of `total` units.
    fn stage(&self, label: &str, total: u64);
    /// `units` more units of the stage are done.
    fn done(&self, units: u64);
    /// Whether the work must stop. It then ends at the next opportunity, with an error that says so.
    fn cancelled(&self) -> bool;
}

/// Passes on whether the work must stop, and ignores its progress: for work inside a stage of its caller.
pub struct CancelOnly<'a>(pub &'a dyn Progress);

impl Progress for CancelOnly<'_> {
    fn stage(&self, _label: &str, _total: u64) {}
    fn done(&self, _units: u64) {}
    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}

/// Ignores progress and never stops the work.
pub struct NoProgress;

impl Progress for NoProgress {
    fn stage(&self, _label: &str, _total: u64) {}
    fn done(&self, _units: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}
