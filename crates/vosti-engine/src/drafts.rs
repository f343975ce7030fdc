//! Draft tokens: guesses at the next tokens, which the core checks against the sampler. A wrong guess costs time and changes
//! nothing.

use crate::Token;
use crate::policy::Speculation;
use std::collections::HashMap;

/// Proposes tokens that may follow a history. `vosti check` and the simulator use drafters that are wrong on purpose.
pub trait Drafter: Send {
    /// At most `drafts_max` tokens that may follow `history`. `sequence` identifies the history, which only grows
    /// from call to call until `forget`.
    fn draft(&mut self, sequence: u64, history: &[Token], drafts_max: usize) -> Vec<Token>;

    /// The sequence has ended; its number does not come again.
    fn forget(&mut self, sequence: u64);
}

/// The drafter that a policy names, if any.
pub fn drafter(speculation: Speculation) -> Option<Box<dyn Drafter>> {
    match speculation {
        Speculation::Off => None,
        Speculation::Ngram { ngram_min, ngram_max, drafts_max } => {
            Some(Box::new(NgramDrafter::new(ngram_min, ngram_max, drafts_max)))
        }
    }
}

/// Prompt lookup: continues the history as it continued after the latest earlier occurrence of its last n tokens,
/// for the largest n that occurs.
pub struct NgramDrafter {
    ngram_min: usize,
    ngram_max: usize,
    drafts_max: usize,
    indexes: HashMap<u64, NgramIndex>,
}

/// For every n-gram of one history: where its latest occurrence ends.
#[derive(Default)]
struct NgramIndex {
    /// History tokens indexed so far.
    len: usize,
    /// (n, hash) -> end of its latest occurrence that is not the history's own end.
    ends: HashMap<(usize, u64), usize>,
}

impl NgramDrafter {
    /// A drafter that looks for the last `ngram_max` to `ngram_min` tokens earlier in the text, and proposes at most `drafts_max`.
    pub fn new(ngram_min: usize, ngram_max: usize, drafts_max: usize) -> Self {
        let ngram_min = ngram_min.max(1);
        Self { ngram_min, ngram_max: ngram_max.max(ngram_min), drafts_max, indexes: HashMap::new() }
    }
}

/// FNV-1a over the tokens; a collision is caught by comparing the tokens.
fn hash(tokens: &[Token]) -> u64 {
    tokens.iter().fold(0xcbf2_9ce4_8422_2325, |h, t| (h ^ u64::from(*t)).wrapping_mul(0x0000_0100_0000_01b3))
}

impl Drafter for NgramDrafter {
    fn draft(&mut self, sequence: u64, history: &[Token], drafts_max: usize) -> Vec<Token> {
        let index = self.indexes.entry(sequence).or_default();
        // The n-grams that end before the history's last token; its own end must not be found as its occurrence.
        let end = history.len().saturating_sub(1);
        for e in index.len + 1..=end {
            for n in self.ngram_min..=self.ngram_max.min(e) {
                index.ends.insert((n, hash(&history[e - n..e])), e);
            }
        }
        index.len = index.len.max(end);
        let drafts_max = drafts_max.min(self.drafts_max);
        for n in (self.ngram_min..=self.ngram_max.min(end)).rev() {
            let suffix = &history[history.len() - n..];
            let Some(&e) = index.ends.get(&(n, hash(suffix))) else {
                continue;
            };
            if history[e - n..e] == *suffix {
                return history[e..].iter().copied().take(drafts_max).collect();
            }
        }
        Vec::new()
    }

    fn forget(&mut self, sequence: u64) {
        self.indexes.remove(&sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_continue_the_latest_earlier_occurrence() {
        let mut drafter = NgramDrafter::new(2, 3, 4);
        assert_eq!(drafter.draft(0, &[1, 2, 3, 9, 1, 2, 4, 1, 2], 8), [4, 1, 2]);
        assert_eq!(drafter.draft(0, &[1, 2, 3, 9, 1, 2, 4, 1, 2, 3], 1), [9]);
    }

    #[test]
    fn a_longer_match_wins_over_a_later_one() {
        let mut drafter = NgramDrafter::new(1, 3, 2);
        assert_eq!(drafter.draft(0, &[5, 6, 7, 8, 7, 9, 5, 6, 7], 2), [8, 7]);
    }

    #[test]
    fn nothing_repeated_gives_no_drafts() {
        let mut drafter = NgramDrafter::new(2, 4, 4);
        assert!(drafter.draft(0, &[1, 2, 3, 4], 4).is_empty());
        assert!(drafter.draft(1, &[1], 4).is_empty());
        assert!(drafter.draft(2, &[], 4).is_empty());
    }

    #[test]
    fn asking_step_by_step_equals_asking_once() {
        let history: Vec<Token> = (0..200u32).map(|i| (i * i / 7) % 5).collect();
        let mut stepwise = NgramDrafter::new(2, 4, 6);
        for len in 1..=history.len() {
            let drafts = stepwise.draft(0, &history[..len], 6);
            let mut fresh = NgramDrafter::new(2, 4, 6);
            assert_eq!(drafts, fresh.draft(0, &history[..len], 6), "at {len}");
        }
    }
}
