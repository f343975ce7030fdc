//! What a reduction of booleans, or of zeros and ones, is.

use super::{Env, Run};
use crate::quantify::{Mask, Witnessed, some_lane};
use crate::term::{Node, Term, Terms};
use vosti_tile::{Binary, Value};

impl Run<'_> {
    /// Reductions of booleans, and of numbers that are one of two constants, chosen by a mask.
    pub(super) fn reduce(
        &mut self,
        t: &mut Terms,
        f: Binary,
        x: Value,
        axis: usize,
        idx: &[Term],
        env: &Env,
    ) -> Option<Term> {
        use Binary::*;
        if f.is_float() || !matches!(f, Or | And | MaxS | MinS | MaxU | MinU | Add) {
            return None;
        }
        let n = self.shape(x)[axis] as i128;
        let since = t.mark();
        let lane = t.fresh("any", (Some(0), Some(n - 1)));
        let mut lanes = idx.to_vec();
        lanes.insert(axis, lane);
        let value = self.int(t, x, &lanes, env).ok()?;
        let mask = Mask { value, lane, n, since };
        if t.is_bool(value) {
            return match f {
                Or | MaxU => self.some_lane(t, mask),
                And | MinU => self.every_lane(t, mask),
                _ => None, // a true i1 is -1 to a signed maximum
            };
        }
        let Node::Ite(chosen, yes, no) = *t.node(value) else {
            return None;
        };
        let (a, b) = (t.as_int(yes)?, t.as_int(no)?);
        let mask = Mask { value: chosen, ..mask };
        if matches!(f, Add) {
            // A sum of ones and zeros is 0, or lies between 1 and the number of lanes.
            let some = ((a, b) == (1, 0)).then(|| self.some_lane(t, mask))??;
            let count = t.fresh(&format!("count@{}", self.world.side), (Some(1), Some(n)));
            return Some(t.ite(some, count, no));
        }
        // Unsigned orders and bitwise operations are the signed order on 0 and 1.
        if !matches!(f, MaxS | MinS) && !matches!((a, b), (1, 0) | (0, 1)) {
            return None;
        }
        let largest = matches!(f, MaxS | MaxU | Or);
        let wins = if (a > b) == largest { self.some_lane(t, mask) } else { self.every_lane(t, mask) };
        Some(t.ite(wins?, yes, no))
    }

    /// Whether some lane of a mask is set. None: the mask is no function of its lane.
    fn some_lane(&mut self, t: &mut Terms, mask: Mask) -> Option<Term> {
        let exact = some_lane(t, mask)?;
        Some(exact.unwrap_or_else(|| {
            let is = t.fresh_bool(&format!("some@{}", self.world.side));
            self.witnessed.push(Witnessed { is, mask });
            is
        }))
    }

    fn every_lane(&mut self, t: &mut Terms, mask: Mask) -> Option<Term> {
        let value = t.not(mask.value);
        let some = self.some_lane(t, Mask { value, ..mask })?;
        Some(t.not(some))
    }
}
