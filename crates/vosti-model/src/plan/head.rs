//! Both ends of the forward pass: tokens to the residual stream, and the stream to logits.

use vosti_contract::Const;
use vosti_core::{Dtype, Op, RowSet};
use vosti_kernels::capped;

use super::{Builder, STREAM, int};
use crate::error::Result;
use crate::tensor_names::Slot;

/// Logits of a list, a power of two: the largest `top_k` of published models (Gemma's 64, Qwen's 20; 40 and 50 are common).
const LISTED: u32 = 64;
/// Columns of a row that one program of the list kernel reads.
pub(crate) const LIST_PART: u32 = 4096;
/// The same, for a row of at most this many columns.
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

    /// Emits the final norm, the logits, each row's best token and, if the target wants them, the lists. Returns the logits.
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
}
