//! What a warp of a block waits for.

/// Why a warp stopped for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// At a barrier.
    Barrier(Gate),
    /// It has asked in vain, at this place, whether a phase has ended, and would ask again.
    Asked(usize, u64),
    Returned,
}

/// A barrier that a warp has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gate {
    pub id: u32,
    /// That it waits for.
    pub threads: u32,
    pub place: usize,
    pub aligned: bool,
}

impl Gate {
    /// Whether two warps meet here (PTX ISA, "barrier": `.aligned` is one instruction for all).
    pub fn meets(&self, other: &Gate) -> bool {
        let place = |gate: &Gate| gate.aligned.then_some(gate.place);
        (self.id, self.threads, place(self)) == (other.id, other.threads, place(other))
    }
}
