//! Compiles a [`Decoder`] to the input of a device: the program, each op's kernels, and each weight's recipe.
//!
//! A plan never depends on a batch, a query length or a phase: kernels are chosen from the model's dimensions and the target
//! alone. Buffers alternate, so that no op writes a buffer that it reads.
//! Read next: `recipe.rs`, then `weights.rs`, which turns recipes into tensors.

use std::collections::BTreeMap;

use vosti_core::{BufferDecl, Dtype, GroupDecl, LayerDecl, Op, Program, RowSet};
use vosti_kernels::{Act, Binding, CPU, Const, Launch, Spec, capped};

use crate::decoder::{Activation, Decoder, Layer, QkNorm, Rope};
use crate::error::Result;
use crate::recipe::{HeadRows, MatrixPart, Recipe};
use crate::tensor_names::{Slot, tensor_name};

/// The target of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// `cpu`, `cuda-sm90`, ...
    pub name: &'a str,
    /// Element type of activations and matrices.
    pub act: Act,
    /// Whether the program lists each row's largest logits, so that a choice among them does not need the whole row.
    pub lists: bool,
}

impl<'a> Target<'a> {
    /// The served configuration of the target with this name: BF16, with lists on a GPU, so that rows of logits need not be
    /// copied to the host. On the processor, the sampler finds the largest logits of a row faster than the list kernels do.
    pub fn named(name: &'a str) -> Self {
        Self { name, act: Act::Bf16, lists: name != CPU }
    }

    /// The same with another type of activations.
    pub fn with_act(self, act: Act) -> Self {
        Self { act, ..self }
    }

    /// The same with lists of each row's largest logits.
    pub fn with_lists(self) -> Self {
        Self { lists: true, ..self }
    }
}

/// A model ready to be bound to a device.
#[derive(Clone, Debug)]
pub struct ModelPlan {
    /// The forward pass as data.
    pub program: Program,
    /// The binding of each op's `k`.
    pub bindings: Vec<Binding>,
    /// How each weight named by a binding is made from the files.
    pub weights: BTreeMap<String, Recipe>,
}

/// Compiles a decoder for a target. `context` is the longest sequence to serve, in tokens; the model's own limit is used if
/// it is less, or if `context` is `None`. Error: the kernels do not support a dimension or the target.
pub fn plan(decoder: &Decoder, target: &Target, context: Option<u32>) -> Result<ModelPlan> {
    let context = context.map_or(decoder.context, |c| c.min(decoder.context)).max(1);
    let mut builder = Builder {
        decoder,
        target,
        context,
        rows: RowSet::All,
        ops: Vec::new(),
        buffers: Vec::new(),
        groups: Vec::new(),
        layers: Vec::new(),
        cache_of_layer: Vec::new(),
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
        bindings: builder.bindings,
        weights: builder.weights,
    })
}

/// Every specialisation a plan may launch, sorted, each once.
pub fn specs(plan: &ModelPlan) -> Vec<Spec> {
    let mut specs: Vec<Spec> =
        plan.bindings.iter().flat_map(|b| &b.launches).flat_map(|l| l.specs().cloned()).collect();
    specs.sort();
    specs.dedup();
    specs
}

/// Buffers of the residual stream, in FP32. Ops alternate between them.
const STREAM: usize = 2;
/// Logits of a list, a power of two: the largest `top_k` of published models (Gemma's 64, Qwen's 20; 40 and 50 are common).
const LISTED: u32 = 64;
/// Columns of a row that one program of the list kernel reads.
pub(crate) const LIST_PART: u32 = 4096;
/// The same, for a row of at most this many columns.
const FEW: u32 = 256;

struct Builder<'a> {
    decoder: &'a Decoder,
    target: &'a Target<'a>,
    context: u32,
    /// The rows that the next ops compute.
    rows: RowSet,
    ops: Vec<Op>,
    buffers: Vec<BufferDecl>,
    groups: Vec<GroupDecl>,
    layers: Vec<LayerDecl>,
    /// The program's cache layer that each decoder layer attends to.
    cache_of_layer: Vec<u32>,
    bindings: Vec<Binding>,
    weights: BTreeMap<String, Recipe>,
    /// Rotary embeddings seen so far; a table is named by its index here.
    ropes: Vec<Rope>,
}

