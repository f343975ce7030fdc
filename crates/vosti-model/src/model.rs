//! A model on disk, whole: its decoder, tensors, tokenizer and chat template, from a GGUF file or a
//! Hugging Face folder.

use std::path::Path;

use vosti_kernels::Act;

use crate::chat::ChatTemplate;
use crate::decoder::Decoder;
use crate::error::{ModelError, Result};
use crate::families;
use crate::files::{TensorFiles, read_json, read_small};
use crate::plan::{ModelPlan, PlanOptions, plan};
use crate::tokenizer::{Tokenizer, token_text};
use crate::weights::Weights;

/// A model's files, opened and checked; tensors are expanded one at a time, later.
pub struct Model {
    /// Dimensions and switches.
    pub decoder: Decoder,
    /// The mapped tensors.
    pub files: TensorFiles,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    chat: Option<ChatTemplate>,
}

impl Model {
    /// Opens a `.gguf` file or a folder.
    pub fn open(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Self::open_folder(path);
        }
        let files = TensorFiles::open_gguf(path)?;
        let metadata = files
            .metadata()
            .ok_or_else(|| ModelError::NotAModel { path: path.to_path_buf(), why: "it has no GGUF header".into() })?;
        let decoder = families::from_gguf(metadata)?;
        let tokenizer = Tokenizer::from_gguf(metadata)?;
        let template = metadata.str_opt("tokenizer.chat_template")?.map(str::to_string);
        let name = |key: &str| -> Result<String> {
            let id = metadata.u32_opt(key)?;
            Ok(id.and_then(|id| tokenizer.token_name(id)).unwrap_or_default())
        };
        let (bos, eos) = (name("tokenizer.ggml.bos_token_id")?, name("tokenizer.ggml.eos_token_id")?);
        let chat = template.map(|source| ChatTemplate::new(source, bos, eos)).transpose()?;
        Self { decoder, files, tokenizer, chat }.checked()
    }

    fn open_folder(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        if !path.exists() {
            return Err(ModelError::NotAModel { path: folder.to_path_buf(), why: "it has no config.json".into() });
        }
        let decoder = families::from_config("config.json", &read_json(&path)?)?;
        let files = TensorFiles::open_folder(folder)?;
        let tokenizer = Tokenizer::from_folder(folder)?;
        let chat = chat_of_folder(folder)?;
        Self { decoder, files, tokenizer, chat }.checked()
    }

    /// A tokenizer may know fewer tokens than the matrix has rows (padding), never more.
    fn checked(self) -> Result<Self> {
        let (words, rows) = (self.tokenizer.vocabulary(), self.decoder.vocab as usize);
        if words > rows {
            return Err(ModelError::Tokenizer(format!(
                "it has {words} tokens, the embedding matrix {rows} rows; the files do not belong together"
            )));
        }
        Ok(self)
    }

    /// The chat template; a base model has none.
    pub fn chat(&self) -> Result<&ChatTemplate> {
        self.chat.as_ref().ok_or(ModelError::NoChatTemplate)
    }

    /// Compiles the model for a deployment.
    pub fn plan(&self, options: &PlanOptions) -> Result<ModelPlan> {
        plan(&self.decoder, options)
    }

    /// The weights of one of this model's plans.
    pub fn weights<'a>(&'a self, plan: &'a ModelPlan, act: Act) -> Weights<'a> {
        Weights::new(&self.files, plan, act)
    }
}

/// `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`: a text, or a list of named ones.
fn chat_of_folder(folder: &Path) -> Result<Option<ChatTemplate>> {
    let settings = folder.join("tokenizer_config.json");
    let settings = if settings.exists() { read_json(&settings)? } else { serde_json::Value::Null };
    let file = folder.join("chat_template.jinja");
    let source = if file.exists() {
        Some(String::from_utf8_lossy(&read_small(&file)?).into_owned())
    } else {
        match settings.get("chat_template") {
            Some(serde_json::Value::Array(named)) => {
                let default = named.iter().find(|t| t.get("name").is_some_and(|n| n == "default"));
                default.and_then(|t| t.get("template")?.as_str()).map(str::to_string)
            }
            other => other.and_then(|t| t.as_str()).map(str::to_string),
        }
    };
    let text = |key| token_text(settings.get(key)).unwrap_or_default().to_string();
    source.map(|source| ChatTemplate::new(source, text("bos_token"), text("eos_token"))).transpose()
}
