//! Fill-in-the-middle: the tokens around the text before a gap and the text after it, and those that end what fills it.
//!
//! Names and orders are those of the models' makers. Read next: `Tokenizer::encode_gap` in `mod.rs`.

/// How a prompt with a gap is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    before: u32,
    after: u32,
    /// Without it the text after the gap comes first, and the model goes on with the text before it.
    fill: Option<u32>,
    /// Tokens that end the text in the gap, besides those that end every answer.
    ends: Vec<u32>,
}

/// The tokens before the text before a gap, before the text after it, and before the text that fills it: Qwen's and Gemma's,
/// StarCoder's, Granite's, DeepSeek's, GLM's, Llama's.
const GAPS: [[&str; 3]; 7] = [
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<\u{ff5c}fim\u{2581}begin\u{ff5c}>", "<\u{ff5c}fim\u{2581}hole\u{ff5c}>", "<\u{ff5c}fim\u{2581}end\u{ff5c}>"],
    ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
    ["\u{2581}<PRE>", "\u{2581}<SUF>", "\u{2581}<MID>"],
    ["<PRE>", "<SUF>", "<MID>"],
];

/// Codestral's tokens before the text before a gap, and before the text after it, which comes first.
const AFTER_FIRST: [&str; 2] = ["[PREFIX]", "[SUFFIX]"];

/// What models write after the text that fills a gap: padding, or the next file.
const ENDS: [&str; 12] = [
    "<|fim_pad|>",
    "<fim_pad>",
    "<fim-pad>",
    "<|repo_name|>",
    "<repo_name>",
    "<reponame>",
    "<|file_sep|>",
    "<file_sep>",
    "<|file_separator|>",
    "<|EOT|>",
    "\u{2581}<EOT>",
    "<EOT>",
];

/// Tokens that a file names by id: before the text before a gap, the text after it, and the text that fills it; and ends.
#[derive(Default)]
pub struct Named {
    pub places: [Option<u32>; 3],
    pub ends: Vec<u32>,
}

impl Gap {
    /// The tokens of a vocabulary, by id where the file names them and else by their texts; none if it has none.
    pub fn find(id: impl Fn(&str) -> Option<u32>, named: Named) -> Option<Self> {
        let of = |names: &[&str; 3]| {
            let place = |i: usize| named.places[i].or_else(|| id(names[i]));
            Some((place(0)?, place(1)?, Some(place(2)?)))
        };
        let after_first = || Some((id(AFTER_FIRST[0])?, id(AFTER_FIRST[1])?, None));
        let (before, after, fill) = GAPS.iter().find_map(of).or_else(after_first)?;
        let mut ends = named.ends;
        ends.extend(ENDS.into_iter().filter_map(id));
        ends.extend([before, after].into_iter().chain(fill));
        Some(Self { before, after, fill, ends })
    }

    /// The prompt: what begins a text, then both texts, each behind its token.
    pub fn write(&self, mut begin: Vec<u32>, before: Vec<u32>, after: Vec<u32>) -> Vec<u32> {
        let (before, after) = ([vec![self.before], before].concat(), [vec![self.after], after].concat());
        let (first, second) = if self.fill.is_some() { (before, after) } else { (after, before) };
        begin.extend(first);
        begin.extend(second);
        begin.extend(self.fill);
        begin
    }

    /// Tokens that end the text in the gap, besides those that end every answer.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }
}