/// The heads in a row of a layer's fused projection: their number, the first key head and the first value head.
struct Projection {
    heads: u32,
    k_first: u32,
    v_first: u32,
}

impl Layer {
    fn projection(&self) -> Projection {
        let (q, kv) = (self.heads, self.kv_heads);
        match (self.cache_of, self.keys_as_values) {
            (Some(_), _) => Projection { heads: q, k_first: 0, v_first: 0 },
            (None, true) => Projection { heads: q + kv, k_first: q, v_first: q },
            (None, false) => Projection { heads: q + 2 * kv, k_first: q, v_first: q + kv },
        }
    }
}

impl Builder<'_> {
    /// Emits the whole forward pass and returns the logits buffer.
    fn decoder(&mut self) -> Result<u32> {
        let d = self.decoder;
        let embed = self.matrix("embed", vec![self.rows(Slot::Embed, 0, d.vocab)], d.hidden);
        let k = self.bind(
            "embed",
            &[("V", int(d.vocab)), ("H", int(d.hidden)), ("SCALE", Const::Float(d.embed_scale))],
            vec![embed.clone()],
        )?;
        let mut stream = [0; STREAM].map(|_: u32| self.buffer(d.hidden, Dtype::F32, RowSet::All));
        self.ops.push(Op::Embed { k, out: stream[0] });
        for index in 0..d.layers.len() {
            self.layer(index, &mut stream)?;
        }

        let weight = vec![self.rows(Slot::FinalNorm, 0, d.hidden)];
        let weight = self.vector("final_norm", weight, d.norm_offset, d.logits_divisor);
        let normed = self.norm(weight, stream[0])?;
        let head = if d.tied { embed } else { self.matrix("head", vec![self.rows(Slot::Head, 0, d.vocab)], d.hidden) };
        let logits = self.buffer(d.vocab, Dtype::F32, RowSet::Selected);
        let k = self.bind(
            "linear_logits",
            &[&[("K", int(d.hidden)), ("N", int(d.vocab))], &capped(d.final_softcap, 1.0)[..]].concat(),
            vec![head],
        )?;
        self.push_rowwise(k, vec![normed], vec![logits]);
        let best = self.buffer(1, Dtype::F32, RowSet::Selected);
        let k = self.bind("argmax", &[("V", int(d.vocab))], Vec::new())?;
        self.push_rowwise(k, vec![logits], vec![best]);
        if self.target.lists {
            self.lists(logits)?;
        }
        Ok(logits)
    }

    /// Emits the lists of each row's largest logits, in two ops: the largest of each stretch, then the largest of those.
    fn lists(&mut self, logits: u32) -> Result<()> {
        let vocab = self.decoder.vocab;
        let part = if vocab <= FEW { FEW } else { LIST_PART };
        let parts = vocab.div_ceil(part);
        let found = parts * LISTED;
        let mut pair = |width: u32| [0; 2].map(|_: u32| self.buffer(width, Dtype::F32, RowSet::Selected)).to_vec();
        let (candidates, list) = (pair(found), pair(LISTED));
        let dims = [("V", int(vocab)), ("PARTS", int(parts)), ("PART", int(part)), ("K", int(LISTED))];
        let k = self.bind("topk_part", &dims, Vec::new())?;
        self.push_rowwise(k, vec![logits], candidates.clone());
        let k = self.bind("topk_combine", &[("N", int(found)), ("K", int(LISTED))], Vec::new())?;
        self.push_rowwise(k, candidates, list);
        Ok(())
    }

    /// Emits one layer: it reads `stream[0]`, writes its output there and uses `stream[1]` between its halves. No op after the
    /// last layer's attention reads another row, so from there on only the rows that feed logits are computed.
    fn layer(&mut self, index: usize, stream: &mut [u32; STREAM]) -> Result<()> {
        let d = self.decoder;
        let layer = &d.layers[index];
        let mut attended = self.attention(index, layer, stream[0])?;
        let q_width = layer.heads * layer.head_dim;
        if index + 1 == d.layers.len() {
            attended = self.choose((attended, q_width), stream)?;
        }
        let output = vec![self.rows(Slot::Output, index, d.hidden)];
        let output = self.matrix(&format!("layers.{index}.output"), output, q_width);
        self.join(
            layer,
            (attended, q_width),
            output,
            *stream,
            (index, "post_attention_norm", Slot::PostAttentionNorm, None),
        )?;
        stream.swap(0, 1);

        let gated = self.perceptron(index, layer, stream[0])?;
        let down = vec![self.rows(Slot::Down, index, d.hidden)];
        let down = self.matrix(&format!("layers.{index}.down"), down, layer.intermediate);
        let scalar = layer.scaled.then(|| self.scalar_weight(index));
        self.join(
            layer,
            (gated, layer.intermediate),
            down,
            *stream,
            (index, "post_mlp_norm", Slot::PostMlpNorm, scalar),
        )?;
        stream.swap(0, 1);
        Ok(())
    }

    /// Copies the rows of `x` and of the stream that feed logits; the next ops compute only these. Returns the copy of `x`.
    fn choose(&mut self, (x, width): (u32, u32), stream: &mut [u32; STREAM]) -> Result<u32> {
        let hidden = self.decoder.hidden;
        self.rows = RowSet::Selected;
        let chosen = [0; STREAM].map(|_: u32| self.buffer(hidden, Dtype::F32, RowSet::Selected));
        let out = self.buffer(width, Dtype::Act, RowSet::Selected);
        let k = self.bind("gather", &[("K", int(width)), ("H", int(hidden))], Vec::new())?;
        self.push_rowwise(k, vec![x, stream[0]], vec![out, chosen[0]]);
        *stream = chosen;
        Ok(out)
    }

    /// Norm, fused projection, cache store and attention; returns the heads' outputs.
    fn attention(&mut self, index: usize, layer: &Layer, input: u32) -> Result<u32> {
        let d = self.decoder;
        let normed = self.enter(layer, &format!("layers.{index}.attention_norm"), Slot::AttentionNorm, index, input)?;
        let packed = layer.projection();
        let qkv = self.project(index, layer, packed.heads * layer.head_dim, normed)?;

        let cache = match layer.cache_of {
            Some(earlier) => self.cache_of_layer[earlier],
            None => self.store(index, layer, &packed, qkv)?,
        };
        self.cache_of_layer.push(cache);

        let normed = layer.qk_norm == QkNorm::Heads;
        let eps = if normed { d.eps } else { 0.0 };
        let mut weights = self.rope_weights(&layer.rope);
        weights.push(self.head_norm("q_norm", Slot::QueryNorm, index, layer));
        let dims = [
            ("HEADS", int(layer.heads)),
            ("HALF", int(layer.head_dim / 2)),
            ("PACKED", int(packed.heads)),
            ("FIRST", int(0)),
            ("NORM", int(normed as u32)),
            ("EPS", Const::Float(eps)),
        ];
        let k = self.bind("rope_q", &dims, weights)?;
        let q = self.scratch(layer.heads * layer.head_dim, qkv);
        self.push_rowwise(k, vec![qkv], vec![q]);

        let k = self.attend(layer)?;
        let out = self.scratch(layer.heads * layer.head_dim, q);
        self.ops.push(Op::Attend { k, q, layer: cache, out, window: layer.window });
        Ok(out)
    }

    /// The fused projection to queries, keys and values, with its bias and the norms of whole queries and keys.
    fn project(&mut self, index: usize, layer: &Layer, width: u32, input: u32) -> Result<u32> {
        let hidden = self.decoder.hidden;
        let parts = self.qkv(index, layer, [Slot::Query, Slot::Key, Slot::Value]);
        let weight = self.matrix(&format!("layers.{index}.qkv"), parts, hidden);
        let qkv = match layer.qkv_bias {
            false => self.linear((input, hidden), weight, width)?,
            true => {
                let parts = self.qkv(index, layer, [Slot::QueryBias, Slot::KeyBias, Slot::ValueBias]);
                let bias = self.vector(&format!("layers.{index}.qkv_bias"), parts, 0.0, 1.0);
                let k = self.bind("linear_bias", &[("K", int(hidden)), ("N", int(width))], vec![weight, bias])?;
                let out = self.scratch(width, input);
                self.push_rowwise(k, vec![input], vec![out]);
                out
            }
        };
        if layer.qk_norm != QkNorm::Whole {
            return Ok(qkv);
        }
        let (q, kv) = (layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim);
        let weights = vec![
            self.norm_weight(&format!("layers.{index}.q_norm"), Slot::QueryNorm, index, q),
            self.norm_weight(&format!("layers.{index}.k_norm"), Slot::KeyNorm, index, kv),
        ];
        let dims = [("Q", int(q)), ("KV", int(kv)), ("STRIDE", int(width)), ("EPS", Const::Float(self.decoder.eps))];
        let k = self.bind("norm_qk", &dims, weights)?;
        let out = self.scratch(width, qkv);
        self.push_rowwise(k, vec![qkv], vec![out]);
        Ok(out)
    }

    /// Rows of the projection, queries first, from three tensors or from one that has them all.
    fn qkv(&self, index: usize, layer: &Layer, slots: [Slot; 3]) -> Vec<MatrixPart> {
        let (q, kv) = ((layer.heads * layer.head_dim) as usize, (layer.kv_heads * layer.head_dim) as usize);
        let rotary = layer.rope.rotary;
        let order =
            HeadRows { size: layer.head_dim as usize, rotary: rotary as usize, interleaved: self.decoder.permuted };
        // Heads that rotate whole or not at all are in the kernels' order.
        let moved = order.interleaved || (rotary > 0 && rotary < layer.head_dim);
        let heads = moved.then_some(order);
        let count = match (layer.cache_of, layer.keys_as_values) {
            (Some(_), _) => 1,
            (None, true) => 2,
            (None, false) => 3,
        };
        let places = [(0, q, heads), (q, kv, heads), (q + kv, kv, None)];
        let part = |(slot, (first, rows, heads)): (Slot, (usize, usize, Option<HeadRows>))| match layer.fused_qkv {
            true => MatrixPart { tensor: self.tensor(Slot::Qkv, index), of: q + 2 * kv, first, rows, heads },
            false => MatrixPart { heads, ..MatrixPart::whole(self.tensor(slot, index), rows) },
        };
        slots.into_iter().zip(places).take(count).map(part).collect()
    }

    /// Declares the layer's cache and stores its keys and values there.
    fn store(&mut self, index: usize, layer: &Layer, packed: &Projection, qkv: u32) -> Result<u32> {
        let group = self.group(layer);
        let cache = self.layers.len() as u32;
        self.layers.push(LayerDecl { group });
        // The temperature multiplies queries only.
        let mut weights = self.rope_weights(&Rope { temperature: None, ..layer.rope.clone() });
        let normed = layer.qk_norm == QkNorm::Heads;
        weights.push(self.head_norm("k_norm", Slot::KeyNorm, index, layer));
        let eps = if normed || layer.v_norm { self.decoder.eps } else { 0.0 };
        let dims = [
            ("KV_HEADS", int(layer.kv_heads)),
            ("HALF", int(layer.head_dim / 2)),
            ("PAGE", int(vosti_core::PAGE as u32)),
            ("PACKED", int(packed.heads)),
            ("K_FIRST", int(packed.k_first)),
            ("V_FIRST", int(packed.v_first)),
            ("NORM", int(normed as u32)),
            ("V_NORM", int(layer.v_norm as u32)),
            ("EPS", Const::Float(eps)),
        ];
        let k = self.bind("store_kv", &dims, weights)?;
        self.ops.push(Op::StoreKv { k, ins: vec![qkv], layer: cache });
        Ok(cache)
    }

    /// Norm and gated linear unit; returns the unit's output.
    fn perceptron(&mut self, index: usize, layer: &Layer, input: u32) -> Result<u32> {
        let d = self.decoder;
        let normed = self.enter(layer, &format!("layers.{index}.mlp_norm"), Slot::MlpNorm, index, input)?;
        let parts = match layer.fused_perceptron {
            true => vec![self.rows(Slot::GateUp, index, 2 * layer.intermediate)],
            false => [Slot::Gate, Slot::Up].map(|slot| self.rows(slot, index, layer.intermediate)).to_vec(),
        };
        let weight = self.matrix(&format!("layers.{index}.gate_up"), parts, d.hidden);
        let activation = match layer.activation {
            Activation::Silu => 0,
            Activation::GeluTanh => 1,
        };
        let dims = [("K", int(d.hidden)), ("N", int(layer.intermediate)), ("ACT", int(activation))];
        let k = self.bind("linear_glu", &dims, vec![weight])?;
        let out = self.scratch(layer.intermediate, normed);
        self.push_rowwise(k, vec![normed], vec![out]);
        Ok(out)
    }

    /// Projects the result of attention or perceptron and adds it to the stream: `stream[1] = stream[0] + f(x)`.
    fn join(
        &mut self,
        layer: &Layer,
        (x, width): (u32, u32),
        weight: String,
        stream: [u32; STREAM],
        (index, norm, slot, scalar): (usize, &str, Slot, Option<String>),
    ) -> Result<()> {
        let d = self.decoder;
        if !layer.post_norms {
            let dims = [("K", int(width)), ("N", int(d.hidden)), ("SCALE", Const::Float(layer.residual_scale))];
            let k = self.bind("linear_add", &dims, vec![weight])?;
            self.push_rowwise(k, vec![x, stream[0]], vec![stream[1]]);
            return Ok(());
        }
        let projected = self.linear((x, width), weight, d.hidden)?;
        let mut weights = vec![self.norm_weight(&format!("layers.{index}.{norm}"), slot, index, d.hidden)];
        let kernel = if scalar.is_some() { "rmsnorm_add_scaled" } else { "rmsnorm_add" };
        weights.extend(scalar);
        let k = self.bind(kernel, &self.norm_dims(), weights)?;
        self.push_rowwise(k, vec![stream[0], projected], vec![stream[1]]);
        Ok(())
    }

    /// The input of attention or perceptron: the norm of the residual stream, or the stream itself in the activations' type.
    fn enter(&mut self, layer: &Layer, name: &str, slot: Slot, index: usize, input: u32) -> Result<u32> {
        let hidden = self.decoder.hidden;
        if layer.pre_norms {
            let weight = self.norm_weight(name, slot, index, hidden);
            return self.norm(weight, input);
        }
        let k = self.bind("round_stream", &[("H", int(hidden))], Vec::new())?;
        let out = self.scratch(hidden, input);
        self.push_rowwise(k, vec![input], vec![out]);
        Ok(out)
    }

    fn norm(&mut self, weight: String, input: u32) -> Result<u32> {
        let k = self.bind("rmsnorm", &self.norm_dims(), vec![weight])?;
        let out = self.scratch(self.decoder.hidden, input);
        self.push_rowwise(k, vec![input], vec![out]);
        Ok(out)
    }

    fn linear(&mut self, (x, k): (u32, u32), weight: String, n: u32) -> Result<u32> {
        let binding = self.bind("linear", &[("K", int(k)), ("N", int(n))], vec![weight])?;
        let out = self.scratch(n, x);
        self.push_rowwise(binding, vec![x], vec![out]);
        Ok(out)
    }

    fn push_rowwise(&mut self, k: u32, ins: Vec<u32>, outs: Vec<u32>) {
        self.ops.push(Op::Rowwise { k, ins, outs, rows: self.rows });
    }

    fn norm_dims(&self) -> [(&'static str, Const); 2] {
        [("H", int(self.decoder.hidden)), ("EPS", Const::Float(self.decoder.eps))]
    }

    /// The cache group of layers with this window and shape.
    fn group(&mut self, layer: &Layer) -> u32 {
        let same =
            |g: &GroupDecl| g.window == layer.window && g.kv_heads == layer.kv_heads && g.head_dim == layer.head_dim;
        let found = self.groups.iter().position(same).unwrap_or_else(|| {
            self.groups.push(GroupDecl { window: layer.window, kv_heads: layer.kv_heads, head_dim: layer.head_dim });
            self.groups.len() - 1
        });
        found as u32
    }
}

