//! A dense decoder as a family describes it: dimensions and switches, layer by layer, no tensors yet.
//!
//! A family reads its configuration into a [`Decoder`]; [`mod@crate::plan`] turns any decoder into ops,
//! kernel bindings and weight recipes. It must never hold anything that a batch could change.
//! Read next: `families/llama.rs` for the plainest family, then `plan.rs`.

/// The function that the multilayer perceptron applies to its gate.
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
    /// YaRN: frequencies of many rotations in the original context kept, of few divided by `factor`, a ramp between.
    Yarn {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Context length of the pre-training.
        original: f64,
        /// Rotations in it from which a frequency is kept.
        fast: f64,
        /// Rotations in it up to which a frequency is divided.
        slow: f64,
        /// Whether the ramp's ends are whole indices.
        truncate: bool,
        /// Factor of cosines and sines.
        amplitude: f64,
    },
    /// Longrope: one divisor for each frequency, of two sets. A deployment that serves positions past `original` uses the
    /// long ones for all requests, any other the short ones: no request's length decides.
    Long {
        /// Divisors for positions below `original` alone.
        short: Factors,
        /// Divisors for all positions.
        long: Factors,
        /// Context length of the pre-training.
        original: u32,
        /// Factor of cosines and sines.
        amplitude: f64,
    },
}

/// One number for each frequency.
#[derive(Clone, Debug, PartialEq)]
pub enum Factors {
    /// These.
    Listed(Vec<f32>),
    /// Those of a tensor of the file, by its name.
    Tensor(String),
}

/// A rotary position embedding: one cosine and one sine table.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Head size; the tables have half as many columns.
    pub head_dim: u32,
    /// Numbers of a head that rotate, as if they were a head of their own. Column pairs past these stand still.
    pub rotary: u32,
    /// Deviation from the plain frequencies.
    pub scaling: RopeScaling,
    /// Queries at position p are multiplied by `1 + beta ln(1 + floor(p / original))`, with these two numbers (Llama 4's
    /// scale, which Ministral 3 has).
    pub temperature: Option<(f64, f64)>,
}

impl Rope {
    /// Every pair of a head of this size rotates, with the plain frequencies.
    pub fn plain(theta: f64, head_dim: u32) -> Self {
        Self { theta, head_dim, rotary: head_dim, scaling: RopeScaling::None, temperature: None }
    }

    /// None of a head's pairs rotates.
    pub fn still(head_dim: u32) -> Self {
        Self { rotary: 0, ..Self::plain(1.0, head_dim) }
    }
}

/// The RMS norm, with weights, before queries and keys are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Nothing.
    None,
    /// Each head of the queries and keys.
    Heads,
    /// All heads of the queries together, and all of the keys.
    Whole,
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
    /// Norm of queries and keys.
    pub qk_norm: QkNorm,
    /// The projections to queries, keys and values add a bias.
    pub qkv_bias: bool,
    /// The files have one tensor for queries, keys and values.
    pub fused_qkv: bool,
    /// The files have one tensor for gate and up.
    pub fused_perceptron: bool,
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
    /// Each half of the layer normalises its input.
    pub pre_norms: bool,
    /// Each half of the layer normalises its output, before it joins the residual stream.
    pub post_norms: bool,
    /// Factor of each half's output as it joins the residual stream; 1 where `post_norms`.
    pub residual_scale: f64,
    /// The layer's output is multiplied by a learned scalar.
    pub scaled: bool,
}

/// Whose tensor names the files use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Hugging Face names, after the prefix that ends before `embed_tokens`.
    HuggingFace,
    /// Hugging Face names of Granite's hybrid models, whose perceptron is called a shared expert.
    GraniteHybrid,
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
    /// Divisor of the logits. By definition here it divides the final norm's weights, in f32.
    pub logits_divisor: f32,
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
