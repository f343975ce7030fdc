//! The operations, one file per concern. Each begins with its `legal_*` predicate and mirrors it in its checks; after the
//! checks nothing can fail.

pub(crate) mod blocks;
pub(crate) mod commit;
pub(crate) mod lifecycle;
pub(crate) mod pages;
pub(crate) mod step;
