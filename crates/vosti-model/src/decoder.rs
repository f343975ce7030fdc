//! A family's description of a dense decoder: dimensions and switches, layer by layer, without tensors.
//!
//! A family reads its configuration into a [`Decoder`]; [`mod@crate::plan`] turns any decoder into ops,
//! kernel bindings and weight recipes. A decoder must never hold anything that a batch could change.
//! Read next: `families/llama.rs` for the plainest family, then `plan/mod.rs`.

/// The function that the multilayer perceptron applies to its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU in its tanh form.
    GeluTanh,
    /// gpt-oss's unit of experts, whose router and matrices have biases: `g sigmoid(1.702 g) (u + 1)`, where the gate g is at most 7
    /// and u is within 7 of zero.
    Clamped,
    /// No gate: `max(u, 0)^2`.
    ReluSquared,
}

impl Activation {
    /// Whether units have a gate.
    pub fn gated(self) -> bool {
        self != Activation::ReluSquared
    }
}

/// How rotary frequencies differ from `theta^(-2i/d)`.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// The plain frequencies.
    None,
    /// Every frequency divided by the factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1: frequencies of long wavelengths are divided by `factor`, those of short ones are kept, with a ramp between.
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
    /// YaRN: frequencies with many rotations in the original context are kept, those with few are divided by `factor`, with a
    /// ramp between.
    Yarn {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Context length of the pre-training.
        original: f64,
        /// A frequency with at least this many rotations in `original` positions is kept.
        fast: f64,
        /// A frequency with at most this many rotations in `original` positions is divided.
        slow: f64,
        /// Whether the ramp's ends are whole indices.
        truncate: bool,
        /// Factor of cosines and sines.
        amplitude: f64,
    },
    /// Longrope: one divisor for each frequency, in two sets. A deployment that serves more than `original` positions uses the
    /// long set for all requests, any other deployment the short set. A request's length does not matter.
    Long {
        /// Divisors for a deployment of at most `original` positions.
        short: Factors,
        /// Divisors for a deployment of more positions.
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
    /// The numbers themselves.
    Listed(Vec<f32>),
    /// The name of a tensor of the file that holds them.
    Tensor(String),
}

/// A rotary position embedding: one cosine and one sine table.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Head size; the tables have half as many columns.
    pub head_dim: u32,
    /// Numbers of a head that rotate, as in a head of this size. The other column pairs are not rotated.
    pub rotary: u32,
    /// Deviation from the plain frequencies.
    pub scaling: RopeScaling,
    /// `(beta, original)`: queries at position p are multiplied by `1 + beta ln(1 + floor(p / original))` (Llama 4's scale, used
    /// by Ministral 3).
    pub temperature: Option<(f64, f64)>,
}

impl Rope {
    /// Rotates every pair of a head of this size, with the plain frequencies.
    pub fn plain(theta: f64, head_dim: u32) -> Self {
        Self { theta, head_dim, rotary: head_dim, scaling: RopeScaling::None, temperature: None }
    }

    /// Rotates no pair of a head.
    pub fn still(head_dim: u32) -> Self {
        Self { rotary: 0, ..Self::plain(1.0, head_dim) }
    }
}

/// The RMS norm, with weights, before queries and keys are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// No norm.
    None,
    /// A norm of each query head and each key head.
    Heads,
    /// One norm of all query heads together, and one of all key heads together.
    Whole,
}

/// One layer: a mixer, which may read other rows, then in most families a perceptron, which reads its own row alone. Each reads the
/// residual stream and adds its output to it. A layer has one of them or both.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The first part.
    pub mixer: Mixer,
    /// The second part.
    pub mlp: Mlp,
    /// Whether both parts normalise their inputs.
    pub pre_norms: bool,
    /// Whether both parts normalise their outputs, before these are added to the residual stream.
    pub post_norms: bool,
    /// Factor of these outputs when they are added to the residual stream; 1 if `post_norms`.
    pub residual_scale: f64,
    /// Whether the layer's output is multiplied by a learned scalar.
    pub scaled: bool,
}

