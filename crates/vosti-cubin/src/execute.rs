//! Executes what the compiler made: a kernel's PTX, on a processor, against the tile interpreter's run of its TTIR.
//!
//! What remains believed of a kernel that passed is `ptxas`, and the sum inside one matrix instruction.
//! Read next: the crate `vosti_ptx`.

use crate::arch::WARP;
use crate::artifact::Artifact;
use crate::error::CubinError;
use serde::{Deserialize, Serialize};
use vosti_kernels::Spec;
use vosti_ptx::{Compiled, Descriptor, Difference, Kernel, compare};

pub use vosti_ptx::{BANKS, Class, Counted, Counts, SECTOR, WORD};

/// What was executed of a kernel. Its hash is in [`crate::Hashes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Executed {
    /// The PTX.
    Ptx,
}

/// What is executed of an artifact.
pub fn compiled(artifact: &Artifact) -> Compiled<'_> {
    Compiled {
        spec: &artifact.spec,
        ttir: &artifact.ttir,
        ptx: &artifact.ptx,
        threads: artifact.metadata.num_warps * WARP,
        shared: usize::try_from(artifact.metadata.shared).unwrap_or(usize::MAX),
        descriptors: &artifact.metadata.descriptors,
    }
}

/// A compiled kernel whose launches can be executed and counted.
#[derive(Clone, Debug)]
pub struct Counter {
    spec: Spec,
    kernel: Kernel,
    threads: u32,
    shared: usize,
    descriptors: Vec<Descriptor>,
}

impl Counter {
    /// None: its PTX has an instruction that is not known.
    pub fn of(artifact: &Artifact) -> Option<Counter> {
        let Compiled { threads, shared, descriptors, .. } = compiled(artifact);
        let (spec, descriptors) = (artifact.spec.clone(), descriptors.to_vec());
        Some(Counter { spec, kernel: Kernel::read(&artifact.ptx).ok()?, threads, shared, descriptors })
    }

    /// Counts a launch of a step whose requests have some rows each, the first one at some position. Error: an
    /// execution of zeros stops.
    pub fn count(&self, requests: &[(usize, usize)]) -> Result<Counted, Difference> {
        vosti_ptx::count(&self.kernel, &self.spec, (self.threads, self.shared, &self.descriptors), requests)
    }
}

/// Executes a compiled kernel on small cases. None: its PTX has an instruction that is not known. Error: other bits, or one of the
/// faults that an execution finds.
pub fn execute(artifact: &Artifact) -> Result<Option<Executed>, CubinError> {
    match compare(&compiled(artifact)) {
        Ok(()) => Ok(Some(Executed::Ptx)),
        Err(Difference::Read(_)) => Ok(None),
        Err(difference) => Err(CubinError::Executed {
            spec: artifact.spec.to_string(),
            target: artifact.metadata.target.clone(),
            difference: Box::new(difference),
        }),
    }
}
