//! The files that must be read to believe the proof: the promise, the assumptions, and the executions that they are about. No
//! proof stands here. Begin with `spec.rs` (the promise) and `seam.rs` (the assumptions about a device and a sampler). Then
//! read `meaning.rs` (a forward pass, and the reference run), `next.rs` (executions, and when two share W), `views.rs` (the words
//! of these files, and what a core shows), `legal.rs` and `effects.rs` (when an operation may run, and its effect), `progress.rs`
//! (the calls that bring a request forward), and `premises.rs` (what kernels read of a step).

pub mod effects;
pub mod legal;
pub mod meaning;
pub mod next;
pub mod premises;
pub mod progress;
pub mod seam;
pub mod spec;
pub mod views;
