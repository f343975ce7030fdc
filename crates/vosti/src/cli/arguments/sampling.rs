//! The flags that choose tokens. `cli/sampling.rs` checks them; `docs/add-a-sampling-parameter.md` says how to add one.

use crate::cli::values::{Seed, at_least_one, bias, seed, whole};
use crate::deployment::{DeployError, Deployment};
use clap::{Args, ValueEnum};
use vosti_engine::Given;

/// Whose sampling defaults to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GenerationConfig {
    /// The model's: generation_config.json of its folder, or the fields of its GGUF file; if they say nothing, what the catalogue
    /// recommends
    Auto,
    /// OpenAI's, which are neutral: temperature 1, every token, no penalty. For training and evaluation
    #[value(alias = "vllm")]
    Openai,
}

/// Where sampling parameters come from if no flag gives them.
#[derive(Args, Clone)]
pub struct Defaults {
    /// Whose sampling defaults to use
    #[arg(long, value_enum, default_value = "auto")]
    pub generation_config: GenerationConfig,
}

impl Defaults {
    /// The deployment's defaults, or OpenAI's.
    pub fn of(&self, deployment: &Deployment) -> Result<vosti_engine::Defaults, DeployError> {
        match self.generation_config {
            GenerationConfig::Auto => deployment.sampling(),
            GenerationConfig::Openai => Ok(vosti_engine::Defaults::default()),
        }
    }
}

macro_rules! flags {
    ({} $($(#[$doc:meta])* $name:ident: $type:ident as $given:ident = $neutral:literal, $range:tt, $key:literal;)*) => {
        /// A flag for each of the engine's sampling numbers. What no flag gives is the model's (`--generation-config`).
        #[derive(Args, Clone, Debug, Default)]
        pub struct Numbers {
            $(
                $(#[$doc])*
                #[arg(long, value_name = "X", allow_negative_numbers = true)]
                pub $name: Option<$given>,
            )*
        }

        impl From<&Numbers> for Given {
            fn from(flags: &Numbers) -> Given {
                Given { $($name: flags.$name,)* }
            }
        }

        impl From<Given> for Numbers {
            fn from(given: Given) -> Numbers {
                Numbers { $($name: given.$name,)* }
            }
        }
    };
}
vosti_engine::sampling_numbers!([flags] {});

/// How the next token is chosen.
#[derive(Args, Clone)]
pub struct Sampling {
    /// Most tokens to generate [default: to the model's own end, or to the end of the context]
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub max_tokens: Option<usize>,

    /// Seed of the random numbers, an integer of 64 bits [default, and -1: a fresh one, which is printed]
    #[arg(short, long, value_parser = seed, allow_negative_numbers = true)]
    pub seed: Option<Seed>,

    #[command(flatten)]
    pub defaults: Defaults,

    #[command(flatten)]
    pub numbers: Numbers,

    /// Add X to the logit of a token, given by its id; may be given several times
    #[arg(long, value_name = "TOKEN=X", value_parser = bias, allow_negative_numbers = true)]
    pub logit_bias: Vec<(u32, f32)>,

    /// End when the answer, its thoughts aside, contains this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,

    /// End at this token, as at the model's own end-of-text token; may be given several times
    #[arg(long, value_name = "ID", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub stop_token: Vec<u32>,

    /// Continue after the model's end-of-text token
    #[arg(long)]
    pub ignore_eos: bool,
}
