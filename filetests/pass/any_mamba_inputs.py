"""What a Mamba 2 layer takes of each row, in FP32: queries, keys, values, log-decays and steps.

A row of `xbc` has WIDTH numbers: INNER of all heads' values (Mamba's x), then KEYS of all keys (B) and KEYS of all queries (C).
A row of `steps` has a number for each head. A head's step is `softplus(steps + dt_bias)`, and its log-decay is `rate` times its step,
where rates are negative.
"""
import triton
import triton.language as tl
from softplus import softplus


@triton.jit
def stretch(x, m, row, col, STRIDE, WIDTH, BM: tl.constexpr, BN: tl.constexpr):
    """A tile of WIDTH columns of the rows, from their column `col` on, in FP32."""
    tile = tl.make_block_ptr(x, (m, WIDTH), (STRIDE, 1), (row, col), (BM, BN), (1, 0))
    return tl.load(tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)


@triton.jit
def put(out, value, m, row, col, WIDTH, BM: tl.constexpr, BN: tl.constexpr):
    tile = tl.make_block_ptr(out, (m, WIDTH), (WIDTH, 1), (row, col), (BM, BN), (1, 0))
    tl.store(tile, value, boundary_check=(0, 1))


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(WIDTH, BN)"]
# where = ["INNER + 2 * KEYS <= WIDTH", "HEADS <= WIDTH"]
# [params]
# xbc = "in 0"
# steps = "in 1 f32"
# rows = "rows"
# rate = "weight 0 f32"
# dt_bias = "weight 1 f32"
# q = "out 0 f32"
# k = "out 1 f32"
# x = "out 2 f32"
# g = "out 3 f32"
# dt = "out 4 f32"
# HEADS = "dim 1..1024"
# INNER = "dim 1..1048576"
# KEYS = "dim 1..1048576"
# WIDTH = "dim 1..1048576"
# [constants]
# BM = 4
# BN = 8
# [shapes]
# xbc = ["rows", "WIDTH"]
# steps = ["rows", "HEADS"]
# rate = ["HEADS"]
# dt_bias = ["HEADS"]
# q = ["rows", "KEYS"]
# k = ["rows", "KEYS"]
# x = ["rows", "INNER"]
# g = ["rows", "HEADS"]
# dt = ["rows", "HEADS"]
# ///
@triton.jit
def kernel(xbc, steps, rows, rate, dt_bias, q, k, x, g, dt, HEADS, INNER, KEYS, WIDTH, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    # A program has these columns of each output, which outputs with fewer columns do not have.
    put(x, stretch(xbc, m, row, col, WIDTH, INNER, BM, BN), m, row, col, INNER, BM, BN)
    put(k, stretch(xbc + INNER, m, row, col, WIDTH, KEYS, BM, BN), m, row, col, KEYS, BM, BN)
    put(q, stretch(xbc + (INNER + KEYS), m, row, col, WIDTH, KEYS, BM, BN), m, row, col, KEYS, BM, BN)

    head = col + tl.arange(0, BN)
    bias = tl.load(dt_bias + head, mask=head < HEADS, other=0.0)
    factor = tl.load(rate + head, mask=head < HEADS, other=0.0)
    step = softplus(stretch(steps, m, row, col, HEADS, HEADS, BM, BN) + bias[None, :])
    put(dt, step, m, row, col, HEADS, BM, BN)
    put(g, factor[None, :] * step, m, row, col, HEADS, BM, BN)
