//! The kernel verifier: proves on the tile IR that a kernel keeps its contract, bit for bit.
//!
//! Two symbolic invocations, L and R, of one specialisation (or of two) are related: equal selected
//! inputs must give equal selected outputs, whatever else is in the batch. The rules are in
//! `docs/kernel-verification.md`. Nothing here may ever answer [`Verdict::Proved`] for something it
//! does not understand. Reading order: [`problem`], [`world`], [`mod@unary`], [`equal`], [`loops`],
//! [`memory`], [`mod@verify`].

pub mod cache;
pub mod case;
pub mod certificate;
pub mod condition;
pub mod dimension;
pub mod equal;
pub mod facts;
mod integers;
pub mod inventory;
pub mod loops;
pub mod memory;
pub mod mutate;
pub mod mutate_contract;
mod polynomial;
pub mod premises;
pub mod problem;
mod process;
pub mod prover;
mod quantify;
mod reading;
pub mod record;
pub mod replay;
mod replay_attend;
pub mod run;
mod show;
pub mod solve;
pub mod solver;
pub mod tcb;
pub mod term;
pub mod trusted;
pub mod unary;
pub mod verdict;
pub mod verify;
pub mod world;

pub use cache::Cache;
pub use case::Case;
pub use certificate::{Certificate, CertificateError, certificate};
pub use inventory::{Inventory, Options, verify_all, verify_texts};
pub use problem::{Problem, ProblemError};
pub use record::Certificates;
pub use solver::{Solver, SolverError, find_cvc5, find_z3};
pub use verdict::{Assumption, Failure, Obligation, Verdict};
pub use verify::{Report, verify, verify_or_refute, verify_pair};