/// The part of a layer by which rows of one request reach each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Paged attention.
    Attention(Attention),
    /// A short convolution over time.
    ShortConv(ShortConv),
    /// A gated delta rule: a state over time.
    DeltaRule(DeltaRule),
    /// A Mamba 2 layer: a state over time.
    Mamba(Mamba),
    /// Attention and a Mamba 2 layer: both read the same norm, and the residual stream gets both outputs, Mamba's first.
    Beside(Attention, Mamba),
    /// No such part.
    None,
}

/// The part of a layer that reads one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Mlp {
    /// A gated linear unit, then a projection.
    Gated(Gated),
    /// A few of many gated units, chosen by each row.
    Experts(Experts),
    /// Both, each with norms of its own, and a norm of their sum (Gemma 4).
    Both(Gated, Experts),
    /// No such part.
    None,
}

/// Attention with grouped heads.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Size of each head.
    pub head_dim: u32,
    /// Keys visible to a query, itself included; `None` for all.
    pub window: Option<u32>,
    /// Factor of the scores.
    pub scale: f64,
    /// Soft cap of the scores; 0 for none.
    pub softcap: f64,
    /// Norm of queries and keys.
    pub qk_norm: QkNorm,
    /// Whether the projections to queries, keys and values add a bias.
    pub qkv_bias: bool,
    /// Whether the projection of the results adds a bias.
    pub output_bias: bool,
    /// Whether each head has a sink: a learned score of one more key, whose value is zero.
    pub sinks: bool,
    /// Whether the files have one tensor for queries, keys and values.
    pub fused_qkv: bool,
    /// Whether the results of each head are multiplied by the sigmoid of a gate, which the files have behind the head's query.
    pub output_gate: bool,
    /// Whether values are RMS-normalised, without weights.
    pub v_norm: bool,
    /// Whether the values are the raw keys, without a value projection.
    pub keys_as_values: bool,
    /// The earlier layer whose cache this layer attends to; `None` if the layer has keys and values of its own.
    pub cache_of: Option<usize>,
    /// Rotary embedding of queries and keys.
    pub rope: Rope,
}

/// A gated convolution over the last inputs of each channel: `project(c * sum_j taps_j * (b * x)_(t - taps + 1 + j))`, where `b`, `c`
/// and `x` are three projections of the row to the residual stream's width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConv {
    /// Inputs of a channel that a row sees, its own included.
    pub taps: u32,
}

/// A gated delta rule (Qwen 3.5, Qwen 3 Next). Queries, keys and values go through a short convolution and a SiLU; queries and keys
/// then have length one. With log-decays g and strengths b, a value head's state is
/// `S_t = exp(g_t) S_(t-1) + k_t u_t^T` where `u_t = b_t (v_t - exp(g_t) S_(t-1)^T k_t)`, and its result `S_t^T q_t / sqrt(d)`, whose RMS
/// norm is multiplied by the SiLU of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaRule {
    /// Heads of queries, and of keys.
    pub key_heads: u32,
    /// Value heads of each key head.
    pub group: u32,
    /// Size of each head.
    pub head_dim: u32,
    /// Inputs of a channel that the convolution sees, the row's own included.
    pub taps: u32,
    /// How the files have its projections.
    pub tensors: DeltaTensors,
}

/// The projections of a gated delta rule in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaTensors {
    /// Four tensors: queries, keys and values; gates; strengths; decays. The value heads of a key head are neighbours.
    Apart,
    /// The same, but the first value heads of all key heads come first, then the second ones: llama.cpp's of Qwen 3.5.
    Turned,
    /// The same as `Apart`, but one tensor has the strengths of a key head and then its decays: llama.cpp's of Qwen 3 Next.
    Paired,
    /// One tensor has the query, the key, the values and the gates of a key head, another one its strengths and decays: Qwen 3 Next's.
    Fused,
}

