//! Pre-tokenizers: how byte-level tokenizers split a text into words before they merge. Each has llama.cpp's name
//! (`tokenizer.ggml.pre`) and a regular expression.
//!
//! The expressions are those of the published `tokenizer.json` files. llama.cpp rewrites some of them for its own matcher: its
//! forms of `tekken` and `gpt-4o` do not distinguish letter case outside ASCII. A name that is not in [`PRE`] is refused.

use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizerWrapper, SplitDelimiterBehavior, normalizers::NFC};

use crate::error::{ModelError, Result};

/// The rules that split a text into words.
enum Cut {
    /// GPT-2's words.
    Words,
    /// Single digits, then GPT-2's words.
    Digits,
    /// The matches of an expression.
    Matches(&'static str),
    /// The matches of each expression in turn, of the pieces that those before it left, then single digits.
    Each(&'static [&'static str]),
}

/// A pre-tokenizer, and the settings of files that name it.
pub(super) struct Pre {
    names: &'static [&'static str],
    cut: Cut,
    /// Whether a word that is a token is taken whole, and not merged from its bytes.
    pub whole_words: bool,
    /// Whether texts are normalised to NFC first.
    nfc: bool,
    /// Whether texts begin with the `bos` token, unless the file says otherwise.
    pub add_bos: bool,
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// A line break ends a run of spaces by itself, and punctuation is taken with its line breaks for good.
const LING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const DEEPSEEK_CODER: [&str; 4] =
    [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+"];

const PLAIN: Pre = Pre { names: &[], cut: Cut::Words, whole_words: false, nfc: false, add_bos: false };

/// Llama 3, Falcon 3, Falcon H1, Nemotron (`pixtral`), LFM2 and R1's Llamas; OLMo 2 and 3, Phi 4 and Granite 4 (`dbrx`); SmolLM 3
/// (`smaug-bpe`); GLM; Qwen and R1's Qwens; Qwen 3.5; Mistral Nemo, Ministral and Mistral Small; Phi 4 mini, gpt-oss and MiniMax M2;
/// Ling 2.0 (`bailingmoe2`); SmolLM 2; Granite 3 (`refact`) and those like it; DeepSeek's coders of 2023; Command R's; GPT-2's and OLMoE's.
const PRE: [Pre; 12] = [
    Pre {
        names: &["llama-bpe", "llama-v3", "llama3", "falcon3", "falcon-h1", "pixtral", "lfm2"],
        cut: Cut::Matches(LLAMA3),
        whole_words: true,
        add_bos: true,
        ..PLAIN
    },
    Pre { names: &["dbrx", "smaug-bpe"], cut: Cut::Matches(LLAMA3), ..PLAIN },
    Pre { names: &["glm4"], cut: Cut::Matches(LLAMA3), whole_words: true, ..PLAIN },
    Pre { names: &["qwen2", "deepseek-r1-qwen"], cut: Cut::Matches(QWEN2), nfc: true, ..PLAIN },
    Pre { names: &["qwen35"], cut: Cut::Matches(QWEN35), nfc: true, ..PLAIN },
    Pre { names: &["tekken"], cut: Cut::Matches(TEKKEN), whole_words: true, add_bos: true, ..PLAIN },
    Pre { names: &["gpt-4o", "minimax-m2"], cut: Cut::Matches(GPT4O), ..PLAIN },
    Pre { names: &["bailingmoe2"], cut: Cut::Matches(LING), ..PLAIN },
    Pre { names: &["smollm", "refact", "starcoder"], cut: Cut::Digits, ..PLAIN },
    Pre { names: &["deepseek-coder"], cut: Cut::Each(&DEEPSEEK_CODER), add_bos: true, ..PLAIN },
    Pre { names: &["command-r"], cut: Cut::Digits, nfc: true, add_bos: true, ..PLAIN },
    Pre { names: &["gpt-2", "mpt", "olmo"], cut: Cut::Words, ..PLAIN },
];

/// The pre-tokenizer with a name. Error: the name is unknown.
pub(super) fn find(name: &str) -> Result<&'static Pre> {
    PRE.iter().find(|pre| pre.names.contains(&name)).ok_or_else(|| unknown(name))
}

/// The error for a tokenizer that is not reproduced here.
pub(super) fn unknown(name: &str) -> ModelError {
    let known = PRE.iter().flat_map(|pre| pre.names.iter().copied()).collect();
    ModelError::Pretokenizer { name: name.to_string(), known }
}

