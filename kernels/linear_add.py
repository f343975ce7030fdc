"""A linear layer times a factor, added to the residual stream: `out = residual + x w^T * SCALE`, in FP32, never rounded to BF16.

SCALE is 1 except in Granite, which multiplies each half of a layer by a factor. A product with 1 has the bits of its other factor.
"""
import triton
import triton.language as tl
from product import halves, plus, start, upright


@triton.jit
def add_half(sums, residual, out, m, N, row, col, SCALE, BM: tl.constexpr, BN: tl.constexpr):
    residual_tile = tl.make_block_ptr(residual, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    r = tl.load(residual_tile, boundary_check=(0, 1), padding_option="zero")
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, r + sums * SCALE, boundary_check=(0, 1))


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# text = ["BK", "SWAP"]
# [params]
# x = "in 0"
# residual = "in 1 f32"
# rows = "rows"
# w = "weight 0"
# out = "out 0 f32"
# K = "dim 1..1048576"
# N = "dim 1..1048576"
# SCALE = "number"
# [shapes]
# x = ["rows", "K"]
# residual = ["rows", "N"]
# w = ["N", "K"]
# out = ["rows", "N"]
# ///
@triton.jit
def linear_add(x, residual, rows, w, out, K, N, SCALE, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
               SWAP: tl.constexpr):
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
    if SWAP == 1:
        # Sums and residuals of all rows do not fit a thread's registers together: one half of the rows comes after the other.
        BH: tl.constexpr = BM // 2
        first, second = halves(acc, BM, BN)
        add_half(first, residual, out, m, N, row, col, SCALE, BH, BN)
        add_half(second, residual, out, m, N, row + BH, col, SCALE, BH, BN)
    else:
        residual_tile = tl.make_block_ptr(residual, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
        r = tl.load(residual_tile, boundary_check=(0, 1), padding_option="zero")
        out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
        tl.store(out_tile, r + upright(acc, SWAP) * SCALE, boundary_check=(0, 1))
