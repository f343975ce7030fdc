//! A dense decoder as a family describes it: dimensions and switches, layer by layer, no tensors yet.
//!
//! A family reads its configuration into a [`Decoder`]; [`crate::plan`] turns any decoder into ops,
//! kernel bindings and weight recipes. It must never hold anything that a batch could change.
//! Read next: `families/llama.rs` for the plainest family, then `plan.rs`.

/// What the multilayer perceptron applies to its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU in its tanh form.
    GeluTanh,
}

/// How rotary frequencies differ from `theta^(-2i/d)`.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// They do not.
    None,
    /// Every frequency divided by the factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths divided by `factor`, short ones kept, a ramp between.
    Llama3 {
        /// Divisor of the long wavelengths.
        factor: f64,
        /// Wavelengths above `original / low` are long.
        low: f64,
        /// Wavelengths below `original / high` are short.
        high: f64,
        /// Context length of the pre-training.
        original: f64,
    },
    /// Gemma 4: the first `fraction` of the pairs rotate, with the exponents of the whole head; the rest stand still.
    Proportional {
        /// Share of the head that rotates.
        fraction: f64,
        /// Divisor of every frequency.
        factor: f64,
    },
    /// GGUF: one divisor for each frequency, in a tensor of the file.
    Divisors {
        /// The tensor's name.
        tensor: String,
    },
}

/// A rotary position embedding: one cosine and one sine table.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Head size; the tables have half as many columns.
    pub head_dim: u32,
    /// Deviation from the plain frequencies.
    pub scaling: RopeScaling,
}

/// One layer: attention, then a gated perceptron.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Size of each head.
    pub head_dim: u32,
    /// Keys visible to a query, itself included; `None` for all.
    pub window: Option<u32>,
    /// Factor of the attention scores.
    pub scale: f64,
    /// Soft cap of the attention scores; 0 for none.
    pub softcap: f64,
    /// Queries and keys are RMS-normalised, with weights, before they are rotated.
    pub qk_norm: bool,
    /// Values are RMS-normalised, without weights.
    pub v_norm: bool,
    /// The values are the raw keys: there is no value projection.
    pub keys_as_values: bool,
    /// The layer has no keys and values of its own: it attends to this earlier layer's cache.
    pub cache_of: Option<usize>,
    /// Rotary embedding of queries and keys.
    pub rope: Rope,
    /// Width of the perceptron.
    pub intermediate: u32,
    /// Its activation.
    pub activation: Activation,
    /// Each half of the layer normalises its output too, before it joins the residual stream.
    pub post_norms: bool,
    /// The layer's output is multiplied by a learned scalar.
    pub scaled: bool,
}

/// Whose tensor names the files use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Hugging Face names, after the prefix that ends before `embed_tokens`.
    HuggingFace,
    /// llama.cpp's names.
    Gguf,
}

/// A whole model.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// The family's name, for messages.
    pub family: &'static str,
    /// Tokens in the vocabulary.
    pub vocab: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Longest sequence that the model supports.
    pub context: u32,
    /// Epsilon of every RMS norm.
    pub eps: f64,
    /// Factor of the embeddings.
    pub embed_scale: f64,
    /// Soft cap of the logits; 0 for none.
    pub final_softcap: f64,
    /// The output matrix is the embedding matrix.
    pub tied: bool,
    /// Names of the tensors.
    pub naming: Naming,
    /// Added to each norm weight of the files to give the factor that is applied.
    pub norm_offset: f32,
    /// The rows of Q and K are stored in llama.cpp's interleaved order.
    pub permuted: bool,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
}