/// Buffers. Layers of one width share scratch buffers, so that a model has a few of them and not a few for each layer.
impl Builder<'_> {
    fn buffer(&mut self, width: u32, dtype: Dtype, rows: RowSet) -> u32 {
        self.buffers.push(BufferDecl { width, dtype, rows });
        self.buffers.len() as u32 - 1
    }

    /// A buffer of this width that is neither the residual stream nor the op's input.
    fn scratch(&mut self, width: u32, input: u32) -> u32 {
        let fits = |(i, b): &(usize, &BufferDecl)| {
            *i as u32 != input && b.width == width && b.dtype == Dtype::Act && b.rows == self.rows
        };
        match self.buffers.iter().enumerate().find(fits) {
            Some((i, _)) => i as u32,
            None => self.buffer(width, Dtype::Act, self.rows),
        }
    }
}

/// Kernels and weights.
impl Builder<'_> {
    /// The index of the binding of one kernel to weights; equal bindings share an index.
    fn bind(&mut self, kernel: &str, dims: &[(&str, Const)], weights: Vec<String>) -> Result<u32> {
        let spec = self.spec(kernel, dims)?;
        let higher = vosti_kernels::higher(self.target.name, &spec)?;
        let launches = vec![Launch { spec, higher, weights }];
        Ok(self.binding(Binding { launches, scratch: vec![] }))
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

    /// The binding of a layer's attention. Keys are split if the layer has no window.
    fn attend(&mut self, layer: &Layer) -> Result<u32> {
        let [kv_heads, d] = [("KV_HEADS", int(layer.kv_heads)), ("D", int(layer.head_dim))];
        let group = ("GROUP", int(layer.heads / layer.kv_heads.max(1)));
        let page = ("PAGE", int(vosti_core::PAGE as u32));
        let dims = [&[kv_heads, group, d, page], &vosti_kernels::scores(layer.scale, layer.softcap)[..]].concat();
        let dims = [&dims[..], &vosti_kernels::window(layer.window)[..]].concat();
        match layer.window {
            Some(_) => self.bind("attend", &dims, Vec::new()),
            None => {
                let part = self.spec("attend", &dims)?;
                let combine = self.spec("attend_combine", &[("HEADS", int(layer.heads)), kv_heads, d])?;
                Ok(self.binding(Binding::split(part, combine)?))
            }
        }
    }

    fn tensor(&self, slot: Slot, index: usize) -> String {
        let post_norms = self.decoder.layers.get(index).is_some_and(|l| l.post_norms);
        tensor_name(self.decoder.naming, slot, index, post_norms)
    }

    /// All rows of a tensor.
    fn rows(&self, slot: Slot, index: usize, rows: u32) -> MatrixPart {
        MatrixPart::whole(self.tensor(slot, index), rows as usize)
    }

    fn matrix(&mut self, name: &str, parts: Vec<MatrixPart>, columns: u32) -> String {
        self.weights.insert(name.to_string(), Recipe::Matrix { parts, columns: columns as usize });
        name.to_string()
    }

    fn vector(&mut self, name: &str, parts: Vec<MatrixPart>, offset: f32, divisor: f32) -> String {
        self.weights.insert(name.to_string(), Recipe::Vector { parts, offset, divisor });
        name.to_string()
    }

    fn norm_weight(&mut self, name: &str, slot: Slot, index: usize, length: u32) -> String {
        let parts = vec![self.rows(slot, index, length)];
        self.vector(name, parts, self.decoder.norm_offset, 1.0)
    }

    fn scalar_weight(&mut self, index: usize) -> String {
        let name = format!("layers.{index}.scalar");
        let tensor = self.tensor(Slot::LayerScalar, index);
        self.weights.insert(name.clone(), Recipe::Repeat { tensor, length: self.decoder.hidden as usize });
        name
    }

    /// The weight of a norm of each head; zeros that the kernel does not read if heads have no norm.
    fn head_norm(&mut self, name: &str, slot: Slot, index: usize, layer: &Layer) -> String {
        if layer.qk_norm == QkNorm::Heads {
            return self.norm_weight(&format!("layers.{index}.{name}"), slot, index, layer.head_dim);
        }
        let name = format!("unread.{}", layer.head_dim);
        self.weights.insert(name.clone(), Recipe::Unread { length: layer.head_dim as usize });
        name
    }

    /// Cosine and sine tables, shared by every layer with the same embedding.
    fn rope_weights(&mut self, rope: &Rope) -> Vec<String> {
        let index = self.ropes.iter().position(|r| r == rope).unwrap_or_else(|| {
            self.ropes.push(rope.clone());
            self.ropes.len() - 1
        });
        let positions = self.context as usize;
        [("cos", false), ("sin", true)]
            .map(|(what, sine)| {
                let name = format!("rope.{index}.{what}");
                let recipe = Recipe::Rope { rope: rope.clone(), positions, sine };
                self.weights.insert(name.clone(), recipe);
                name
            })
            .to_vec()
    }
}

fn int(value: u32) -> Const {
    Const::Int(value.into())
}
