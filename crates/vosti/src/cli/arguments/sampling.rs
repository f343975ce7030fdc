//! The flags that choose tokens. `cli/sampling.rs` checks them; `docs/add-a-sampling-parameter.md` says how to add one.

use crate::cli::values::{at_least_one, bias, whole};
use clap::{Args, ValueEnum};

/// Whose sampling defaults to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GenerationConfig {
    /// The model's: generation_config.json of its folder, or the fields of its GGUF file
    Auto,
    /// OpenAI's: temperature 1 and every token
    #[value(alias = "vllm")]
    None,
}

/// Where sampling parameters come from if no flag gives them.
#[derive(Args, Clone)]
pub struct Defaults {
    /// Whose sampling defaults to use
    #[arg(long, value_enum, default_value = "auto")]
    pub generation_config: GenerationConfig,
}

impl Defaults {
    /// The model's defaults, or OpenAI's.
    pub fn of(&self, text: &vosti_model::Text) -> vosti_model::SamplingDefaults {
        match self.generation_config {
            GenerationConfig::Auto => text.sampling.clone(),
            GenerationConfig::None => vosti_model::SamplingDefaults::default(),
        }
    }
}

/// How the next token is chosen.
#[derive(Args, Clone)]
pub struct Sampling {
    /// Most tokens to generate
    #[arg(
        short = 'n', long, default_value_t = 256, value_name = "N", value_parser = at_least_one,
        allow_negative_numbers = true
    )]
    pub max_tokens: usize,

    /// Seed of the random numbers [default: a fresh one, which is printed]
    #[arg(short, long, value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: Option<u64>,

    #[command(flatten)]
    pub defaults: Defaults,

    /// 0 always takes the most likely token; higher is more varied [default: the model's, else 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub temperature: Option<f32>,

    /// Keep only the K most likely tokens; 0 keeps all [default: the model's, else 0]
    #[arg(long, value_name = "K", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub top_k: Option<u32>,

    /// Keep the fewest most likely tokens that together have at least this probability [default: the model's, else 1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f32>,

    /// Drop tokens whose probability is below P times that of the most likely token [default: the model's, else 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f32>,

    /// Above 1, tokens already in the prompt or answer become less likely [default: the model's, else 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f32>,

    /// Subtracted from the logit of each token that is already in the answer
    #[arg(long, default_value_t = 0.0, value_name = "X", allow_negative_numbers = true)]
    pub presence_penalty: f32,

    /// Subtracted from the logit of each token that is already in the answer, once per occurrence
    #[arg(long, default_value_t = 0.0, value_name = "X", allow_negative_numbers = true)]
    pub frequency_penalty: f32,

    /// Add X to the logit of a token, given by its id; may be given several times
    #[arg(long, value_name = "TOKEN=X", value_parser = bias, allow_negative_numbers = true)]
    pub logit_bias: Vec<(u32, f32)>,

    /// End when the answer contains this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,

    /// End at this token, as at the model's own end-of-text token; may be given several times
    #[arg(long, value_name = "ID", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub stop_token: Vec<u32>,

    /// Continue after the model's end-of-text token
    #[arg(long)]
    pub ignore_eos: bool,
}
