//! A compiled and checked kernel in the form of a bundle: machine code, launch parameters, and the hash of its text.

use crate::arch::Arch;
use crate::artifact::{Artifact, Hashes, Metadata};
use crate::error::CubinError;
use crate::execute::Executed;
use crate::inspect::{Facts, inspect, interchangeable};
use serde::{Deserialize, Serialize};
use vosti_contract::Contract;
use vosti_kernels::{Binding, Spec, ttir_hash};

/// The record beside a cubin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Hashes of the text and the machine code.
    pub hashes: Hashes,
    /// The compiler's record.
    pub metadata: Metadata,
    /// The facts that the checks found.
    pub facts: Facts,
    /// What was executed and compared with the tile interpreter, bit for bit: see [`crate::execute()`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<Executed>,
}

/// A kernel that passed every check: [`Cubin::of`] runs the checks, and [`Cubin::read`] compares the hashes of one that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// The kernel and its specialisation.
    pub spec: Spec,
    /// The proved text.
    pub ttir: String,
    /// The machine code.
    pub code: Vec<u8>,
    /// Hashes, the compiler's record, and what the checks found.
    pub record: Record,
}

impl Cubin {
    /// Checks a compiled kernel ([`inspect`](crate::inspect())). Error: the reason to refuse it.
    pub fn of(artifact: Artifact, contract: &Contract, arch: Arch) -> Result<Cubin, CubinError> {
        let facts = inspect(&artifact, contract, arch)?;
        let record = Record { hashes: artifact.hashes(), metadata: artifact.metadata, facts, executed: None };
        Ok(Cubin { spec: artifact.spec, ttir: artifact.ttir, code: artifact.cubin, record })
    }

    /// Reads a cubin from its record, as [`Cubin::record_json`] wrote it. Errors: the record cannot be read, the text is another
    /// one, or the machine code is.
    ///
    /// The checks do not run again: the texts that they read (GPU IR, PTX, disassembly, log) are not kept. So an edit of the
    /// record's metadata or facts is not noticed here. A bundle's manifest has the record's hash; somebody who rewrites both can
    /// claim anything. Loading it on a device refuses a claim that the driver or the contract contradicts
    /// (parameters, architecture, name, threads, spills) but believes the shared memory, the scratch and the facts that
    /// [`interchangeable`] compares.
    pub fn read(spec: &Spec, ttir: &str, record: &str, code: Vec<u8>) -> Result<Cubin, CubinError> {
        let record: Record = serde_json::from_str(record)
            .map_err(|error| CubinError::Metadata { spec: spec.to_string(), why: error.to_string() })?;
        let stale = |what| Err(CubinError::Stale { spec: spec.to_string(), what });
        if record.hashes.ttir != ttir_hash(ttir).to_hex().as_str() {
            return stale("was compiled from another TTIR");
        }
        if record.hashes.cubin != blake3::hash(&code).to_hex().as_str() {
            return stale("is other machine code than was checked");
        }
        Ok(Cubin { spec: spec.clone(), ttir: ttir.to_string(), code, record })
    }

    /// Refuses a cubin that may not run in the place of `first`: see [`interchangeable`].
    fn stands_for(&self, first: &Cubin) -> Result<(), CubinError> {
        interchangeable(&first.record.facts, &self.record.facts).map_err(|refusal| CubinError::Refused {
            spec: self.spec.to_string(),
            target: self.record.metadata.target.clone(),
            refusal,
        })
    }

    /// The record as JSON, for a file beside the cubin.
    pub fn record_json(&self) -> String {
        serde_json::to_string_pretty(&self.record).unwrap_or_default() + "\n"
    }
}

/// Checks that kernels of different row tiles of one launch are [`interchangeable`], and a launch that folds its own splits with
/// the first of the two in whose place it runs. Kernels without a cubin are skipped.
pub fn alike<'a>(bindings: &[Binding], cubin: impl Fn(&Spec) -> Option<&'a Cubin>) -> Result<(), CubinError> {
    for Binding { launches, folded, .. } in bindings {
        let higher = launches.iter().flat_map(|launch| launch.higher.iter().map(move |other| (&launch.spec, other)));
        let folded = folded.iter().map(|other| (&launches[0].spec, other));
        for (first, other) in higher.chain(folded) {
            if let (Some(first), Some(other)) = (cubin(first), cubin(other)) {
                other.stands_for(first)?;
            }
        }
    }
    Ok(())
}
