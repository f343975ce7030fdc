//! One compiled specialisation: machine code, the texts that led to it, and the parameters of its launch.

use crate::error::CubinError;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use vosti_kernels::{CompileOptions, Spec, ttir_hash};
use vosti_ptx::Descriptor;

/// The compiler's record of a kernel. It does not have the parameters and threads, which are read from the PTX.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// The kernel's name in the cubin.
    pub name: String,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u64,
    /// Warps of a block.
    pub num_warps: u32,
    /// Blocks of a cluster.
    pub num_ctas: u32,
    /// Stages of a pipelined loop.
    pub num_stages: u32,
    /// Bytes of global scratch for each program.
    pub global_scratch_size: u64,
    /// The alignment of the global scratch of all programs, in bytes.
    pub global_scratch_align: u64,
    /// Bytes of scratch for Triton's profiler for each program.
    pub profile_scratch_size: u64,
    /// The alignment of the profiler's scratch of all programs, in bytes.
    pub profile_scratch_align: u64,
    /// Columns of tensor memory.
    #[serde(default)]
    pub tmem_size: u64,
    /// Whether a launch may begin before the one before it has ended ([`crate::inspect::early`]).
    pub launch_pdl: bool,
    /// Whether all blocks must run at once.
    pub launch_cooperative_grid: bool,
    /// Whether the compiler could fuse a multiplication and an addition.
    pub enable_fp_fusion: bool,
    /// The assembler's level of optimisation.
    pub ptxas_level: u32,
    /// The assembler's name of the architecture, such as `sm_90a`.
    pub target: String,
    /// The version of Triton.
    pub triton: String,
    /// Its parameters that are tensor maps, by their places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<Descriptor>,
}

impl Metadata {
    /// The options that it was compiled with.
    pub(crate) fn options(&self) -> CompileOptions {
        let descriptors = !self.descriptors.is_empty();
        CompileOptions { num_warps: self.num_warps, num_stages: self.num_stages, descriptors }
    }
}

/// A compiled specialisation. Nothing is checked yet: see [`crate::inspect()`].
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The kernel and its specialisation.
    pub spec: Spec,
    /// The TTIR that was compiled.
    pub ttir: String,
    /// Triton's GPU IR, made from the TTIR.
    pub ttgir: String,
    /// The assembler text, made from the GPU IR.
    pub ptx: String,
    /// The machine code, made from the PTX.
    pub cubin: Vec<u8>,
    /// The disassembled cubin.
    pub sass: String,
    /// The assembler's report.
    pub log: String,
    /// The compiler's record.
    pub metadata: Metadata,
}

/// Hashes that bind machine code to the proved text that it was compiled from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hashes {
    /// Hash of the location-free TTIR, as in certificates.
    pub ttir: String,
    /// Hash of Triton's GPU IR.
    pub ttgir: String,
    /// Hash of the PTX.
    pub ptx: String,
    /// Hash of the machine code.
    pub cubin: String,
}

impl Artifact {
    /// The endings of the compiler's files of a kernel.
    pub(crate) const KINDS: [&str; 6] = ["json", "ttgir", "ptx", "cubin", "sass", "log"];

    /// Reads the compiler's files for a specialisation from a folder.
    pub(crate) fn read(folder: &Path, spec: &Spec, ttir: &str) -> Result<Artifact, CubinError> {
        let bytes = |kind: &str| {
            let path = folder.join(format!("{spec}.{kind}"));
            fs::read(&path).map_err(|error| CubinError::Io { path, error })
        };
        let misread = |why: String| CubinError::Metadata { spec: spec.to_string(), why };
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

    /// The hashes of all texts and of the machine code.
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
