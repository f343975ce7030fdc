//! Compiles a [`Decoder`] to the input of a device: the program, each op's kernels, and each weight's recipe.
//!
//! A plan never depends on a batch, a query length or a phase: kernels are chosen from the model's dimensions and the target
//! alone. Buffers alternate, so that no op writes a buffer that it reads. This module has the layer as a whole and what its
//! parts are made with; `attention.rs`, `both.rs`, `conv.rs`, `delta.rs`, `mamba.rs`, `mlp.rs`, `per_layer.rs` and
//! `head.rs` have the parts.
//! Read next: `recipe.rs`, then `weights.rs`, which turns recipes into tensors.

mod attention;
mod both;
mod conv;
mod delta;
mod head;
mod mamba;
mod mlp;
mod per_layer;
mod product;
mod state;

use std::collections::BTreeMap;
use std::fmt;

use vosti_contract::Const;
use vosti_core::{BufferDecl, Dtype, GroupDecl, LayerDecl, Op, Program, RowSet};
use vosti_kernels::{Binding, CPU, Draws, Format, Launch, Spec};

use crate::decoder::{Decoder, Layer, Mixer, Mlp, Rope};
use crate::error::Result;
use crate::recipe::{MatrixPart, Recipe, Weight};
use crate::tensor_names::{Slot, tensor_name};

pub(crate) use head::LIST_PART;
use mlp::DENSE;
use per_layer::PerLayer;
use product::Factor;

/// How matrices that a file has in blocks are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Weights and activations become BF16 numbers.
    Bf16,
    /// Codes times activations of 8 bits in blocks of 32, with exact sums.
    Integers8,
    /// Codes times activations of 16 bits in blocks of 32, with exact sums.
    Integers16,
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arithmetic::Bf16 => "bf16",
            Arithmetic::Integers8 => "integers, activations of 8 bits",
            Arithmetic::Integers16 => "integers, activations of 16 bits",
        })
    }
}

/// The target of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// `cpu`, `cuda-sm90`, ...
    pub name: &'a str,
    /// Element type of activations, matrices and the cache.
    pub act: Dtype,
    /// Whether the device lists each row's largest logits and draws tokens, so that a choice does not need the whole row.
    pub choices: bool,
    /// How matrices in blocks are multiplied.
    pub arithmetic: Arithmetic,
}

impl<'a> Target<'a> {
    /// The served configuration of the target with this name: BF16, with lists and draws on a GPU, so that rows of logits need not be
    /// copied to the host. On the processor, the sampler chooses faster than the kernels do.
    /// A processor multiplies matrices in blocks in integers; a GPU in BF16, because nobody has measured integers there.
    pub fn named(name: &'a str) -> Self {
        let arithmetic = if name == CPU { Arithmetic::Integers16 } else { Arithmetic::Bf16 };
        Self { name, act: Dtype::Bf16, choices: name != CPU, arithmetic }
    }

    /// The same with another type of activations.
    pub fn with_act(self, act: Dtype) -> Self {
        Self { act, ..self }
    }

    /// The same with another arithmetic of matrices in blocks.
    pub fn with_arithmetic(self, arithmetic: Arithmetic) -> Self {
        Self { arithmetic, ..self }
    }

    /// The same with lists of each row's largest logits, and with draws.
    pub fn with_choices(self) -> Self {
        Self { choices: true, ..self }
    }
}

/// A model ready to be bound to a device.
#[derive(Clone, Debug)]
pub struct ModelPlan {
    /// The forward pass as data.
    pub program: Program,
    /// What draws tokens behind it, if the target does.
    pub draws: Option<Draws>,
    /// The buffer of each mixture's choice of experts, by layer. No other op writes it.
    pub routed: Vec<u32>,
    /// The binding of each op's `k`.
    pub bindings: Vec<Binding>,
    /// Each weight that a binding names.
    pub weights: BTreeMap<String, Weight>,
}

impl ModelPlan {
    /// The program with what draws tokens behind it.
    pub fn whole(&self) -> Program {
        self.draws.as_ref().map_or_else(|| self.program.clone(), |draws| draws.behind(&self.program))
    }
}

/// Compiles a decoder for a target. `context` is the longest sequence to serve, in tokens; the model's own limit is used if
/// it is less, or if `context` is `None`. No matrix is taken to be in blocks, so all products are in BF16 or FP32. Error: the
/// kernels do not support a dimension or the target.
pub fn plan(decoder: &Decoder, target: &Target, context: Option<u32>) -> Result<ModelPlan> {
    plan_with(decoder, target, context, &|_| None)
}

