//! The numbers by which kernels get a scale, a soft cap and a window.
//!
//! This module multiplies a model's numbers in FP64, and a text's binding rounds each product to FP32, once. A kernel that
//! multiplied them itself would round each factor, and a model's bits would change. Read next: `kernels/online_softmax.py`.

use std::f64::consts::LOG2_E;
use vosti_contract::{Const, USE};

/// The constant `CAPPED` and the numbers `SLOPE`, `CAP` and `SPAN` of `softcap tanh(slope x / softcap)`, which kernels compute as
/// `CAP - SPAN / (exp(SLOPE x) + 1)`, or of `slope x` if `softcap` is 0.
pub fn capped(softcap: f64, slope: f64) -> [(&'static str, Const); 4] {
    let capped = softcap > 0.0;
    let slope = if capped { 2.0 * slope / softcap } else { slope };
    let numbers = [("SLOPE", slope), ("CAP", softcap), ("SPAN", 2.0 * softcap)];
    let [slope, cap, span] = numbers.map(|(name, value)| (name, Const::Float(value)));
    [("CAPPED", Const::Int(capped.into())), slope, cap, span]
}

/// The same constants for attention's scores: `scale` times a dot product, times log2(e), because the exponentials are powers
/// of two.
pub fn scores(scale: f64, softcap: f64) -> [(&'static str, Const); 4] {
    capped(softcap, scale * LOG2_E)
}

/// The dimensions by which attention sees a window of `keys` keys, or all keys. Without a window no kernel reads WINDOW, and it
/// is 1.
pub fn window(keys: Option<u32>) -> [(&'static str, Const); 2] {
    [(USE, Const::Int(keys.is_some().into())), ("WINDOW", Const::Int(keys.unwrap_or(1).into()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bits are those that Triton's front end folds out of `SCALE * LOG2E` and `2.0 * LOG2E * SCALE / SOFTCAP`.
    #[test]
    fn numbers_have_the_bits_that_a_text_made_of_constants_has() {
        let bits = |scale, softcap| {
            scores(scale, softcap).map(|(_, value)| match value {
                Const::Int(v) => v as u32,
                Const::Float(v) => (v as f32).to_bits(),
            })
        };
        assert_eq!(bits(0.125, 0.0), [0, 0x3e38aa3b, 0, 0]);
        assert_eq!(bits(0.08838834764831845, 0.0), [0, 0x3e0293ee, 0, 0]);
        assert_eq!(bits(0.07715167498104596, 0.0), [0, 0x3de3f494, 0, 0]);
        assert_eq!(bits(0.2041241452319315, 0.0), [0, 0x3e96c740, 0, 0]);
        let [two, four] = [2.0f32, 4.0].map(f32::to_bits);
        assert_eq!(bits(0.25, 2.0), [1, 0x3eb8aa3b, two, four]);
    }

    #[test]
    fn the_numbers_are_those_of_a_hyperbolic_tangent() {
        for (cap, scale, x) in [(30.0, 1.0, 17.5), (50.0, 0.0625, -400.0), (2.0, 0.25, 0.5)] {
            let [slope, c, span] = [1, 2, 3].map(|at| match capped(cap, scale)[at].1 {
                Const::Float(value) => value,
                Const::Int(value) => panic!("{value}"),
            });
            let gave = c - span / ((slope * x).exp() + 1.0);
            assert!((gave - cap * (scale * x / cap).tanh()).abs() < 1e-12 * cap, "{gave}");
        }
    }
}
