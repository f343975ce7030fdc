//! The suite's cases: lengths, batch sizes, budgets and counts, as data.
//!
//! `paper` has the lengths and counts of the published artefact, so that both tables can be compared; `quick` has the same
//! relations at lengths that two cores finish in a minute.

/// How a batch is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// In the order of the prompts.
    Natural,
    /// The last prompt first.
    Reversed,
    /// An order drawn from the suite's seed.
    Shuffled,
}

impl Arrangement {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Arrangement::Natural => "natural",
            Arrangement::Reversed => "reversed",
            Arrangement::Shuffled => "shuffled",
        }
    }
}

/// The prefix relation's second requests: all follow a donor through the same engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The donor and more tokens.
    More,
    /// The donor again.
    Repeat,
    /// The donor's prompt of that length with another suffix in place of the donor's.
    OtherSuffix,
    /// The donor, the tokens generated after it, and more.
    Generated,
}

/// The suite's dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// As `--profile` takes it.
    pub name: &'static str,
    /// Prompt lengths, in tokens, of the requests that are put in batches.
    pub batch_lengths: Vec<usize>,
    /// Requests that run together, and their order.
    pub batches: Vec<(usize, Arrangement)>,
    /// Prompts run again, alone, in a fresh engine.
    pub repeats: usize,
    /// Prompt lengths, in tokens, that are computed in chunks.
    pub chunk_lengths: Vec<usize>,
    /// Most rows of a step, one case for each length and budget.
    pub chunk_budgets: Vec<usize>,
    /// Prompt lengths, in tokens, whose answers are compared with one prefill.
    pub decode_lengths: Vec<usize>,
    /// Tokens of such an answer.
    pub decode_tokens: usize,
    /// Length of each donor in tokens, and the request that follows it.
    pub prefixes: Vec<(usize, Follow)>,
    /// Tokens that follow a donor.
    pub prefix_more: usize,
    /// Prompt lengths of the requests that run together in the relations beyond the paper.
    pub workload: Vec<usize>,
    /// Tokens that each of those requests generates.
    pub answer: usize,
    /// Fewer evictions than these are no evidence.
    pub evictions_min: u64,
    /// Fewer preemptions than these are no evidence.
    pub preemptions_min: u64,
    /// Answers to one prompt, where a relation asks for several.
    pub choices: u32,
    /// Prompt lengths that every thread count and every instruction set computes again.
    pub machine: Vec<usize>,
}

use Arrangement::{Natural, Reversed, Shuffled};

impl Profile {
    /// The profile of that name for a model with this sliding window.
    pub fn named(name: &str, window: Option<usize>) -> Option<Self> {
        match name {
            "quick" => Some(Self::quick(window)),
            "paper" => Some(Self::paper(window)),
            _ => None,
        }
    }

    /// 296 + 90 + 384 + 14 = 784 pairs in the paper's four relations; more with a window that is not next to a budget.
    pub fn paper(window: Option<usize>) -> Self {
        let mut batch_lengths = vec![17];
        batch_lengths.extend([32, 64, 128, 256, 512].iter().flat_map(|n| [n - 1, *n, n + 1]));
        batch_lengths.push(767);
        batch_lengths.extend([1023, 1024, 1025, 1535, 2047, 2048, 2049, 3071]);
        batch_lengths.extend([4095, 4096, 4097, 6143, 8191, 8192, 8193]);
        let budgets = [64, 128, 256, 512, 1024];
        let mut chunk_lengths = vec![2048, 8192, 32768];
        chunk_lengths.extend(budgets.iter().flat_map(|b| [b - 1, *b, b + 1]));
        Self::add_window(&mut chunk_lengths, window);
        let w = window.unwrap_or(1024);
        let mut prefixes: Vec<_> = [15, 16, 17, 127, 128, 129, 8192, w - 1, w, w + 1].map(|n| (n, Follow::More)).into();
        prefixes.extend([(129, Follow::Repeat), (1025, Follow::Repeat)]);
        // The answer to 230 tokens fills the fourth page, so that the cache has generated tokens.
        prefixes.extend([(1024, Follow::OtherSuffix), (230, Follow::Generated)]);
        Profile {
            name: "paper",
            batch_lengths,
            batches: [2, 4, 8].iter().flat_map(|&n| [Natural, Reversed, Shuffled].map(|a| (n, a))).collect(),
            repeats: 8,
            chunk_lengths,
            chunk_budgets: budgets.to_vec(),
            decode_lengths: vec![257, 8192, 32768],
            decode_tokens: 128,
            prefixes,
            prefix_more: 128,
            workload: vec![17, 64, 100, 129, 200, 256, 300, 400, 511, 640, 900, 1200],
            answer: 96,
            evictions_min: 100,
            preemptions_min: 50,
            choices: 8,
            machine: vec![17, 64, 130, 300],
        }
    }

