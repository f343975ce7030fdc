//! How many KV pages a command takes, and whether they hold the deployment's context.
//!
//! The pool never shortens an answer. A command that serves any request (`serve`, `chat`) needs a pool for the longest one, a
//! sequence as long as the context, and ends at its start if the pool is smaller. A command that knows its requests takes the
//! pages that they need. Nothing here may look at free memory ([`crate::memory`] refuses a model that does not fit). Read
//! next: `vosti_engine::capacity`.

use thiserror::Error;
use vosti_core::Program;
use vosti_engine::capacity::{pages_for, tokens_in};

/// Bytes of the KV pool, at most, if no flag says. A single sequence may take more.
const BYTES_DEFAULT: u64 = 1 << 30;

/// The sequences that a command is going to run.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Tokens of the longest sequence, prompt and answer; it is not longer than the context.
    pub tokens: usize,
    /// Sequences that run together.
    pub sequences: usize,
}

/// One page.
impl Default for Demand {
    fn default() -> Self {
        Demand { tokens: 1, sequences: 1 }
    }
}

/// The size of a pool: in pages, in bytes, or by the sequences that are to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// `--kv-pages`.
    pub pages: Option<usize>,
    /// `--kv-memory`, in bytes.
    pub bytes: Option<u64>,
    /// The sequences that are to run; they decide if neither flag is given.
    pub demand: Demand,
}

impl Asked {
    /// Pages of every group.
    pub fn pages(&self, program: &Program, page_bytes: u64) -> usize {
        match (self.pages, self.bytes) {
            (Some(pages), _) => pages,
            (None, Some(bytes)) => (bytes / page_bytes.max(1)) as usize,
            (None, None) => pages_default(program, page_bytes, self.demand),
        }
    }
}

/// Pages of every group, if no flag says how many: for all sequences, at most 1 GiB, and at least for one sequence.
pub fn pages_default(program: &Program, page_bytes: u64, demand: Demand) -> usize {
    let one = pages_for(program, demand.tokens.min(program.context as usize)).into_iter().max().unwrap_or(1);
    let most = usize::try_from(BYTES_DEFAULT / page_bytes.max(1)).unwrap_or(usize::MAX);
    one.saturating_mul(demand.sequences).min(most).max(one)
}

/// A pool that does not hold one sequence of the context.
#[derive(Debug, Error, PartialEq)]
#[error("the context is {context} tokens, and {pool} {held} of one sequence ({pages} KV pages, {mib} MiB): {advice}")]
pub struct TooSmall {
    /// Tokens that a request may have.
    pub context: usize,
    /// Tokens of one sequence that the pool holds.
    pub held: usize,
    /// Pages of each cache group in the pool.
    pub pages: usize,
    /// The pool's size in MiB.
    pub mib: u64,
    /// The subject and verb of the message: the pool or the GPU's memory.
    pub pool: &'static str,
    /// What the user can do.
    pub advice: String,
}

/// Where pages and context come from, for advice.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// A GPU's free memory decided the number of pages, and no flag.
    pub free_memory: bool,
    /// The context comes from a bundle.
    pub bundle: bool,
}

/// An error unless so many pages of every group hold a sequence that fills the context.
pub fn check(program: &Program, pages: usize, page_bytes: u64, origin: Origin) -> Result<(), TooSmall> {
    let context = program.context as usize;
    let held = tokens_in(program, &vec![pages; program.groups.len()]);
    if held >= context {
        return Ok(());
    }
    let mib = |pages: usize| (pages as u64).saturating_mul(page_bytes).div_ceil(1 << 20);
    let needed = pages_for(program, context).into_iter().max().unwrap_or(1);
    let shorter = match origin.bundle {
        true => format!("prepare the bundle with --context {held} or less"),
        false => format!("give --context {held} or less"),
    };
    let (pool, advice) = match origin.free_memory {
        true => ("the GPU's free memory holds", format!("{shorter}; all of the context takes {} MiB", mib(needed))),
        false => {
            let more = format!("give --kv-pages {needed} or --kv-memory {}M", mib(needed));
            ("the KV pool holds", format!("{more}, or {shorter}"))
        }
    };
    Err(TooSmall { context, held, pages, mib: mib(pages), pool, advice })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vosti_engine::symbolic::program;

    const FLAGS: Origin = Origin { free_memory: false, bundle: false };

    #[test]
    fn the_default_holds_the_longest_sequence_whatever_it_takes() {
        let program = program(&[None, Some(70)], &[0, 1], 24, 8_192);
        let pages = |tokens, sequences, bytes| pages_default(&program, bytes, Demand { tokens, sequences });
        assert_eq!(pages(60, 1, 1 << 20), 1);
        assert_eq!(pages(130, 3, 1 << 20), 9, "the last token of each takes no place");
        assert_eq!(pages(8_192, 64, 1 << 20), 1_024, "1 GiB");
        assert_eq!(pages(8_192, 64, 1 << 30), 128, "one sequence, and not less");
        assert_eq!(check(&program, pages(8_192, 1, 1 << 30), 1 << 30, FLAGS), Ok(()));
    }

    #[test]
    fn a_pool_for_less_than_the_context_is_refused_with_what_fits() {
        let program = program(&[None, Some(70)], &[0, 1], 24, 8_192);
        let says = |pages, origin| check(&program, pages, 1 << 20, origin).unwrap_err().to_string();
        assert_eq!(
            says(20, FLAGS),
            "the context is 8192 tokens, and the KV pool holds 1281 of one sequence (20 KV pages, 20 MiB): \
             give --kv-pages 128 or --kv-memory 128M, or give --context 1281 or less"
        );
        assert_eq!(
            says(20, Origin { free_memory: true, bundle: true }),
            "the context is 8192 tokens, and the GPU's free memory holds 1281 of one sequence (20 KV pages, 20 MiB): \
             prepare the bundle with --context 1281 or less; all of the context takes 128 MiB"
        );
    }

    #[test]
    fn a_pool_that_is_advised_is_one_that_holds_the_context() {
        for context in [65, 128, 129, 1_281, 5_000] {
            let program = program(&[None, Some(70)], &[0, 1], 24, context);
            let needed = pages_for(&program, context as usize).into_iter().max().unwrap();
            assert_eq!(check(&program, needed, 1 << 20, FLAGS), Ok(()));
            let refused = check(&program, needed - 1, 1 << 20, FLAGS).err();
            assert!(
                needed == 1 || refused.is_some_and(|refused| refused.advice.contains(&format!("--kv-pages {needed} ")))
            );
        }
    }
}
