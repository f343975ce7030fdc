//! What must be read to believe the proof, and nothing else: what is promised, what is assumed, and of which executions. No
//! proof stands here. A reader begins with `spec.rs` (the promise) and `seam.rs` (what is assumed of a device and a sampler),
//! then `meaning.rs` (a forward pass, and the reference run), `next.rs` (executions, and when two share W), `legal.rs` and `effects.rs` (when an operation may run and what it does),
//! and `premises.rs` (what kernels read of a step).

pub mod effects;
pub mod legal;
pub mod meaning;
pub mod next;
pub mod premises;
pub mod seam;
pub mod spec;
