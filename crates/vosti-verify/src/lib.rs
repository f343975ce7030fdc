//! The kernel verifier: proves on the tile IR that a kernel keeps its contract, bit for bit.
//!
//! The verifier relates two symbolic invocations, L and R, of one specialisation (or of two): equal
//! selected inputs must give equal selected outputs, whatever else is in the batch. The rules are in
//! `docs/kernel-verification.md`. No code here may answer [`Verdict::Proved`] for an operation or a
//! contract that it does not understand. Reading order: [`problem`], [`world`], [`mod@unary`], [`equal`], [`loops`],
//! [`memory`], [`mod@verify`].

mod alike;
mod apart;
mod budget;
mod cache;
mod case;
pub mod certificate;
mod condition;
mod data;
mod declared;
mod dimension;
mod equal;
mod facts;
mod folded;
mod integers;
mod inventory;
mod loops;
mod memo;
mod memory;
pub mod mutate;
pub mod mutate_contract;
mod polynomial;
mod premises;
#[allow(missing_docs, reason = "the messages of `ProblemError` name its fields")]
pub mod problem;
mod process;
mod prover;
mod quantify;
mod reading;
pub mod record;
mod recur;
pub mod replay;
mod replay_attend;
mod replay_recur;
mod run;
mod show;
mod solve;
#[allow(missing_docs, reason = "the messages of `SolverError` name its fields")]
pub mod solver;
pub mod tcb;
#[doc(hidden)] // public for the tests of this crate
pub mod term;
pub mod trusted;
mod unary;
mod verdict;
mod verify;
#[doc(hidden)] // public for the tests of this crate
pub mod world;

pub use cache::Cache;
pub use case::Case;
pub use certificate::{Certificate, CertificateError, certificate};
pub use inventory::{Inventory, VerifyOptions, verify_all, verify_texts};
pub use problem::{Problem, ProblemError};
pub use record::Certificates;
pub use solver::{Solver, SolverError, find_cvc5, find_z3};
pub use verdict::{Assumption, Failure, Obligation, Verdict};
pub use verify::{Verification, verify, verify_folded, verify_or_refute, verify_pair};
