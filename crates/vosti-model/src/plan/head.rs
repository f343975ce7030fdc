//! Both ends of the forward pass: tokens to the residual stream, and the stream to logits.

use vosti_contract::Const;
use vosti_core::{BufferDecl, Dtype, Op, RowSet};
use vosti_kernels::{Draws, capped};

use super::{Builder, STREAM, int};
use crate::error::Result;
use crate::tensor_names::Slot;

/// Logits of a list, a power of two: the largest `top_k` of published models (Gemma's 64, Qwen's 20; 40 and 50 are common).
const LISTED: u32 = 64;
/// Columns of a row that one program reads which draws a token of them.
const DRAW_PART: u32 = 2048;
/// Columns of a row that one program of the list kernel reads.
pub(crate) const LIST_PART: u32 = 4096;
/// Both, for a row of at most this many columns.
const FEW: u32 = 256;

impl Builder<'_> {
    /// Emits the embedding; returns the residual stream.
    pub(super) fn embed(&mut self) -> Result<[u32; STREAM]> {
        let d = self.decoder;
        let embed = self.matrix("embed", vec![self.rows(Slot::Embed, 0, d.vocab)], d.hidden);
        let dims = [("V", int(d.vocab)), ("H", int(d.hidden)), ("SCALE", Const::Float(d.embed_scale))];
        let k = self.bind("embed", &dims, vec![embed])?;
        let stream = [0; STREAM].map(|_: u32| self.buffer(d.hidden, Dtype::F32, RowSet::All));
        self.ops.push(Op::Embed { k, out: stream[0] });
        Ok(stream)
    }

    /// Emits the final norm, the logits, each row's best token and, if the target wants them, lists and draws. Returns the logits.
    pub(super) fn head(&mut self, stream: u32) -> Result<u32> {
        let d = self.decoder;
        let weight = vec![self.rows(Slot::FinalNorm, 0, d.hidden)];
        let weight = self.vector("w", "final_norm", weight, d.norm_offset, d.logits_divisor);
        let (name, slot) = if d.tied { ("embed", Slot::Embed) } else { ("head", Slot::Head) };
        let head = self.factor(name, vec![self.rows(slot, 0, d.vocab)], d.hidden);
        let normed = self.norm(weight, stream, &head)?;
        let ins = self.factors((normed, d.hidden), &head)?;
        let logits = self.buffer(d.vocab, Dtype::F32, RowSet::Selected);
        let k =
            self.bind_product("linear_logits", (&head, d.hidden, d.vocab), &capped(d.final_softcap, 1.0), vec![])?;
        self.push_rowwise(k, ins, vec![logits]);
        let best = self.buffer(1, Dtype::F32, RowSet::Selected);
        let k = self.bind("argmax", &[("V", int(d.vocab))], Vec::new())?;
        self.push_rowwise(k, vec![logits], vec![best]);
        if self.target.choices {
            self.lists(logits)?;
            self.draws(logits)?;
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

    /// Makes what draws a token of each row, in two ops: one of each part, and the part. No buffer or op of the program comes after it.
    fn draws(&mut self, logits: u32) -> Result<()> {
        let vocab = self.decoder.vocab;
        let part = if vocab <= FEW { FEW } else { DRAW_PART };
        let parts = vocab.div_ceil(part);
        let first = self.buffers.len() as u32;
        let [scale, pick, within, largest, sums, tokens, drawn] = std::array::from_fn(|i| first + i as u32);
        let buffer = |width| BufferDecl { width, dtype: Dtype::F32, rows: RowSet::Selected };
        let row = |k, ins: &[u32], outs: &[u32]| Op::Rowwise {
            k,
            ins: ins.into(),
            outs: outs.into(),
            rows: RowSet::Selected,
        };
        let of_parts = [("V", int(vocab)), ("PARTS", int(parts)), ("PART", int(part))];
        let of_parts = self.bind_as("draw_part", self.target.act, &of_parts, Vec::new())?;
        let of_row = self.bind_as("draw_combine", self.target.act, &[("PARTS", int(parts))], Vec::new())?;
        self.draws = Some(Draws {
            buffers: [1, 1, 1, parts, parts, parts, 1].map(buffer).to_vec(),
            ops: vec![
                row(of_parts, &[logits, scale, within], &[largest, sums, tokens]),
                row(of_row, &[largest, sums, tokens, scale, pick], &[drawn]),
            ],
            numbers: [scale, pick, within],
            tokens: drawn,
        });
        Ok(())
    }
}