/// As [`plan`], with the format of each tensor that can be multiplied in integers.
pub(crate) fn plan_with(
    decoder: &Decoder,
    target: &Target,
    context: Option<u32>,
    formats: &dyn Fn(&str) -> Option<&'static Format>,
) -> Result<ModelPlan> {
    let context = context.map_or(decoder.context, |c| c.min(decoder.context)).max(1);
    let mut builder = Builder {
        decoder,
        target,
        formats,
        context,
        rows: RowSet::All,
        ops: Vec::new(),
        buffers: Vec::new(),
        shared: Vec::new(),
        held: Vec::new(),
        per_layer: None,
        draws: None,
        groups: Vec::new(),
        layers: Vec::new(),
        caches: BTreeMap::new(),
        routed: Vec::new(),
        bindings: Vec::new(),
        weights: BTreeMap::new(),
        ropes: Vec::new(),
    };
    let logits = builder.decoder()?;
    Ok(ModelPlan {
        program: Program {
            ops: builder.ops,
            buffers: builder.buffers,
            groups: builder.groups,
            layers: builder.layers,
            logits,
            vocab: decoder.vocab,
            context,
            kernels: builder.bindings.len() as u32,
        },
        draws: builder.draws,
        routed: builder.routed,
        bindings: builder.bindings,
        weights: builder.weights,
    })
}

/// Every specialisation a plan may launch, sorted, each once.
pub fn specs(plan: &ModelPlan) -> Vec<Spec> {
    let mut specs: Vec<Spec> = plan.bindings.iter().flat_map(Binding::specs).cloned().collect();
    specs.sort();
    specs.dedup();
    specs
}

/// Buffers of the residual stream, in FP32. Ops alternate between them.
const STREAM: usize = 2;
struct Builder<'a> {
    decoder: &'a Decoder,
    target: &'a Target<'a>,
    /// The format of a tensor that can be multiplied in integers.
    formats: &'a dyn Fn(&str) -> Option<&'static Format>,
    context: u32,
    /// The rows that the next ops compute.
    rows: RowSet,
    ops: Vec<Op>,
    buffers: Vec<BufferDecl>,
    /// Buffers that ops share. In FP32 the residual stream has their type, so the type does not tell them apart.
    shared: Vec<u32>,
    /// Shared buffers that a later op of the layer reads.
    held: Vec<u32>,
    /// What layers make inputs of their own from, in models with per-layer embeddings.
    per_layer: Option<PerLayer>,
    draws: Option<Draws>,
    groups: Vec<GroupDecl>,
    layers: Vec<LayerDecl>,
    /// The program's cache layer that a decoder layer attends to.
    caches: BTreeMap<usize, u32>,
    /// The buffer of each mixture's choice.
    routed: Vec<u32>,
    bindings: Vec<Binding>,
    weights: BTreeMap<String, Weight>,
    /// Rotary embeddings seen so far; a table is named by its index here.
    ropes: Vec<Rope>,
}

/// The output of a layer's part, before its last projection.
struct Output {
    buffer: u32,
    /// Columns of the buffer.
    width: u32,
    /// The projection's matrix.
    projection: Factor,
}

