//! The ops of attention: projection, cache store, rotation and attention itself.

use vosti_contract::Const;
use vosti_core::{GroupDecl, Op, PartDecl};
use vosti_kernels::Binding;

use super::{Builder, Factor, Output, STREAM, int};
use crate::decoder::{Attention, QkNorm, Rope};
use crate::error::Result;
use crate::recipe::{HeadRows, MatrixPart, Order, Recipe};
use crate::tensor_names::Slot;

/// The heads in a row of a layer's fused projection: their number, the first key head, the first value head and the first gate, if
/// there are gates.
struct Projection {
    heads: u32,
    k_first: u32,
    v_first: u32,
    gate_first: u32,
}

impl Attention {
    fn projection(&self) -> Projection {
        let (q, kv) = (self.heads, self.kv_heads);
        let (gate_first, k_first, v_first) = match (self.cache_of, self.keys_as_values) {
            (Some(_), _) => (q, 0, 0),
            (None, true) => (q + kv, q, q),
            (None, false) => (q + 2 * kv, q, q + kv),
        };
        let gates = if self.output_gate { q } else { 0 };
        Projection { heads: gate_first + gates, k_first, v_first, gate_first }
    }

    /// Columns of all query heads.
    fn width(&self) -> u32 {
        self.heads * self.head_dim
    }
}