    /// At least 40 + 18 + 64 + 14 pairs, at the shortest lengths that still cross page boundaries: one page, two,
    /// and in the window's neighbourhood more.
    pub fn quick(window: Option<usize>) -> Self {
        let mut chunk_lengths = vec![65, 95, 96, 97, 127, 128, 129, 191, 193];
        Self::add_window(&mut chunk_lengths, window);
        let w = window.unwrap_or(192);
        let mut prefixes: Vec<_> = [15, 16, 17, 64, 127, 128, 129, w - 1, w, w + 1].map(|n| (n, Follow::More)).into();
        prefixes.extend([(129, Follow::Repeat), (193, Follow::Repeat)]);
        prefixes.extend([(150, Follow::OtherSuffix), (100, Follow::Generated)]);
        Profile {
            name: "quick",
            batch_lengths: vec![17, 31, 32, 33, 63, 64, 65, 127, 128, 129],
            batches: vec![(2, Shuffled), (4, Reversed), (8, Natural)],
            repeats: 10,
            chunk_lengths,
            chunk_budgets: vec![64, 96],
            // Both answers reach the next page.
            decode_lengths: vec![40, 100],
            decode_tokens: 32,
            prefixes,
            prefix_more: 20,
            // The answers of all but the first and the last request reach the next page, where a full pool preempts.
            workload: vec![17, 55, 56, 60, 64, 120, 125, 150],
            answer: 12,
            evictions_min: 20,
            preemptions_min: 10,
            choices: 4,
            // Short, because the portable code is hundreds of times slower than the fastest instruction set.
            machine: vec![9, 62],
        }
    }

    /// For the self-test: the fewest cases that show each fault.
    pub fn brief() -> Self {
        Profile {
            name: "brief",
            batch_lengths: vec![17, 33, 64, 65],
            batches: vec![(4, Shuffled)],
            repeats: 4,
            chunk_lengths: vec![65, 130],
            chunk_budgets: vec![48],
            decode_lengths: vec![65],
            decode_tokens: 8,
            prefixes: vec![(129, Follow::More), (129, Follow::Repeat)],
            prefix_more: 20,
            workload: vec![17, 40, 40, 64, 64, 90],
            answer: 16,
            evictions_min: 1,
            preemptions_min: 1,
            choices: 3,
            machine: vec![17],
        }
    }

    fn add_window(lengths: &mut Vec<usize>, window: Option<usize>) {
        for length in window.into_iter().flat_map(|w| [w.saturating_sub(1).max(1), w, w + 1]) {
            if !lengths.contains(&length) {
                lengths.push(length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(p: &Profile) -> [usize; 4] {
        [
            p.batch_lengths.len() * p.batches.len() + p.repeats,
            p.chunk_lengths.len() * p.chunk_budgets.len(),
            p.decode_lengths.len() * p.decode_tokens,
            p.prefixes.len(),
        ]
    }

    #[test]
    fn the_paper_profile_has_the_published_784_pairs() {
        let p = Profile::paper(None);
        assert_eq!(p.batch_lengths.len(), 32);
        assert_eq!(pairs(&p), [296, 90, 384, 14]);
        assert_eq!(pairs(&Profile::paper(Some(512))), [296, 90, 384, 14], "512 is next to a budget already");
        assert_eq!(pairs(&Profile::paper(Some(700)))[1], 105);
    }

    #[test]
    fn the_quick_profile_has_at_least_the_promised_pairs() {
        for window in [None, Some(512)] {
            let p = pairs(&Profile::quick(window));
            assert!(p[0] >= 40 && p[1] >= 18 && p[2] >= 64 && p[3] >= 14, "{p:?}");
        }
    }
}
