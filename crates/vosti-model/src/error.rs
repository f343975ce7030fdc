//! The crate's one error enum. Every message says what is wrong and what to do next.

use std::path::PathBuf;

/// Errors between a model's files and a runnable model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file could not be read.
    #[error("cannot read {}: {why}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's message.
        why: std::io::Error,
    },
    /// The path is neither a GGUF file nor a Hugging Face folder.
    #[error(
        "{} is not a model: {why}; give a .gguf file or a folder with config.json, *.safetensors and tokenizer.json",
        path.display()
    )]
    NotAModel {
        /// The path.
        path: PathBuf,
        /// The missing or malformed part.
        why: String,
    },
    /// A file contradicts its own format: truncated, overflowing, or hostile.
    #[error("{file} is damaged: {why}; fetch it again")]
    Damaged {
        /// The file's name.
        file: String,
        /// The contradiction, with its offset or name.
        why: String,
    },
    /// A GGUF file is a part of a model whose other parts are not there.
    #[error("{file} is part {part} of {parts}: {why}")]
    Incomplete {
        /// The file's name.
        file: String,
        /// Which part it is, from 1.
        part: usize,
        /// How many there are.
        parts: usize,
        /// What is missing or wrong.
        why: String,
    },
    /// A file without the format's first bytes.
    #[error("{file} is not a GGUF file: give a .gguf file, or a Hugging Face folder as a folder")]
    NotGguf {
        /// The file's name.
        file: String,
    },
    /// A version of the format that is not read.
    #[error("{file}: unsupported GGUF version {version}: only versions 2 and 3 can be read; convert the model again")]
    GgufVersion {
        /// The file's name.
        file: String,
        /// The version in the file.
        version: u32,
    },
    /// The configuration names a model that Vosti has no family for.
    #[error("unsupported architecture `{name}`; supported are {}: see `vosti models --families`", known.join(", "))]
    Architecture {
        /// The name in the file.
        name: String,
        /// The names that have a family.
        known: Vec<&'static str>,
    },
    /// A configuration key is missing or out of range.
    #[error("{file}: `{key}` {why}")]
    Config {
        /// The file's name.
        file: String,
        /// The key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// The configuration asks for a feature that the family does not have here.
    #[error(
        "this {family} model uses {feature}, which Vosti does not run; `vosti models --families` lists what it runs"
    )]
    Feature {
        /// The family.
        family: &'static str,
        /// The feature.
        feature: String,
    },
    /// No TTIR is checked in for a specialisation.
    #[error("no kernel `{spec}` is built in: only texts that `crates/vosti-model/src/inventory.rs` lists are")]
    NoKernel {
        /// The specialisation's name.
        spec: String,
    },
    /// The kernels have no specialisation for a shape or target.
    #[error(transparent)]
    Kernel(#[from] vosti_kernels::KernelError),
    /// A tensor that the family needs is not in the files.
    #[error("tensor `{name}` is missing; the model's files are incomplete, fetch them again")]
    TensorMissing {
        /// The tensor's name.
        name: String,
    },
    /// Only the weights of a Hugging Face folder can be replaced.
    #[error(
        "weights are replaced by the names of a Hugging Face folder, and this model is none: load it from its folder"
    )]
    NotReplaceable,
    /// A tensor that replaces one of a file does not fit.
    #[error("tensor `{name}` {why}")]
    Replacement {
        /// The tensor's name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A tensor has another shape than the configuration says.
    #[error(
        "tensor `{name}` has shape {found:?}, the configuration says {expected:?}; the files do not belong together"
    )]
    TensorShape {
        /// The tensor's name.
        name: String,
        /// Its shape in the file, slowest axis first.
        found: Vec<usize>,
        /// The shape that the family expects.
        expected: Vec<usize>,
    },
    /// A tensor's element type is not one that Vosti expands.
    #[error("tensor `{name}` has the unsupported type {found}; supported are {}", known.join(", "))]
    TensorType {
        /// The tensor's name.
        name: String,
        /// Its type in the file.
        found: String,
        /// The supported types.
        known: Vec<&'static str>,
    },
    /// A quantised block has an element that is not finite.
    #[error(
        "tensor `{tensor}`: block {block} ({kind}) is not of finite numbers; the file is damaged or was badly made, fetch \
         it again"
    )]
    NotFinite {
        /// The tensor's name.
        tensor: String,
        /// The block's number in the tensor.
        block: usize,
        /// The block's type.
        kind: &'static str,
    },
    /// The scales of a quantised safetensors matrix are missing or do not fit.
    #[error(
        "tensor `{tensor}`: {why}; the files do not belong together, or were made by a tool that Vosti does not know"
    )]
    Scales {
        /// The tensor's name.
        tensor: String,
        /// The part that is missing or does not fit.
        why: String,
    },
    /// The tokenizer's pre-tokenizer is not one that Vosti reproduces.
    #[error("unsupported tokenizer `{name}` (tokenizer.ggml.pre); supported are {}", known.join(", "))]
    Pretokenizer {
        /// The name in the file.
        name: String,
        /// The supported names.
        known: Vec<&'static str>,
    },
    /// The tokenizer could not be built or refused a text.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The model carries no chat template.
    #[error(
        "this is a base model, without a chat template: it continues texts (`vosti generate`, /v1/completions), and holds no \
         conversations and calls no tools; `vosti models` lists models that do"
    )]
    NoChatTemplate,
    /// The chat template does not parse, or refused the messages.
    #[error("chat template: {0}")]
    Template(String),
}

/// This crate's result.
pub type Result<T> = std::result::Result<T, ModelError>;
