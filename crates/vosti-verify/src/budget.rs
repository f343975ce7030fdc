//! How much work one verdict may take. A kernel whose proof needs more is `Unknown`, so that every kernel gets an answer.
//!
//! Steps are counted, so the same kernel gets the same verdict on every machine. The clock is only the last resort: it stops a
//! solver that takes long for each of many questions. Read next: [`crate::prover`].

use std::time::{Duration, Instant};

/// The most steps of one proof: goals, lanes of values, questions. No kernel that ships takes 10,000.
const STEPS_MAX: u64 = 300_000;
/// The most questions that the solver may give up on.
pub(crate) const GIVEN_UP_MAX: u64 = 12;
/// The longest time of one proof.
const LIMIT: Duration = Duration::from_secs(120);

/// The work that is left.
#[derive(Clone, Debug)]
pub struct Budget {
    left: u64,
    until: Instant,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: STEPS_MAX, until: Instant::now() + LIMIT }
    }
}

impl Budget {
    /// Takes this many steps; false if they are not left.
    pub fn spend(&mut self, steps: u64) -> bool {
        self.left = self.left.saturating_sub(steps);
        // The clock is asked at each question and at some of the other steps.
        if (steps > 1 || self.left.is_multiple_of(256)) && Instant::now() > self.until {
            self.left = 0;
        }
        self.left > 0
    }

    /// Whether steps are left.
    pub fn exhausted(&self) -> bool {
        self.left == 0
    }

    /// Takes all that is left.
    pub fn end(&mut self) {
        self.left = 0;
    }
}