impl Builder<'_> {
    /// Emits fused projection, cache store and attention. `input` is normed; the output has the heads' results.
    pub(super) fn attention(
        &mut self,
        index: usize,
        attention: &Attention,
        (input, qkv): (u32, Factor),
    ) -> Result<Output> {
        let packed = attention.projection();
        let qkv = self.project(index, attention, packed.heads * attention.head_dim, (input, qkv))?;

        let (cache, q) = match attention.cache_of {
            Some(earlier) => (self.caches[&earlier], self.rotate(index, attention, &packed, qkv)?),
            None => self.rotate_and_store(index, attention, &packed, qkv)?,
        };
        self.caches.insert(index, cache);

        let k = self.attend(index, attention)?;
        let read_later = if attention.output_gate { vec![q, qkv] } else { vec![q] };
        let buffer = self.scratch(attention.width(), &read_later);
        self.ops.push(Op::Attend { k, q, layer: cache, out: buffer, window: attention.window });
        let buffer = if attention.output_gate { self.gate(attention, &packed, [buffer, qkv, q])? } else { buffer };

        let output = vec![self.rows(Slot::Output, index, self.decoder.hidden)];
        let projection = self.factor(&format!("layers.{index}.output"), output, attention.width());
        Ok(Output { buffer, width: attention.width(), projection })
    }

    /// The matrix of the fused projection.
    pub(super) fn qkv_factor(&mut self, index: usize, attention: &Attention) -> Factor {
        let parts = self.qkv(index, attention, [Slot::Query, Slot::Key, Slot::Value]);
        self.factor(&format!("layers.{index}.qkv"), parts, self.decoder.hidden)
    }

    /// The fused projection to queries, keys and values, with its bias and the norms of whole queries and keys.
    fn project(
        &mut self,
        index: usize,
        attention: &Attention,
        width: u32,
        (input, factor): (u32, Factor),
    ) -> Result<u32> {
        let hidden = self.decoder.hidden;
        let qkv = match attention.qkv_bias {
            false => self.linear((input, hidden), &factor, width)?,
            true => {
                let parts = self.qkv(index, attention, [Slot::QueryBias, Slot::KeyBias, Slot::ValueBias]);
                let bias = self.vector("bias", &format!("layers.{index}.qkv_bias"), parts, 0.0, 1.0);
                self.product("linear_bias", (input, hidden), &factor, width, vec![bias])?
            }
        };
        if attention.qk_norm != QkNorm::Whole {
            return Ok(qkv);
        }
        let (q, kv) = (attention.width(), attention.kv_heads * attention.head_dim);
        let norms = [("q_w", "q_norm", Slot::QueryNorm, q), ("k_w", "k_norm", Slot::KeyNorm, kv)];
        let weights = norms.map(|(parameter, name, slot, length)| {
            let part = MatrixPart { order: self.head_order(attention), ..self.rows(slot, index, length) };
            self.vector(parameter, &format!("layers.{index}.{name}"), vec![part], self.decoder.norm_offset, 1.0)
        });
        let dims = [("Q", int(q)), ("KV", int(kv)), ("STRIDE", int(width)), ("EPS", Const::Float(self.decoder.eps))];
        let k = self.bind("norm_qk", &dims, weights.to_vec())?;
        let out = self.scratch(width, &[qkv]);
        self.push_rowwise(k, vec![qkv], vec![out]);
        Ok(out)
    }

    /// Rows of the projection, queries first, from three tensors or from one that has them all.
    fn qkv(&self, index: usize, attention: &Attention, slots: [Slot; 3]) -> Vec<MatrixPart> {
        let (q, kv) = (attention.width() as usize, (attention.kv_heads * attention.head_dim) as usize);
        let heads = self.head_order(attention);
        let count = match (attention.cache_of, attention.keys_as_values) {
            (Some(_), _) => 1,
            (None, true) => 2,
            (None, false) => 3,
        };
        let places = [(0, q, heads), (q, kv, heads), (q + kv, kv, Order::Stored)];
        let part = |(slot, (first, rows, order)): (Slot, (usize, usize, Order))| {
            let (tensor, of) = if attention.fused_qkv { (Slot::Qkv, q + 2 * kv) } else { (slot, rows) };
            let first = if attention.fused_qkv { first } else { 0 };
            MatrixPart { first, rows, order, ..self.rows(tensor, index, of as u32) }
        };
        let mut parts: Vec<MatrixPart> = slots.into_iter().zip(places).take(count).map(part).collect();
        if attention.output_gate {
            // A head's query is followed by its gate.
            let size = attention.head_dim as usize;
            let plain = HeadRows { size, stride: size, rotary: size, interleaved: false };
            let order = match heads {
                Order::Heads(order) => order,
                _ => plain,
            };
            let twice = |order: HeadRows| Order::Heads(HeadRows { stride: 2 * size, ..order });
            (parts[0].of, parts[0].order) = (2 * q, twice(order));
            parts.push(MatrixPart { first: size, order: twice(plain), ..parts[0].clone() });
        }
        parts
    }

    /// The order of the rows of each query and key head. Heads that rotate whole or not at all are in the kernels' order.
    fn head_order(&self, attention: &Attention) -> Order {
        let (size, rotary, interleaved) =
            (attention.head_dim as usize, attention.rope.rotary as usize, self.decoder.permuted);
        let moved = interleaved || (rotary > 0 && rotary < size);
        if moved { Order::Heads(HeadRows { size, stride: size, rotary, interleaved }) } else { Order::Stored }
    }

    /// Declares the layer's cache, stores its keys and values there, and rotates its queries, in one launch. Gives the cache and the
    /// queries.
    fn rotate_and_store(
        &mut self,
        index: usize,
        attention: &Attention,
        packed: &Projection,
        qkv: u32,
    ) -> Result<(u32, u32)> {
        let part = PartDecl { heads: attention.kv_heads, width: attention.head_dim, dtype: self.target.act };
        let cache = self.cache(GroupDecl { window: attention.window, entry: vec![part; 2], state: vec![] });
        let queries = self.rotation(index, attention, &attention.rope, ("q_norm", Slot::QueryNorm));
        // The temperature multiplies queries only.
        let rope = Rope { temperature: None, ..attention.rope.clone() };
        let keys = self.rotation(index, attention, &rope, ("k_norm", Slot::KeyNorm));
        let normed = attention.qk_norm == QkNorm::Heads || attention.v_norm;
        let more = [
            ("KV_HEADS", int(attention.kv_heads)),
            ("PROGRAMS", int(attention.heads + attention.kv_heads)),
            ("PAGE", int(vosti_core::PAGE as u32)),
            ("K_FIRST", int(packed.k_first)),
            ("V_FIRST", int(packed.v_first)),
            ("V_NORM", int(attention.v_norm as u32)),
        ];
        let dims = [&self.heads(attention, packed, normed)[..], &more].concat();
        let mut launch = self.launch("rope_store", self.target.act, &dims, queries)?;
        launch.weights.extend(keys.into_iter().map(|name| (format!("k_{}", self.weights[&name].parameter), name)));
        let k = self.binding(Binding { launches: vec![launch], ..Binding::before() });
        self.ops.push(Op::StoreKv { k, ins: vec![qkv], layer: cache, back: 0 });
        let k = self.binding(Binding::before());
        let q = self.scratch(attention.width(), &[qkv]);
        self.push_rowwise(k, vec![qkv], vec![q]);
        Ok((cache, q))
    }

    /// The queries of the projection, normed and rotated.
    fn rotate(&mut self, index: usize, attention: &Attention, packed: &Projection, qkv: u32) -> Result<u32> {
        let weights = self.rotation(index, attention, &attention.rope, ("q_norm", Slot::QueryNorm));
        let dims = self.heads(attention, packed, attention.qk_norm == QkNorm::Heads);
        let k = self.bind("rope_q", &dims, weights)?;
        let q = self.scratch(attention.width(), &[qkv]);
        self.push_rowwise(k, vec![qkv], vec![q]);
        Ok(q)
    }

    /// The tables of a rotation, and the weight of the norm before it.
    fn rotation(
        &mut self,
        index: usize,
        attention: &Attention,
        rope: &Rope,
        (name, slot): (&str, Slot),
    ) -> Vec<String> {
        let mut weights = self.rope_weights(rope);
        weights.push(self.head_norm(name, slot, index, attention));
        weights
    }

    /// The dimensions of a kernel that rotates the queries. `normed`: whether it norms any heads.
    fn heads(&self, attention: &Attention, packed: &Projection, normed: bool) -> [(&'static str, Const); 6] {
        [
            ("HEADS", int(attention.heads)),
            ("HALF", int(attention.head_dim / 2)),
            ("PACKED", int(packed.heads)),
            ("FIRST", int(0)),
            ("NORM", int((attention.qk_norm == QkNorm::Heads) as u32)),
            ("EPS", Const::Float(if normed { self.decoder.eps } else { 0.0 })),
        ]
    }

    /// The binding of attention. Keys are split if there is no window, and folded in one launch if the target has room for that.
    fn attend(&mut self, index: usize, attention: &Attention) -> Result<u32> {
        let sinks = self.sinks(index, attention);
        let [kv_heads, d] = [("KV_HEADS", int(attention.kv_heads)), ("D", int(attention.head_dim))];
        let group = ("GROUP", int(attention.heads / attention.kv_heads.max(1)));
        let page = ("PAGE", int(vosti_core::PAGE as u32));
        let scores = vosti_kernels::scores(attention.scale, attention.softcap);
        let window = vosti_kernels::window(attention.window);
        let sunk = ("SINKS", int(attention.sinks.into()));
        let dims = [&[kv_heads, group, d, page, sunk], &scores[..], &window[..]].concat();
        match attention.window {
            Some(_) => self.bind("attend", &dims, vec![sinks]),
            None => {
                let part = self.launch("attend", self.target.act, &dims, vec![sinks])?;
                let combine = self.spec("attend_combine", &[kv_heads, group, d, sunk])?;
                let folds = vosti_kernels::folds(self.target.name, &part.spec)?;
                Ok(self.binding(Binding::split(part, combine, folds)?))
            }
        }
    }

    /// The sinks of a layer's heads, times log2(e); zeros that the kernel does not read if there are none.
    fn sinks(&mut self, index: usize, attention: &Attention) -> String {
        let heads = attention.heads;
        match attention.sinks {
            true => {
                let part = self.rows(Slot::Sinks, index, heads);
                self.vector("sinks", &format!("layers.{index}.sinks"), vec![part], 0.0, std::f32::consts::LN_2)
            }
            false => self.weight("sinks", &format!("unread.sinks.{heads}"), Recipe::Unread { length: heads as usize }),
        }
    }

    /// Adds the bias of the projection of attention's results to the stream: `stream[1] = stream[0] + bias`.
    pub(super) fn output_bias(&mut self, index: usize, stream: [u32; STREAM]) -> Result<()> {
        let hidden = self.decoder.hidden;
        let parts = vec![self.rows(Slot::OutputBias, index, hidden)];
        let bias = self.vector("bias", &format!("layers.{index}.output_bias"), parts, 0.0, 1.0);
        let k = self.bind("add_bias", &[("N", int(hidden))], vec![bias])?;
        self.push_rowwise(k, vec![stream[0]], vec![stream[1]]);
        Ok(())
    }

    /// Multiplies the results of the heads by the sigmoids of their gates in the projection, into another buffer than the queries':
    /// laws take these in the place of the results.
    fn gate(&mut self, attention: &Attention, packed: &Projection, [results, qkv, q]: [u32; 3]) -> Result<u32> {
        let dims = [
            ("HEADS", int(attention.heads)),
            ("D", int(attention.head_dim)),
            ("PACKED", int(packed.heads)),
            ("FIRST", int(packed.gate_first)),
        ];
        let k = self.bind("gate_heads", &dims, Vec::new())?;
        let out = self.scratch(attention.width(), &[results, qkv, q]);
        self.push_rowwise(k, vec![results, qkv], vec![out]);
        Ok(out)
    }

    /// The weight of a norm of each head; zeros that the kernel does not read if heads have no norm.
    fn head_norm(&mut self, name: &str, slot: Slot, index: usize, attention: &Attention) -> String {
        let length = attention.head_dim;
        match attention.qk_norm {
            QkNorm::Heads => {
                let part = MatrixPart { order: self.head_order(attention), ..self.rows(slot, index, length) };
                self.vector("norm_w", &format!("layers.{index}.{name}"), vec![part], self.decoder.norm_offset, 1.0)
            }
            _ => self.weight("norm_w", &format!("unread.{length}"), Recipe::Unread { length: length as usize }),
        }
    }

    /// Cosine and sine tables, shared by every layer with the same embedding.
    fn rope_weights(&mut self, rope: &Rope) -> Vec<String> {
        let index = self.ropes.iter().position(|r| r == rope).unwrap_or_else(|| {
            self.ropes.push(rope.clone());
            self.ropes.len() - 1
        });
        let positions = self.context as usize;
        let mut table = |parameter: &'static str, sine: bool| {
            let recipe = Recipe::Rope { rope: rope.clone(), positions, sine };
            self.weight(parameter, &format!("rope.{index}.{parameter}"), recipe)
        };
        vec![table("cos", false), table("sin", true)]
    }
}
