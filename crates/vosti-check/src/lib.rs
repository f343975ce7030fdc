//! A room for checks. First of all the determinism suite: does every logits vector of a request stay the same, bit for bit,
//! whatever else the engine does?
//!
//! A *pair* is two complete logits vectors of one token history that two different runs of the engine gave. It passes only if
//! all bits are equal **and** the evidence is there: the logits are finite and varied, and the relation's event (the batch,
//! the chunks, the cache hit, the evictions, the drafts) occurred. Missing evidence is a failure.
//!
//! The suite is generic over the [`Subject`]: a real model on a device, the [`symbolic`] device, or either of them
//! broken on purpose ([`faults`]). It knows no model, device or deployment. Beside the suite, one request can be [run
//! again](replay), and servers can be measured [from outside](endpoint). Read [`profile`] for the cases, then `relations/`.
//!
//! [`laws`] checks each contract of the core's seam on any device. [`symbolic`] is a device whose values are hashes of the history, and
//! [`faulty`] breaks any device.

pub mod endpoint;
mod error;
pub mod evidence;
pub mod faults;
pub mod faulty;
pub mod html;
pub mod laws;
pub mod profile;
pub mod prompts;
mod relations;
pub mod replay;
pub mod report;
mod runner;
pub mod subject;
pub mod symbolic;
pub mod toy;

pub use error::CheckError;
pub use profile::Profile;
pub use report::{Pair, Relation, SuiteReport};
pub use subject::{Facts, Setup, Subject};

use vosti_engine::progress::Progress;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct SuiteOptions {
    /// The cases: lengths, batch sizes and counts.
    pub profile: Profile,
    /// Cases with longer prompts are dropped and counted.
    pub prompt_max: Option<usize>,
    /// Only these relations; empty means all.
    pub only: Vec<String>,
    /// Seed of every random choice in the suite.
    pub seed: u64,
}

/// Digests of the logits rows of a few fixed requests, as hex; [`Subject::restarted`] gets the same list from another process.
pub fn digests<S: Subject>(subject: &S, seed: u64, progress: &dyn Progress) -> Result<Vec<String>, CheckError> {
    let options = SuiteOptions { profile: Profile::brief(), prompt_max: None, only: Vec::new(), seed };
    relations::Suite::new(subject, &options, progress).digests()
}

/// Runs the suite. If the work is ended, the report has the pairs so far and does not pass. It is an error if no pair was
/// compared, if a relation's name is unknown, or if the engine refuses a request.
pub fn run<S: Subject>(
    subject: &S,
    options: &SuiteOptions,
    progress: &dyn Progress,
) -> Result<SuiteReport, CheckError> {
    let known = relations::NAMES;
    if let Some(name) = options.only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(CheckError::UnknownRelation { name: name.clone(), known: known.join(", ") });
    }
    let suite = relations::Suite::new(subject, options, progress);
    let (mut relations, mut interrupted) = (Vec::new(), false);
    for name in known {
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            match suite.run(name) {
                Err(CheckError::Interrupted) if !relations.is_empty() => interrupted = true,
                relation => relations.extend(relation?),
            }
            interrupted |= relations.last().is_some_and(|relation: &Relation| relation.interrupted);
        }
        if interrupted {
            break;
        }
    }
    if relations.iter().all(|relation| relation.pairs.is_empty()) {
        return Err(CheckError::NothingLeft { limit: suite.length_max() });
    }
    Ok(SuiteReport::new(subject.facts(), options, relations, interrupted))
}
