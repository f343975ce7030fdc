//! The verified core of Vosti: what a forward pass is, which pages a request may touch, and how a step is planned, run and
//! committed.
//!
//! It does not decide *which* request runs: policy lives outside and may call the operations of [`Core`] in any order with
//! any arguments. Each operation is `Ok` exactly when its `legal_*` predicate holds, and changes nothing otherwise. Only the
//! files in `trusted/` must be read to believe the proof.
//!
//! Read next: `trusted/` (promise and assumptions), `program.rs` (a forward pass as data), `state.rs` (the state and its
//! invariant), `ops/` (the operations), `proof/`.

// What the verifier takes is not always what clippy would write: no iterator chains, no let chains, `&Vec` for its view,
// `while` with a measure, `len() == 0`.
#![allow(
    clippy::len_zero,
    clippy::ptr_arg,
    clippy::needless_return,
    clippy::collapsible_if,
    clippy::collapsible_match,
    clippy::needless_range_loop,
    clippy::redundant_field_names,
    clippy::clone_on_copy,
    clippy::question_mark,
    clippy::manual_range_contains,
    clippy::too_many_arguments,
    clippy::type_complexity,
    clippy::vec_init_then_push,
    clippy::assign_op_pattern,
    clippy::implicit_saturating_sub,
    clippy::len_without_is_empty,
    clippy::manual_div_ceil
)]
// Ghost code is erased, and with it the uses of what only proofs name.
#![allow(unused_imports, dead_code, unused_variables, unused_mut, unused_braces, unused_parens)]

mod block;
mod check;
mod core;
#[allow(missing_docs, reason = "`advice` says what each refusal means; fields are what it is about")]
mod error;
mod fill;
mod ids;
mod image;
mod invariant;
mod layout;
mod ops;
mod pages;
mod plan;
mod program;
mod proof;
mod put;
mod request;
mod state;
mod trusted;

use trusted::{effects, legal, meaning, next, premises, progress, seam, spec, views};

pub use block::{Block, Parent};
pub use core::Core;
pub use error::{CoreError, ProgramError};
pub use ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
pub use image::{Image, ImageError, Place};
pub use ops::commit::Record;
pub use plan::{Draw, Reads, Select, SeqPlan, StepPlan};
pub use premises::{CONTEXT_MAX, Meta, ROWS_MAX, TABLE_MAX, Tiling};
pub use program::{
    BufferDecl, CacheRead, CacheWrite, Dtype, GroupDecl, LayerDecl, Op, PartDecl, Program, RowSet, Uses,
};
pub use proof::symbolic::Symbolic;
pub use proof::witness::{Countdown, Scene, Witness, lost_execution, scenario, two_executions};
pub use request::Request;
pub use seam::{Device, DeviceError, Sampler};
