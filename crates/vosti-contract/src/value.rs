//! Values of constants.

use std::collections::BTreeMap;
use std::fmt;

/// Values by the name of a kernel's `tl.constexpr` parameter, or of a number that is bound.
pub type Constants = BTreeMap<String, Const>;

/// The value of a kernel's constant, or of a number that is bound. Floats are equal if their bits are.
#[derive(Clone, Copy, Debug)]
pub enum Const {
    /// An integer, printed in decimal in names.
    Int(i64),
    /// A float, printed with as many digits as it needs.
    Float(f64),
}

impl Const {
    fn key(&self) -> (u8, u64) {
        match *self {
            Const::Int(v) => (0, v as u64),
            Const::Float(v) => (1, v.to_bits()),
        }
    }
}
impl PartialEq for Const {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Const {}
impl PartialOrd for Const {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Const {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
impl std::hash::Hash for Const {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state)
    }
}
impl From<i64> for Const {
    fn from(v: i64) -> Self {
        Const::Int(v)
    }
}
impl From<f64> for Const {
    fn from(v: f64) -> Self {
        Const::Float(v)
    }
}
impl fmt::Display for Const {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Const::Int(v) => write!(f, "{v}"),
            Const::Float(v) => write!(f, "{v:?}"),
        }
    }
}
