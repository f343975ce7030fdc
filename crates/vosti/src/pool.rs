//! How many KV pages a command takes, and whether they hold the deployment's context.
//!
//! The pool never shortens an answer. A command that serves any request (`serve`, `chat`) needs a pool for the longest one, a
//! sequence as long as the context, and ends at its start if the pool is smaller. A command that knows its requests takes the
//! pages that they need. Nothing here may look at free memory ([`crate::memory`] refuses a model that does not fit). Read
//! next: `vosti_engine::capacity`.

use thiserror::Error;
use vosti_core::Program;
use vosti_engine::capacity::{pages_for, tokens_in};
use vosti_wiring::{page_bytes, pages_in, pool, pool_bytes};

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
    /// Pages of the pool.
    pub fn pages(&self, program: &Program) -> usize {
        match (self.pages, self.bytes) {
            (Some(pages), _) => pages,
            (None, Some(bytes)) => pages_in(program, bytes),
            (None, None) => pages_default(program, self.demand),
        }
    }
}

/// Pages of the pool, if no flag says how many: for all sequences, at most 1 GiB, and at least for one sequence.
pub fn pages_default(program: &Program, demand: Demand) -> usize {
    let one = pages_for(program, demand.tokens.min(program.context as usize)).into_iter().max().unwrap_or(1);
    one.saturating_mul(demand.sequences).min(pages_in(program, BYTES_DEFAULT)).max(one)
}

/// What states take, in words: the pages that a pool has of them, and the bytes of one. None if no layer has a state.
pub fn states(program: &Program, pages: usize) -> Option<String> {
    let groups = pool(program, pages, 1).into_iter().zip(page_bytes(program)).zip(&program.groups);
    let with_state: Vec<(usize, u64)> = groups.filter(|(_, group)| !group.state.is_empty()).map(|(of, _)| of).collect();
    let count = with_state.iter().map(|(pages, _)| *pages).max()?;
    let mib = with_state.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>() / 1048576.0;
    let request = pages_for(program, program.context as usize).into_iter().zip(&program.groups);
    let request = request.filter(|(_, group)| !group.state.is_empty()).map(|(pages, _)| pages).max()?;
    Some(format!("{count} pages of {mib:.1} MiB: a request takes up to {request}, a cached prefix 1"))
}

/// A pool that does not hold one sequence of the context.
#[derive(Debug, Error, PartialEq)]
#[error("the context is {context} tokens, and {pool} {held} of one sequence ({pages} KV pages, {mib} MiB): {advice}")]
pub struct TooSmall {
    /// Tokens that a request may have.
    pub context: usize,
    /// Tokens of one sequence that the pool holds.
    pub held: usize,
    /// Pages of the pool.
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

/// An error unless a pool of so many pages holds a sequence that fills the context.
pub fn check(program: &Program, pages: usize, origin: Origin) -> Result<(), TooSmall> {
    let context = program.context as usize;
    let held = tokens_in(program, &pool(program, pages, 1));
    if held >= context {
        return Ok(());
    }
    let mib = |pages: usize| pool_bytes(program, pages).div_ceil(1 << 20);
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
    use vosti_core::{Dtype, GroupDecl, PartDecl};

    const FLAGS: Origin = Origin { free_memory: false, bundle: false };

    /// Two groups, a page of each with `bytes` bytes in all.
    fn program(bytes: u32, context: u32) -> Program {
        let mut program = vosti_check::symbolic::program(&[None, Some(70)], &[0, 1], 24, context);
        let part = PartDecl { heads: 1, width: bytes / 256, dtype: Dtype::Bf16 };
        program.groups.iter_mut().for_each(|group| group.entry = vec![part]);
        program
    }

    /// The same with a state of so many bytes in the second group's pages.
    fn with_state(program: Program, bytes: u32) -> Program {
        let state = vec![PartDecl { heads: 1, width: bytes / 4, dtype: Dtype::F32 }];
        let mut groups = program.groups.clone();
        groups[1] = GroupDecl { window: Some(65), state, ..groups[1].clone() };
        Program { groups, ..program }
    }

    #[test]
    fn the_default_holds_the_longest_sequence_whatever_it_takes() {
        let pages = |tokens, sequences, bytes| pages_default(&program(bytes, 8_192), Demand { tokens, sequences });
        assert_eq!(pages(60, 1, 1 << 20), 1);
        assert_eq!(pages(130, 3, 1 << 20), 9, "the last token of each takes no place");
        assert_eq!(pages(8_192, 64, 1 << 20), 1_024, "1 GiB");
        assert_eq!(pages(8_192, 64, 1 << 30), 128, "one sequence, and not less");
        let large = program(1 << 30, 8_192);
        assert_eq!(check(&large, pages_default(&large, Demand { tokens: 8_192, sequences: 1 }), FLAGS), Ok(()));
    }

    #[test]
    fn pages_with_a_state_are_few_and_a_long_context_needs_no_more_of_them() {
        let program = with_state(program(1 << 20, 8_192), 60 << 20);
        assert_eq!(pages_default(&program, Demand { tokens: 8_192, sequences: 1 }), 128);
        assert_eq!(pool(&program, 128, 1), [128, 8]);
        assert_eq!(check(&program, 128, FLAGS), Ok(()));
        assert_eq!(states(&program, 128).unwrap(), "8 pages of 60.5 MiB: a request takes up to 2, a cached prefix 1");
        let refused = check(&program, 20, FLAGS).unwrap_err();
        assert_eq!((refused.held, refused.mib), (1_281, 10 + 8 * 60 + 4));
    }

    #[test]
    fn a_pool_for_less_than_the_context_is_refused_with_what_fits() {
        let program = program(1 << 20, 8_192);
        let says = |pages, origin| check(&program, pages, origin).unwrap_err().to_string();
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
            for program in [program(1 << 20, context), with_state(program(1 << 20, context), 3 << 20)] {
                let needed = pages_for(&program, context as usize).into_iter().max().unwrap();
                assert_eq!(check(&program, needed, FLAGS), Ok(()));
                let refused = check(&program, needed - 1, FLAGS).err();
                let advised = format!("--kv-pages {needed} ");
                assert!(needed == 1 || refused.is_some_and(|refused| refused.advice.contains(&advised)));
            }
        }
    }
}