/// A Mamba 2 layer. Values, keys and queries (x, B and C in the paper) go through a short convolution with a bias and a SiLU. With steps
/// d and rates a, which are negative, a head's state is `S_t = exp(a d_t) S_(t-1) + d_t k_t x_t^T`, and its result
/// `S_t^T q_t + skip x_t` times the SiLU of a gate. The results of each group have one RMS norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mamba {
    /// Groups of heads that share a key and a query.
    pub groups: u32,
    /// Heads of each group.
    pub members: u32,
    /// Size of a key, and of a query.
    pub state: u32,
    /// Size of a head's values.
    pub head_dim: u32,
    /// Inputs of a channel that the convolution sees, the row's own included.
    pub taps: u32,
    /// Whether the gated results have a norm.
    pub normed: bool,
}

/// A perceptron: `down(activation(gate(x)) * up(x))`, or `down(activation(up(x)))` if its activation has no gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Gated {
    /// Columns of gate and up.
    pub width: u32,
    /// The function of the gate, or of the units.
    pub activation: Activation,
    /// Whether the files have one tensor for gate and up.
    pub fused: bool,
}

/// A mixture of experts: `sum_j share_j * expert_j(x)` over the experts that a router chooses for a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// Experts of a layer.
    pub count: u32,
    /// Experts of a row.
    pub chosen: u32,
    /// Columns of gate and up of an expert.
    pub width: u32,
    /// The function of the gates, or of the units.
    pub activation: Activation,
    /// The function of the router's logits whose values are shares.
    pub score: Score,
    /// Groups of equal size, of which a row's experts come from the best ones.
    pub groups: Option<Groups>,
    /// Whether the shares of a row's experts are divided by their sum.
    pub normed: bool,
    /// The factor of the shares.
    pub scale: f64,
    /// A perceptron that every row has besides.
    pub shared: Option<Shared>,
    /// Where the files have the matrices.
    pub tensors: ExpertTensors,
}

impl Experts {
    /// Whether the router and the experts' matrices have biases.
    pub fn biased(&self) -> bool {
        self.activation == Activation::Clamped
    }
}

/// Groups of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Groups of a layer. Neighbours are in one group.
    pub count: u32,
    /// Groups whose experts a row may choose: those whose two largest scores have the largest sums.
    pub kept: u32,
}

/// A perceptron beside a mixture, which files call a shared expert.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// The perceptron.
    pub mlp: Gated,
    /// Whether a row's result is multiplied by the sigmoid of the row's product with a vector.
    pub gated: bool,
}

/// The function of a router's logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// The softmax of all experts' logits.
    Softmax,
    /// The sigmoid of each. A bias of the files joins it for the choice, and is no part of a share.
    Sigmoid,
}

/// The tensors of a mixture in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertTensors {
    /// Three matrices for each expert.
    Each,
    /// The same with Mixtral's names.
    Mixtral,
    /// One tensor of all gates and ups and one of all downs, with Granite's names.
    Stacked,
    /// The same with Qwen 3.5's names.
    Fused,
    /// The same with Gemma 4's names.
    Gemma,
    /// llama.cpp's: one tensor of all gates, one of all ups and one of all downs.
    Apart,
    /// gpt-oss's: one tensor of all gates and ups, which alternate, and one of all downs. Plain numbers have each matrix's columns as
    /// rows, MXFP4 has its rows.
    Alternating,
}

impl ExpertTensors {
    /// Whether one tensor has the gates and ups of all experts.
    pub fn whole(self) -> bool {
        !matches!(self, ExpertTensors::Each | ExpertTensors::Mixtral | ExpertTensors::Apart)
    }

    /// Whether one tensor has the downs of all experts.
    pub fn whole_down(self) -> bool {
        self.whole() || self == ExpertTensors::Apart
    }
}

/// What elements of a matrix are multiplied by when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is named as its matrix")]
pub struct Scales {
    pub query: f32,
    pub key: f32,
    pub value: f32,
    pub output: f32,
    /// The gate, values, keys, queries and steps of a Mamba 2 layer.
    pub mamba: [f32; 5],
    pub mamba_out: f32,
    pub gate: f32,
    pub down: f32,
}

