//! Queries, keys and values whose weights have one sum in every order.
//!
//! A softmax over a page adds 64 weights, powers of two of scores, whose sum depends on the order of its terms. Here
//! - most keys of a page are *cold*: one key that every query scores so low that its weight is 0, or 1 if no other is seen;
//! - on most pages all others are one *hot* key, whose score is above those of all earlier pages. So each has the weight 1. A place that is
//!   cold in one head is hot in the next;
//!   Where keys are seen through a window, it is one key for all pages: so the window's first keys count as much as its last, and the last
//!   key of a page is none that is cold;
//! - on every third page two others differ, which a window's hot keys are above. A sum of two weights and zeros is rounded
//!   once, in any order.
//!
//! The scale of scores and their soft cap are the kernel's own.

use crate::case::{PAGES, Random, WINDOWED};
use crate::step::int;
use vosti_contract::{Const, USE};
use vosti_kernels::Spec;

/// Dimensions of a cache and its queries.
pub(crate) struct Keys {
    heads: usize,
    page: usize,
    d: usize,
    slope: f32,
    capped: bool,
    windowed: bool,
}

impl Keys {
    pub fn new(spec: &Spec) -> Keys {
        let size = |name: &str| int(spec, name).map_or(1, |value| value.max(1) as usize);
        let slope = match spec.constants.get("SLOPE") {
            Some(Const::Float(slope)) if *slope != 0.0 => *slope as f32,
            _ => 1.0,
        };
        let d = if int(spec, "HALF").is_some() { 2 * size("HALF") } else { size("D") };
        let capped = int(spec, "CAPPED") == Some(1);
        let windowed = int(spec, USE) == Some(WINDOWED);
        Keys { heads: size("KV_HEADS"), page: size("PAGE"), d, slope, capped, windowed }
    }

    /// Numbers of so many pages.
    pub fn many(&self, pages: usize) -> usize {
        pages * self.heads * self.page * self.d
    }

    /// `[pages, heads, page, d]`: any numbers.
    pub fn any(&self, random: &mut Random) -> Vec<f32> {
        (0..self.many(PAGES)).map(|_| random.float()).collect()
    }

    /// `[rows, .., d]`: the first number of each head is from 1 to 1.25.
    pub fn queries(&self, many: usize, random: &mut Random) -> Vec<f32> {
        let number = |i: usize, random: &mut Random| match i % self.d {
            0 => 1.125 + random.unit() / 8.0,
            _ => random.unit(),
        };
        (0..many).map(|i| number(i, random)).collect()
    }

    /// `[pages, heads, page, d]`.
    pub fn keys(&self, random: &mut Random) -> Vec<f32> {
        let mut keys = Vec::with_capacity(self.many(PAGES));
        let all: Vec<Vec<f32>> = (0..self.heads).map(|_| self.key(self.level(1), random)).collect();
        let mut warm = vec![];
        for (page, head) in (0..PAGES).flat_map(|page| (0..self.heads).map(move |head| (page, head))) {
            let (cold, hot) = (self.key(self.cold(), random), self.key(self.level(page), random));
            let hot = if self.windowed { all[head].clone() } else { hot };
            warm = match head {
                0 => (0..self.page).map(|_| random.below(2) == 0).collect(),
                _ => warm.into_iter().map(|warm: bool| !warm).collect(),
            };
            let last = self.page - 1;
            let pair = [random.below(self.page), if self.windowed { last } else { random.below(self.page) }];
            for (place, warm) in warm.iter().enumerate() {
                match page % 3 {
                    2 if pair.contains(&place) && self.windowed => keys.extend(self.key(self.level(0), random)),
                    2 if pair.contains(&place) => keys.extend(self.key(self.level(page), random)),
                    2 => keys.extend(&cold),
                    _ if self.windowed && place == last => keys.extend(&hot),
                    _ => keys.extend(if *warm { &hot } else { &cold }),
                }
            }
        }
        keys
    }

    /// What a page's hot keys score, as an exponent of two (with a cap, before it).
    fn level(&self, page: usize) -> f32 {
        if self.capped { 5.0 + 0.4 * page as f32 } else { 3.0 * page as f32 }
    }

    fn cold(&self) -> f32 {
        if self.capped { -60.0 } else { -400.0 }
    }

    /// A key that is scored about `level`: most of it by the queries' first number, a little by the others.
    fn key(&self, level: f32, random: &mut Random) -> Vec<f32> {
        let little = if self.capped { 0.05 } else { 0.3 } / (self.slope * 0.34 * (self.d as f32).sqrt());
        let rest = (1..self.d).map(|_| random.unit() * little);
        std::iter::once(level / self.slope).chain(rest).collect()
    }
}