/// The norms of a part's input and output: the ends of their weights' names, and their tensors.
struct Norms {
    input: (&'static str, Slot),
    output: (&'static str, Slot),
}

const MIXER: Norms =
    Norms { input: ("attention_norm", Slot::AttentionNorm), output: ("post_attention_norm", Slot::PostAttentionNorm) };
const MLP: Norms = Norms { input: ("mlp_norm", Slot::MlpNorm), output: ("post_mlp_norm", Slot::PostMlpNorm) };

impl Builder<'_> {
    /// Emits the whole forward pass and returns the logits buffer.
    fn decoder(&mut self) -> Result<u32> {
        let mut stream = self.embed()?;
        if let Some(width) = self.decoder.per_layer {
            self.embed_per_layer(width, stream[0])?;
        }
        for index in 0..self.decoder.layers.len() {
            self.layer(index, &mut stream)?;
        }
        self.head(stream[0])
    }

    /// Emits one layer: it reads `stream[0]`, writes its output there and uses `stream[1]` between its parts. No op after the
    /// last mixer reads another row, so from there on only the rows that feed logits are computed.
    fn layer(&mut self, index: usize, stream: &mut [u32; STREAM]) -> Result<()> {
        let d = self.decoder;
        let layer = &d.layers[index];
        let mut mixed = match &layer.mixer {
            Mixer::Attention(attention) => {
                let qkv = self.qkv_factor(index, attention);
                let input = self.enter(index, &MIXER, stream[0], &qkv)?;
                vec![self.attention(index, attention, (input, qkv))?]
            }
            Mixer::ShortConv(conv) => {
                let fused = self.conv_factor(index);
                let input = self.enter(index, &MIXER, stream[0], &fused)?;
                vec![self.short_conv(index, *conv, (input, fused))?]
            }
            Mixer::DeltaRule(rule) => vec![self.delta_rule(index, rule, stream[0])?],
            Mixer::Mamba(mamba) => vec![self.mamba(index, mamba, stream[0])?],
            Mixer::Beside(attention, mamba) => {
                let qkv = self.qkv_factor(index, attention);
                let input = self.enter(index, &MIXER, stream[0], &qkv)?;
                let attended = self.attention(index, attention, (input, qkv))?;
                self.held.push(attended.buffer);
                vec![self.mamba(index, mamba, stream[0])?, attended]
            }
            Mixer::None => vec![],
        };
        if !mixed.is_empty() && d.layers[index + 1..].iter().all(|later| later.mixer == Mixer::None) {
            self.choose(&mut mixed, stream)?;
        }
        self.held.extend(mixed.iter().skip(1).map(|output| output.buffer));
        for output in mixed {
            self.join(index, &MIXER, output, *stream, None)?;
            stream.swap(0, 1);
        }
        self.held.clear();
        if matches!(&layer.mixer, Mixer::Attention(attention) if attention.output_bias) {
            self.output_bias(index, *stream)?;
            stream.swap(0, 1);
        }

        // The last part of a layer multiplies by its scalar.
        let last = self.per_layer.is_none();
        match &layer.mlp {
            Mlp::None => return Ok(()),
            Mlp::Gated(gated) => {
                let gate_up = self.gate_up_factor(index, gated, &DENSE);
                let input = self.enter(index, &MLP, stream[0], &gate_up)?;
                let output = self.gated(index, gated, (input, gate_up), &DENSE)?;
                let scalar = (last && layer.scaled).then(|| self.scalar_weight(index));
                self.join(index, &MLP, output, *stream, scalar)?;
            }
            Mlp::Experts(experts) => {
                let gate_up = self.experts_factor(index, experts);
                let input = self.enter(index, &MLP, stream[0], &gate_up)?;
                self.experts(index, experts, (input, gate_up), *stream)?;
                if let Some(shared) = &experts.shared {
                    stream.swap(0, 1);
                    let output = self.shared(index, shared, input)?;
                    self.join(index, &MLP, output, *stream, None)?;
                }
            }
            Mlp::Both(gated, experts) => {
                let sum = self.both(index, gated, experts, stream[0])?;
                let scalar = (last && layer.scaled).then(|| self.scalar_weight(index));
                self.add_normed((index, MLP.output), sum, *stream, scalar)?;
            }
        }
        stream.swap(0, 1);
        if let Some(per_layer) = self.per_layer {
            let scalar = layer.scaled.then(|| self.scalar_weight(index));
            self.own_input(index, per_layer, *stream, scalar)?;
            stream.swap(0, 1);
        }
        Ok(())
    }

    /// Copies the rows of a mixer's outputs, of the stream and of the layers' inputs that feed logits; the next ops compute only these.
    fn choose(&mut self, mixed: &mut [Output], stream: &mut [u32; STREAM]) -> Result<()> {
        let hidden = self.decoder.hidden;
        self.rows = RowSet::Selected;
        let chosen = [0; STREAM].map(|_: u32| self.buffer(hidden, Dtype::F32, RowSet::Selected));
        // With a second output comes a second copy of the stream, which nothing reads.
        for (output, copy) in mixed.iter_mut().zip(chosen) {
            let Output { buffer: x, width, .. } = *output;
            output.buffer = self.fresh(width, self.dtype(x));
            let k = self.bind_as("gather", self.dtype(x), &[("K", int(width)), ("H", int(hidden))], Vec::new())?;
            self.push_rowwise(k, vec![x, stream[0]], vec![output.buffer, copy]);
        }
        *stream = chosen;
        self.choose_per_layer()
    }

    /// The input of a part: the norm of the residual stream, or the stream itself, in the type that the part's first product reads.
    fn enter(&mut self, index: usize, norms: &Norms, stream: u32, first: &Factor) -> Result<u32> {
        let hidden = self.decoder.hidden;
        if self.decoder.layers[index].pre_norms {
            let (name, slot) = norms.input;
            let weight = self.norm_weight("w", &format!("layers.{index}.{name}"), slot, index, hidden);
            return self.norm(weight, stream, first);
        }
        if first.reads(self.target.act) == self.dtype(stream) {
            return Ok(stream);
        }
        self.rounded((stream, hidden))
    }

    /// Projects the output of a part and adds it to the stream: `stream[1] = stream[0] + f(output)`. `scalar` is the weight that
    /// multiplies the sum.
    fn join(
        &mut self,
        index: usize,
        norms: &Norms,
        Output { buffer, width, projection }: Output,
        stream: [u32; STREAM],
        scalar: Option<String>,
    ) -> Result<()> {
        let hidden = self.decoder.hidden;
        let Layer { post_norms, residual_scale, .. } = self.decoder.layers[index];
        if !post_norms {
            let scale = [("SCALE", Const::Float(residual_scale))];
            let mut ins = self.factors((buffer, width), &projection)?;
            ins.push(stream[0]);
            let k = self.bind_product("linear_add", (&projection, width, hidden), &scale, vec![])?;
            self.push_rowwise(k, ins, vec![stream[1]]);
            return Ok(());
        }
        let projected = self.linear((buffer, width), &projection, hidden)?;
        self.add_normed((index, norms.output), projected, stream, scalar)
    }

    /// Adds the norm of a part's output to the stream: `stream[1] = stream[0] + norm(output)`. `scalar` is the weight that multiplies the
    /// sum, `name` and `slot` are the norm's.
    fn add_normed(
        &mut self,
        (index, (name, slot)): (usize, (&str, Slot)),
        output: u32,
        stream: [u32; STREAM],
        scalar: Option<String>,
    ) -> Result<()> {
        let hidden = self.decoder.hidden;
        let mut weights = vec![self.norm_weight("w", &format!("layers.{index}.{name}"), slot, index, hidden)];
        let kernel = if scalar.is_some() { "rmsnorm_add_scaled" } else { "rmsnorm_add" };
        weights.extend(scalar);
        let k = self.bind_as(kernel, self.dtype(output), &self.norm_dims(), weights)?;
        self.push_rowwise(k, vec![stream[0], output], vec![stream[1]]);
        Ok(())
    }

    /// The norm of a buffer, in the type that the product with `first` reads.
    fn norm(&mut self, weight: String, input: u32, first: &Factor) -> Result<u32> {
        let dtype = first.reads(self.target.act);
        let k = self.bind_as("rmsnorm", dtype, &self.norm_dims(), vec![weight])?;
        let out = self.scratch_as(self.decoder.hidden, dtype, &[input]);
        self.push_rowwise(k, vec![input], vec![out]);
        Ok(out)
    }

    fn push_rowwise(&mut self, k: u32, ins: Vec<u32>, outs: Vec<u32>) {
        self.ops.push(Op::Rowwise { k, ins, outs, rows: self.rows });
    }

    fn norm_dims(&self) -> [(&'static str, Const); 2] {
        [("H", int(self.decoder.hidden)), ("EPS", Const::Float(self.decoder.eps))]
    }
}

/// Buffers. Layers of one width share scratch buffers, so that a model has a few of them and not a few for each layer.
impl Builder<'_> {
    fn buffer(&mut self, width: u32, dtype: Dtype, rows: RowSet) -> u32 {
        self.buffers.push(BufferDecl { width, dtype, rows });
        self.buffers.len() as u32 - 1
    }

    /// A buffer of activations of this width that is neither the residual stream nor one of these.
    fn scratch(&mut self, width: u32, others: &[u32]) -> u32 {
        self.scratch_as(width, self.target.act, others)
    }

    /// The same in this type.
    fn scratch_as(&mut self, width: u32, dtype: Dtype, others: &[u32]) -> u32 {
        let decl = BufferDecl { width, dtype, rows: self.rows };
        let fits = |i: &&u32| !others.contains(i) && !self.held.contains(i) && self.buffers[**i as usize] == decl;
        self.shared.iter().find(fits).copied().unwrap_or_else(|| self.fresh(width, dtype))
    }

    /// A buffer that later ops may share.
    fn fresh(&mut self, width: u32, dtype: Dtype) -> u32 {
        let buffer = self.buffer(width, dtype, self.rows);
        self.shared.push(buffer);
        buffer
    }

    fn dtype(&self, buffer: u32) -> Dtype {
        self.buffers[buffer as usize].dtype
    }

    /// A new cache layer, in the group with this declaration.
    fn cache(&mut self, decl: GroupDecl) -> u32 {
        let group = self.groups.iter().position(|group| *group == decl).unwrap_or_else(|| {
            self.groups.push(decl);
            self.groups.len() - 1
        });
        self.layers.push(LayerDecl { group: group as u32 });
        self.layers.len() as u32 - 1
    }
}

/// Kernels and weights.
impl Builder<'_> {
    /// The index of the binding of one kernel to weights, each for the parameter that it is made for; equal bindings share an
    /// index.
    fn bind(&mut self, kernel: &str, dims: &[(&str, Const)], weights: Vec<String>) -> Result<u32> {
        self.bind_as(kernel, self.target.act, dims, weights)
    }

