//! Keys, values and log-decays of layers with a state, whose sums have one value in every order.
//!
//! A store of a delta rule adds, along an axis, the products of a row's key with the keys of its page and with the
//! state, and the weighted values of the page. Here
//! - a key has at most two numbers that are not zero, and each of its places is not zero in at most two rows of a page.
//!   So a row's key meets those of two other rows, and none of these sums has more than two terms that are not zero: it
//!   is rounded once;
//! - the key of a page's last row is zero, so that its sums are, and where a step has no other row of the page, the
//!   keys of earlier steps are dense: so the product at the page's end has all of its terms;
//! - log-decays fall along a page, so that no weight grows.
//!
//! Matrix products of FP32 numbers are no such sums: their order is tile IR's. Where a kernel has no other sums, keys
//! are dense.

use crate::case::Random;
use crate::step::int;
use vosti_kernels::Spec;

/// How much a log-decay falls at a position, at most.
const FALL: f32 = 0.125;

/// Dimensions of a state and its page.
pub(crate) struct States {
    /// Numbers of a key.
    key: usize,
    page: usize,
    /// The places of a key that are not zero, for each place of a page; none: all places.
    hot: Option<Vec<Vec<usize>>>,
}

impl States {
    pub fn new(spec: &Spec, random: &mut Random) -> States {
        let size = |name: &str| int(spec, name).map_or(1, |value| value.max(1) as usize);
        let (key, page) = (size("DK"), size("PAGE"));
        let hot = (spec.kernel == "store_delta").then(|| {
            let mut left = vec![2u32; key];
            let mut place = |at: usize| {
                if at == page - 1 {
                    return vec![];
                }
                let wanted = [random.below(key), random.below(key)];
                wanted
                    .into_iter()
                    .filter(|at| left[*at].checked_sub(1).map(|rest| left[*at] = rest).is_some())
                    .collect()
            };
            (0..page).map(&mut place).collect()
        });
        States { key, page, hot }
    }

    /// Keys of rows at these places of their pages, each of so many heads; of some, all numbers are arbitrary.
    pub fn keys(&self, places: impl Iterator<Item = (usize, bool)>, heads: usize, random: &mut Random) -> Vec<f32> {
        let mut keys = vec![];
        for (place, dense) in places {
            for at in (0..heads).flat_map(|_| 0..self.key) {
                let live = dense || self.hot.as_ref().is_none_or(|hot| hot[place].contains(&at));
                keys.push(if live { random.unit() } else { 0.0 });
            }
        }
        keys
    }

    /// `[.., page]`: log-decays since a page began.
    pub fn decays(&self, many: usize, random: &mut Random) -> Vec<f32> {
        (0..many).map(|i| -FALL * ((i % self.page) as f32 + 1.0 + random.unit() / 2.0)).collect()
    }

    /// A row's own log-decay.
    pub fn decay(random: &mut Random) -> f32 {
        FALL * (random.unit() - 1.0)
    }

    /// The number, or once in a while one that is not finite, or the next one of FP32 above the largest BF16, which is rounded to
    /// that.
    pub fn or_not_finite(number: f32, seldom: usize, random: &mut Random) -> f32 {
        match random.below(seldom) {
            0 => f32::NAN,
            1 => f32::INFINITY,
            2 => f32::NEG_INFINITY,
            3 => f32::from_bits(0x7f7f_0001),
            _ => number,
        }
    }
}
