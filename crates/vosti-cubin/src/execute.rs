//! Executes what the compiler made: a kernel's PTX, on a processor, against the tile interpreter's run of its TTIR.
//!
//! What remains believed of a kernel that passed is `ptxas`, and the sum inside one matrix instruction.
//! Read next: the crate `vosti_ptx`.

use crate::arch::WARP;
use crate::artifact::Artifact;
use crate::error::CubinError;
use serde::{Deserialize, Serialize};
use vosti_ptx::{Compiled, Difference, compare};

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