    /// The same of the kernel in this type of activations.
    fn bind_as(&mut self, kernel: &str, act: Dtype, dims: &[(&str, Const)], weights: Vec<String>) -> Result<u32> {
        let launches = vec![self.launch(kernel, act, dims, weights)?];
        Ok(self.binding(Binding { launches, folded: vec![], scratch: vec![] }))
    }

    /// A launch of one kernel, in all heights of its row tiles.
    fn launch(&self, kernel: &str, act: Dtype, dims: &[(&str, Const)], weights: Vec<String>) -> Result<Launch> {
        let spec = crate::specialise::specialise(self.target.name, kernel, act, dims)?;
        let higher = vosti_kernels::higher(self.target.name, &spec)?;
        let parameter = |name: &String| self.weights[name].parameter.to_string();
        let weights = weights.into_iter().map(|name| (parameter(&name), name)).collect();
        Ok(Launch { spec, higher, weights })
    }

    fn spec(&self, kernel: &str, dims: &[(&str, Const)]) -> Result<Spec> {
        crate::specialise::specialise(self.target.name, kernel, self.target.act, dims)
    }

    /// The index of a binding; equal ones share it.
    fn binding(&mut self, binding: Binding) -> u32 {
        let found = self.bindings.iter().position(|b| *b == binding).unwrap_or_else(|| {
            self.bindings.push(binding);
            self.bindings.len() - 1
        });
        found as u32
    }