impl Scales {
    /// Matrices as the files have them.
    pub const NONE: Scales =
        Scales { query: 1.0, key: 1.0, value: 1.0, output: 1.0, mamba: [1.0; 5], mamba_out: 1.0, gate: 1.0, down: 1.0 };
}

/// The convention of the files' tensor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Hugging Face names, after the prefix that ends before `embed_tokens`.
    HuggingFace,
    /// Hugging Face names of Granite's hybrid models, whose perceptron is called a shared expert.
    GraniteHybrid,
    /// Hugging Face names of LFM2.
    Lfm2,
    /// Hugging Face names of Ling 2.0.
    Ling,
    /// Hugging Face names of Qwen 3.5's and Qwen 3 Next's mixtures, with one shared expert.
    SharedExpert,
    /// Hugging Face names of Mamba 2.
    Mamba2,
    /// Hugging Face names of Falcon H1.
    FalconH1,
    /// Hugging Face names of Nemotron H, whose layers have one part each.
    NemotronH,
    /// llama.cpp's names.
    Gguf,
    /// llama.cpp's names of LFM2, whose final norm is called the embedding's.
    GgufLfm2,
    /// llama.cpp's names of GLM, gpt-oss, Qwen 3.5 and Qwen 3 Next, where the norm of a perceptron's input is called the one behind attention.
    GgufPostAttention,
    /// llama.cpp's names of Nemotron H: each layer's norm is called attention's.
    GgufNemotronH,
}

impl Naming {
    /// Whether the names are llama.cpp's.
    pub fn is_gguf(self) -> bool {
        matches!(self, Naming::Gguf | Naming::GgufLfm2 | Naming::GgufPostAttention | Naming::GgufNemotronH)
    }
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
    /// Per-layer embeddings: numbers of its own that each layer gets of a token's row in a second embedding table.
    pub per_layer: Option<u32>,
    /// Divisor of the logits. Vosti defines that it divides the final norm's weights, in f32.
    pub logits_divisor: f32,
    /// Whether the output matrix is the embedding matrix.
    pub tied: bool,
    /// Names of the tensors.
    pub naming: Naming,
    /// Added to each norm weight of the files. The sum is the factor of the norm.
    pub norm_offset: f32,
    /// Whether the rows of Q and K are stored in llama.cpp's interleaved order.
    pub permuted: bool,
    /// Factors of matrices. GGUF files have them multiplied in.
    pub scales: Scales,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
}

impl Decoder {
    /// No layers and no width, and nothing that only some families have: every factor is neutral. A family writes what it has over it.
    pub fn neutral(family: &'static str, naming: Naming) -> Decoder {
        Decoder {
            family,
            vocab: 0,
            hidden: 0,
            context: 0,
            eps: 0.0,
            embed_scale: 1.0,
            final_softcap: 0.0,
            per_layer: None,
            logits_divisor: 1.0,
            tied: false,
            naming,
            norm_offset: 0.0,
            permuted: false,
            scales: Scales::NONE,
            layers: vec![],
        }
    }

    /// The attention of layers that have one, first to last.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::Attention(attention) | Mixer::Beside(attention, _) => Some(attention),
            Mixer::ShortConv(_) | Mixer::DeltaRule(_) | Mixer::Mamba(_) | Mixer::None => None,
        })
    }

    /// As [`Decoder::attentions`], to change.
    pub fn attentions_mut(&mut self) -> impl Iterator<Item = &mut Attention> {
        self.layers.iter_mut().filter_map(|layer| match &mut layer.mixer {
            Mixer::Attention(attention) | Mixer::Beside(attention, _) => Some(attention),
            Mixer::ShortConv(_) | Mixer::DeltaRule(_) | Mixer::Mamba(_) | Mixer::None => None,
        })
    }

    /// The gated perceptrons of layers that have one, first to last, to change.
    pub fn gated_mut(&mut self) -> impl Iterator<Item = &mut Gated> {
        self.layers.iter_mut().filter_map(|layer| match &mut layer.mlp {
            Mlp::Gated(gated) | Mlp::Both(gated, _) => Some(gated),
            Mlp::Experts(_) | Mlp::None => None,
        })
    }
}
