"""The lm head: logits in FP32, softly capped to (-CAP, CAP) if CAPPED is 1.

Then SPAN is 2 CAP, and SLOPE is 2 / CAP times the logits' scale (`scores.rs`).
"""
import triton
import triton.language as tl
from product import plus, start, upright


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# text = ["BK", "SWAP"]
# [params]
# x = "in 0"
# rows = "rows"
# w = "weight 0"
# out = "out 0 f32"
# K = "dim 1..1048576"
# N = "dim 1..2097152"
# CAPPED = "dim 0..1"
# SLOPE = "number"
# CAP = "number"
# SPAN = "number"
# [shapes]
# x = ["rows", "K"]
# w = ["N", "K"]
# out = ["rows", "N"]
# ///
@triton.jit
def linear_logits(x, rows, w, out, K, N, CAPPED, SLOPE, CAP, SPAN, BM: tl.constexpr, BN: tl.constexpr,
                  BK: tl.constexpr, SWAP: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    x_tile = tl.make_block_ptr(x, (m, K), (K, 1), (row, 0), (BM, BK), (1, 0))
    w_tile = tl.make_block_ptr(w, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    acc = start(BM, BN, SWAP)
    for _ in range(0, K, BK):
        a = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(w_tile, boundary_check=(0, 1), padding_option="zero")
        acc = plus(acc, a, b, SWAP)
        x_tile = tl.advance(x_tile, (0, BK))
        w_tile = tl.advance(w_tile, (BK, 0))
    if CAPPED == 1:  # c * tanh(x / c) = c - 2c / (exp(2x / c) + 1)
        acc = CAP - SPAN / (tl.exp(acc * SLOPE) + 1.0)
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, upright(acc, SWAP), boundary_check=(0, 1))