    fn tensor(&self, slot: Slot, index: usize) -> String {
        let post_norms = self.decoder.layers.get(index).is_some_and(|l| l.post_norms);
        tensor_name(self.decoder.naming, slot, index, post_norms)
    }

    /// All rows of a tensor.
    fn rows(&self, slot: Slot, index: usize, rows: u32) -> MatrixPart {
        let scales = &self.decoder.scales;
        let scale = match slot {
            Slot::Query => scales.query,
            Slot::Key => scales.key,
            Slot::Value => scales.value,
            Slot::Output => scales.output,
            Slot::MambaOut => scales.mamba_out,
            Slot::Gate => scales.gate,
            Slot::Down => scales.down,
            _ => 1.0,
        };
        MatrixPart { scale, ..MatrixPart::whole(self.tensor(slot, index), rows as usize) }
    }

    /// Adds a weight for a kernel's parameter of this name; returns the weight's name.
    fn weight(&mut self, parameter: &'static str, name: &str, recipe: Recipe) -> String {
        self.weights.insert(name.to_string(), Weight { parameter, recipe });
        name.to_string()
    }

    /// A matrix in the activations' type.
    fn matrix(&mut self, name: &str, parts: Vec<MatrixPart>, columns: u32) -> String {
        self.weight("w", name, Recipe::Matrix { parts, columns: columns as usize, dtype: self.target.act })
    }

    fn vector(
        &mut self,
        parameter: &'static str,
        name: &str,
        parts: Vec<MatrixPart>,
        offset: f32,
        divisor: f32,
    ) -> String {
        self.weight(parameter, name, Recipe::Vector { parts, offset, divisor })
    }

    fn norm_weight(&mut self, parameter: &'static str, name: &str, slot: Slot, index: usize, length: u32) -> String {
        let parts = vec![self.rows(slot, index, length)];
        self.vector(parameter, name, parts, self.decoder.norm_offset, 1.0)
    }

    fn scalar_weight(&mut self, index: usize) -> String {
        let tensor = self.tensor(Slot::LayerScalar, index);
        let recipe = Recipe::Repeat { tensor, length: self.decoder.hidden as usize };
        self.weight("factor", &format!("layers.{index}.scalar"), recipe)
    }
}

fn int(value: u32) -> Const {
    Const::Int(value.into())
}
