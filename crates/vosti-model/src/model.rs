//! Opens a model, a GGUF file or a Hugging Face folder: its decoder and tensors, then its tokenizer and chat template.

use std::path::{Path, PathBuf};

use crate::chat::ChatTemplate;
use crate::decoder::Decoder;
use crate::defaults::GenerationConfig;
use crate::error::{ModelError, Result};
use crate::families;
use crate::files::{TensorFiles, read_json, read_small};
use crate::gguf::Metadata;
use crate::plan::{ModelPlan, Target, plan_with};
use crate::replacement::Replacement;
use crate::tokenizer::{Tokenizer, token_text};
use crate::weights::Weights;

/// A model's files, opened and checked. Tensors are expanded later, one at a time.
pub struct Model {
    /// Dimensions and switches.
    pub decoder: Decoder,
    /// The mapped tensors.
    pub files: TensorFiles,
    path: PathBuf,
}

/// A model's tokenizer, chat template and sampling defaults. It is made separately, because a large vocabulary takes a second.
pub struct Text {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    chat: Option<ChatTemplate>,
    /// What the files say about sampling.
    pub sampling: GenerationConfig,
}

impl Model {
    /// Opens a `.gguf` file or a folder. Errors: the path is not a model, a file is damaged, the family or a feature is not
    /// supported, a dimension is out of range.
    pub fn open(path: &Path) -> Result<Self> {
        let wrong = |why: &str| ModelError::NotAModel { path: path.to_path_buf(), why: why.into() };
        let (decoder, files) = if path.is_dir() {
            let config = path.join("config.json");
            if !config.exists() {
                return Err(wrong("it has no config.json"));
            }
            let config = read_json(&config)?;
            let decoder = families::from_config("config.json", &config)?;
            let method = families::method("config.json", &config)?;
            (decoder, TensorFiles::open_folder(path)?.stored_by(method))
        } else {
            let files = TensorFiles::open_gguf(path)?;
            let metadata = files.metadata().ok_or_else(|| wrong("it has no GGUF header"))?;
            (families::from_gguf(metadata)?, files)
        };
        Ok(Self { decoder, files, path: path.to_path_buf() })
    }

    /// An empty replacement for every weight of a folder. The files on disk are not changed. Error: the path is not a folder of a
    /// model.
    pub fn replacement(path: &Path) -> Result<Replacement> {
        Replacement::of(Self::open(path)?.files)
    }

    /// The same model with the tensors of a replacement. Error: a tensor is missing in it.
    pub fn with(self, replacement: Replacement) -> Result<Self> {
        Ok(Self { files: replacement.whole()?, ..self })
    }

    /// Makes the tokenizer, the chat template and the sampling defaults. Errors: one of them is unsupported or damaged, or the
    /// vocabulary has more tokens than the embedding matrix has rows.
    pub fn text(&self) -> Result<Text> {
        let text = match self.files.metadata() {
            Some(metadata) => text_of_gguf(metadata)?,
            None => text_of_folder(&self.path)?,
        };
        // A tokenizer may know fewer tokens than the matrix has rows (padding), never more.
        let (words, rows) = (text.tokenizer.vocabulary(), self.decoder.vocab as usize);
        if words > rows {
            return Err(ModelError::Tokenizer(format!(
                "it has {words} tokens, the embedding matrix {rows} rows; the files do not belong together"
            )));
        }
        Ok(text)
    }

    /// Compiles the model for a target, see [`plan`](crate::plan()). Products with quantised tensors are in the target's
    /// arithmetic.
    pub fn plan(&self, target: &Target, context: Option<u32>) -> Result<ModelPlan> {
        plan_with(&self.decoder, target, context, &|tensor| self.files.integers(tensor))
    }

    /// The weights of one of this model's plans.
    pub fn weights<'a>(&'a self, plan: &'a ModelPlan) -> Weights<'a> {
        Weights::new(&self.files, plan)
    }
}

impl Text {
    /// The chat template. Error: a base model has none.
    pub fn chat(&self) -> Result<&ChatTemplate> {
        self.chat.as_ref().ok_or(ModelError::NoChatTemplate)
    }
}

fn text_of_gguf(metadata: &Metadata) -> Result<Text> {
    let tokenizer = Tokenizer::from_gguf(metadata)?;
    let template = metadata.str_opt("tokenizer.chat_template")?.map(str::to_string);
    let name = |key: &str| -> Result<String> {
        let id = metadata.u32_opt(key)?;
        Ok(id.and_then(|id| tokenizer.token_name(id)).unwrap_or_default())
    };
    let (bos, eos) = (name("tokenizer.ggml.bos_token_id")?, name("tokenizer.ggml.eos_token_id")?);
    let tool_use = metadata.str_opt("tokenizer.chat_template.tool_use")?.map(str::to_string);
    let chat = chat(template, tool_use, (bos, eos), &tokenizer)?;
    Ok(Text { tokenizer, chat, sampling: GenerationConfig::from_gguf(metadata) })
}

fn text_of_folder(folder: &Path) -> Result<Text> {
    let config = folder.join("generation_config.json");
    let sampling = match config.exists() {
        true => GenerationConfig::from_json(&read_json(&config)?)?,
        false => GenerationConfig::default(),
    };
    let tokenizer = Tokenizer::from_folder(folder)?;
    let chat = chat_of_folder(folder, &tokenizer)?;
    Ok(Text { tokenizer, chat, sampling })
}

/// A template, and the one for requests with tools, if there are two. `special` are the texts of the tokens that begin and end a
/// text.
fn chat(
    default: Option<String>,
    tool_use: Option<String>,
    special: (String, String),
    tokenizer: &Tokenizer,
) -> Result<Option<ChatTemplate>> {
    let added = tokenizer.added();
    let of = |source| ChatTemplate::new(source, special.0.clone(), special.1.clone())?.with_tokens(added.clone());
    // A model may have a template for tools only.
    let Some(default) = default.or_else(|| tool_use.clone()) else { return Ok(None) };
    let tool_use = tool_use.map(of).transpose()?;
    Ok(Some(of(default)?.with_tool_use(tool_use)))
}

/// `chat_template.jinja` and `additional_chat_templates/tool_use.jinja`, or `chat_template` in `tokenizer_config.json`: a text, or a
/// list of named ones.
fn chat_of_folder(folder: &Path, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>> {
    let settings = folder.join("tokenizer_config.json");
    let settings = if settings.exists() { read_json(&settings)? } else { serde_json::Value::Null };
    let file = |name: &str| -> Result<Option<String>> {
        let path = folder.join(name);
        path.exists().then(|| Ok(String::from_utf8_lossy(&read_small(&path)?).into_owned())).transpose()
    };
    let listed = settings.get("chat_template");
    let named = |name: &str| {
        let list = listed.and_then(serde_json::Value::as_array)?;
        let entry = list.iter().find(|entry| entry.get("name").is_some_and(|own| own == name))?;
        entry.get("template")?.as_str().map(str::to_string)
    };
    let single = || listed.and_then(serde_json::Value::as_str).map(str::to_string).or_else(|| named("default"));
    let default = file("chat_template.jinja")?.or_else(single);
    let tool_use = file("additional_chat_templates/tool_use.jinja")?.or_else(|| named("tool_use"));
    let text = |key| token_text(settings.get(key)).unwrap_or_default().to_string();
    chat(default, tool_use, (text("bos_token"), text("eos_token")), tokenizer)
}