impl Pre {
    /// Configures the library's tokenizer.
    pub fn apply(&self, inner: &mut tokenizers::Tokenizer) -> Result<()> {
        let failed = |e: tokenizers::Error| ModelError::Tokenizer(e.to_string());
        let bytes = |words| PreTokenizerWrapper::from(ByteLevel::new(false, true, words));
        let split = |expression: &str| {
            let pattern = SplitPattern::Regex(expression.into());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(failed)?;
            Ok(PreTokenizerWrapper::from(split))
        };
        let steps = match self.cut {
            Cut::Words => vec![bytes(true)],
            Cut::Digits => vec![Digits::new(true).into(), bytes(true)],
            Cut::Matches(expression) => vec![split(expression)?, bytes(false)],
            Cut::Each(expressions) => {
                let steps: Result<Vec<_>> = expressions.iter().copied().map(split).collect();
                [steps?, vec![Digits::new(true).into(), bytes(false)]].concat()
            }
        };
        inner.with_pre_tokenizer(Some(Sequence::new(steps)));
        if self.nfc {
            inner.with_normalizer(Some(NormalizerWrapper::from(NFC))).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::{PreTokenizer, models::bpe::BPE};

    /// The words of a text, as the vocabulary writes them.
    fn words(name: &str, text: &str) -> Vec<String> {
        let mut inner = tokenizers::Tokenizer::new(BPE::default());
        find(name).unwrap().apply(&mut inner).unwrap();
        let mut pieces = tokenizers::PreTokenizedString::from(text);
        inner.get_pre_tokenizer().unwrap().pre_tokenize(&mut pieces).unwrap();
        let splits = pieces.get_splits(tokenizers::OffsetReferential::Original, tokenizers::OffsetType::Byte);
        splits.into_iter().map(|(word, ..)| word.replace('Ġ', "_").replace('Ċ', "|")).collect()
    }

    #[test]
    fn case_and_digits_part_words_where_each_tokenizer_says() {
        let text = "HelloWorld don't 12345 ok/\n x";
        assert_eq!(words("llama-bpe", text), ["HelloWorld", "_don", "'t", "_", "123", "45", "_ok", "/|", "_x"]);
        assert_eq!(words("dbrx", text), words("smaug-bpe", text));
        let qwen = ["HelloWorld", "_don", "'t", "_", "1", "2", "3", "4", "5", "_ok", "/|", "_x"];
        assert_eq!(words("deepseek-r1-qwen", text), qwen);
        assert_eq!(words("gpt-4o", text), ["Hello", "World", "_don't", "_", "123", "45", "_ok", "/|", "_x"]);
        let tekken = ["Hello", "World", "_don", "'t", "_", "1", "2", "3", "4", "5", "_ok", "/|", "_x"];
        assert_eq!(words("tekken", text), tekken);
        assert_eq!(words("gpt-2", text), ["HelloWorld", "_don", "'t", "_12345", "_ok", "/", "|", "_x"]);
        let refact = ["HelloWorld", "_don", "'t", "_", "1", "2", "3", "4", "5", "_ok", "/", "|", "_x"];
        assert_eq!(words("refact", text), refact);
    }

    /// The names in the GGUF files of each family, by llama.cpp's converter; none where all files have Sentencepiece's kind.
    const PUBLISHED: [(&str, &[&str]); 29] = [
        ("Llama", &["llama-bpe", "falcon3", "smollm", "deepseek-r1-qwen", "deepseek-coder"]),
        ("Mistral", &["tekken"]),
        ("Qwen 2", &["qwen2", "deepseek-r1-qwen"]),
        ("Qwen 3", &["qwen2"]),
        ("Qwen 3 MoE", &["qwen2"]),
        ("Qwen 3.5", &["qwen35"]),
        ("Qwen 3.5 MoE", &["qwen35"]),
        ("Qwen 3 Next", &["qwen2"]),
        ("Phi 3", &["dbrx", "gpt-4o"]),
        ("Gemma 2", &[]),
        ("Gemma 3", &[]),
        ("Gemma 4", &[]),
        ("OLMo 2", &["dbrx"]),
        ("OLMoE", &["olmo"]),
        ("Granite", &["refact", "dbrx"]),
        ("Granite MoE", &["refact"]),
        ("Granite 4", &["dbrx"]),
        ("SmolLM 3", &["smaug-bpe"]),
        ("ERNIE 4.5", &[]),
        ("GLM 4.5", &["glm4"]),
        ("Ling 2.0", &["bailingmoe2"]),
        ("gpt-oss", &["gpt-4o"]),
        ("LFM2", &["lfm2"]),
        ("LFM2 MoE", &["lfm2"]),
        ("Mamba 2", &["mpt"]),
        ("Nemotron H", &["pixtral"]),
        ("Nemotron 3", &["pixtral"]),
        ("Falcon H1", &["falcon-h1"]),
        ("MiniMax M2", &["minimax-m2"]),
    ];

    #[test]
    fn the_files_of_every_family_name_one_that_is_known() {
        for family in &crate::families::FAMILIES {
            let row = PUBLISHED.iter().find(|(name, _)| *name == family.name);
            let (_, names) = row.unwrap_or_else(|| panic!("which tokenizers do GGUF files of {} name?", family.name));
            for name in *names {
                assert!(find(name).is_ok(), "{}: {name}", family.name);
            }
        }
    }

    #[test]
    fn letter_case_outside_ascii_parts_words_too() {
        assert_eq!(words("gpt-4o", "ПриветМир").len(), 2);
        assert_eq!(words("tekken", "ÄpfelÖl").len(), 2);
    }
}
