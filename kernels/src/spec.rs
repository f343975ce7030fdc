//! Kernel specialisations and their names, and the launches that an op's `k` stands for.

use crate::error::KernelError;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use vosti_contract::{Const, Constants, Dtype, FOLDED, USE, dtype};

/// A weight's elements, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// BF16 bit patterns.
    Bf16(Vec<u16>),
    /// Single precision.
    F32(Vec<f32>),
    /// Integers of 8 bits.
    I8(Vec<i8>),
}

impl TensorData {
    /// The elements of a range. Panics if the range is outside the data.
    pub fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::Bf16(data) => Self::Bf16(data[range].to_vec()),
            Self::F32(data) => Self::F32(data[range].to_vec()),
            Self::I8(data) => Self::I8(data[range].to_vec()),
        }
    }

    /// How many elements there are.
    #[allow(clippy::len_without_is_empty, reason = "no weight is empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::Bf16(data) => data.len(),
            Self::F32(data) => data.len(),
            Self::I8(data) => data.len(),
        }
    }
}

/// One specialisation of one kernel: all constants and dimensions fixed by the model and the target.
///
/// Its `Display` is its name: `linear-bf16-BK64-BM64-BN64-K576-N960-SWAP0`. The name of its [`Spec::text`] is the file stem of
/// its TTIR: `linear-bf16-BK64-BM64-BN64-SWAP0`, because `K` and `N` are parameters of the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spec {
    /// The stem of `kernels/NAME.py`.
    pub kernel: String,
    /// The type of the parameters for which the contract names none: activations, matrices and the KV cache. BF16 in every
    /// deployment; FP32 in tests against FP32 references.
    pub act: Dtype,
    /// Values by the name of the `tl.constexpr` parameter or of the number that is bound.
    pub constants: Constants,
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.kernel, dtype::name(self.act))?;
        for (name, value) in &self.constants {
            write!(f, "-{name}{value}")?;
        }
        Ok(())
    }
}

impl Spec {
    /// The specialisation's text: without the dimensions and numbers, which the text takes as parameters, and with BF16 if no
    /// parameter holds activations. All specialisations with the same tile constants share one text and one proof.
    pub fn text(&self) -> Spec {
        let mut text = self.clone();
        if let Ok(contract) = crate::contract(&self.kernel) {
            contract.numbers.iter().for_each(|number| _ = text.constants.remove(&number.name));
            if contract.params.iter().all(|param| param.elem.is_some()) {
                text.act = Dtype::Bf16;
            }
        }
        text
    }

    /// The launch of attention that folds its own splits, if this is the first of two.
    pub fn folding(&self) -> Spec {
        let mut folding = self.clone();
        folding.constants.insert(USE.into(), Const::Int(FOLDED));
        folding
    }
}

/// One kernel launch: a specialisation, and its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The specialisation with the lowest row tiles.
    pub spec: Spec,
    /// Specialisations with higher row tiles, lowest first, each proved to give the bits of `spec`. So the number of rows may
    /// decide which of them runs.
    pub higher: Vec<Spec>,
    /// The name of the model's weight for each parameter with a `weight` role, by the parameter's name.
    pub weights: BTreeMap<String, String>,
}

/// The launches that an op's `k` stands for. Most ops have one; several run in order. An op has none if the launch of the op before
/// does its work ([`mod@crate::together`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// In the order in which they run.
    pub launches: Vec<Launch>,
    /// Specialisations that give the bits of all of them in one launch, with the first one's weights and without scratch, lowest
    /// row tiles first. A device may run one in their place.
    pub folded: Vec<Spec>,
    /// The scratch buffers that pass numbers from one launch to the next, by their number in the `scratch` role.
    pub scratch: Vec<Scratch>,
}

/// A buffer of FP32 numbers between the launches of an op: for every `keys` positions of the longest context of a
/// deployment, `rows` rows of `width` numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scratch {
    /// Positions of one split: `SPLIT` of the launches.
    pub keys: usize,
    /// The most rows of a launch: `ROWS`. A step of more rows takes several launches.
    pub rows: usize,
    /// FP32 numbers of a row.
    pub width: usize,
}

impl Scratch {
    /// The scratch of a launch that writes none: one element, which no kernel uses.
    pub const NONE: Scratch = Scratch { keys: usize::MAX, rows: 1, width: 1 };

    /// The number of elements for contexts of up to `context` positions.
    pub fn len(self, context: usize) -> usize {
        context.div_ceil(self.keys.max(1)) * self.rows * self.width
    }
}

impl Launch {
    /// All specialisations that may run, lowest row tiles first.
    pub fn specs(&self) -> impl Iterator<Item = &Spec> + Clone {
        std::iter::once(&self.spec).chain(&self.higher)
    }
}

impl Binding {
    /// A binding of one launch, without scratch.
    pub fn one(spec: Spec, weights: BTreeMap<String, String>) -> Binding {
        Binding { launches: vec![Launch { spec, higher: vec![], weights }], folded: vec![], scratch: vec![] }
    }

    /// The binding of an op whose work the launch of the op before does.
    pub fn before() -> Binding {
        Binding { launches: vec![], folded: vec![], scratch: vec![] }
    }

    /// Every specialisation that may run.
    pub fn specs(&self) -> impl Iterator<Item = &Spec> + Clone {
        self.launches.iter().flat_map(Launch::specs).chain(&self.folded)
    }

    /// Attention in two launches, specialised for the same heads and splits: partial results, then their combination. Both have
    /// the weights of `part`. `folds`: or in one launch that folds its own splits.
    /// [`KernelError::Missing`] if `part` lacks a constant.
    pub fn split(part: Launch, combine: Spec, folds: bool) -> Result<Binding, KernelError> {
        let int = |name: &str| match part.spec.constants.get(name) {
            Some(Const::Int(value @ 0..)) => Ok(*value as usize),
            _ => Err(KernelError::Missing { kernel: part.spec.kernel.clone(), name: name.to_string() }),
        };
        let of = Scratch { keys: int("SPLIT")?, rows: int("ROWS")?, width: int("KV_HEADS")? * int("GROUP")? };
        let scratch = vec![of, of, Scratch { width: of.width * int("D")?, ..of }];
        let folded = part.specs().filter(|_| folds).map(Spec::folding).collect();
        let combine = Launch { spec: combine, higher: vec![], weights: part.weights.clone() };
        Ok(Binding { launches: vec![part, combine], folded, scratch })
    }
}
