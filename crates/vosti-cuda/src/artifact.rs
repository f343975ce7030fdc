//! One specialisation, compiled: machine code, the texts on the way to it, and how it is to be launched.

use crate::error::CudaError;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use vosti_kernels::{Spec, ttir_hash};

/// The compiler's record of a kernel. Parameters and threads are not in it: they are read from the PTX.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// The kernel's name in the cubin.
    pub name: String,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u64,
    pub num_warps: u32,
    pub num_ctas: u32,
    pub num_stages: u32,
    /// Bytes a program.
    pub global_scratch_size: u64,
    pub global_scratch_align: u64,
    pub profile_scratch_size: u64,
    pub profile_scratch_align: u64,
    #[serde(default)]
    pub tmem_size: u64,
    pub launch_pdl: bool,
    pub launch_cooperative_grid: bool,
    pub enable_fp_fusion: bool,
    /// The assembler's level of optimisation.
    pub ptxas_level: u32,
    /// `sm_90a`
    pub target: String,
    /// Its version.
    pub triton: String,
}

/// A compiled specialisation. Nothing is checked yet: see [`crate::inspect()`].
#[derive(Clone, Debug)]
pub struct Artifact {
    pub spec: Spec,
    pub ttir: String,
    pub ttgir: String,
    pub ptx: String,
    pub cubin: Vec<u8>,
    /// The cubin, disassembled.
    pub sass: String,
    /// The assembler's report.
    pub log: String,
    pub metadata: Metadata,
}

/// Which machine code was made of which proved text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hashes {
    /// Of the location-free text, as certificates have it.
    pub ttir: String,
    pub ttgir: String,
    pub ptx: String,
    pub cubin: String,
}

impl Artifact {
    /// Reads what the compiler left in a folder.
    pub(crate) fn read(folder: &Path, spec: &Spec, ttir: &str) -> Result<Artifact, CudaError> {
        let bytes = |kind: &str| {
            let path = folder.join(format!("{spec}.{kind}"));
            fs::read(&path).map_err(|error| CudaError::Io { path, error })
        };
        let misread = |why: String| CudaError::Metadata { spec: spec.to_string(), why };
        let text = |kind: &str| String::from_utf8(bytes(kind)?).map_err(|_| misread(format!("its {kind} is not text")));
        let metadata = serde_json::from_slice(&bytes("json")?).map_err(|error| misread(error.to_string()))?;
        Ok(Artifact {
            spec: spec.clone(),
            ttir: ttir.to_string(),
            ttgir: text("ttgir")?,
            ptx: text("ptx")?,
            cubin: bytes("cubin")?,
            sass: text("sass")?,
            log: text("log")?,
            metadata,
        })
    }

    /// The hashes, side by side.
    pub fn hashes(&self) -> Hashes {
        let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
        Hashes {
            ttir: ttir_hash(&self.ttir).to_hex().to_string(),
            ttgir: hash(self.ttgir.as_bytes()),
            ptx: hash(self.ptx.as_bytes()),
            cubin: hash(&self.cubin),
        }
    }
}
