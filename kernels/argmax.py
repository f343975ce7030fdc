"""Greedy choice: the column of the first largest logit of each row, as an FP32 number; 0 if all logits of a row are NaN.

NaN is skipped, and a denormal counts as zero, whether or not comparisons flush it. The first loop finds the largest logit, the
second its first column; FP32 holds columns up to NONE exactly.
"""
import triton
import triton.language as tl

NONE = tl.constexpr(16777216.0)
LEAST_NORMAL = tl.constexpr(1.1754943508222875e-38)
LEAST_OF_ZEROS = tl.constexpr(-1.1754942106924411e-38)


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# text = ["BV"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# out = "out 0 f32"
# V = "dim 1..16777216"
# [shapes]
# x = ["rows", "V"]
# out = ["rows"]
# ///
@triton.jit
def argmax(x, rows, out, V, BM: tl.constexpr, BV: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    x_tile = tl.make_block_ptr(x, (m, V), (V, 1), (row, 0), (BM, BV), (1, 0))
    largest = tl.full((BM, BV), float("-inf"), tl.float32)
    for _ in range(0, V, BV):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="nan")
        largest = tl.maximum(largest, v)
        x_tile = tl.advance(x_tile, (0, BV))
    least = tl.max(largest, 1)
    # A zero is replaced by the lowest denormal: no zero or denormal is below that.
    zeros = tl.full((BM,), LEAST_OF_ZEROS, tl.float32)
    least = tl.where(tl.abs(least) < LEAST_NORMAL, zeros, least)[:, None]

    x_tile = tl.make_block_ptr(x, (m, V), (V, 1), (row, 0), (BM, BV), (1, 0))
    column = tl.arange(0, BV).to(tl.float32)[None, :]
    at = tl.full((BM, BV), NONE, tl.float32)
    for _ in range(0, V, BV):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="nan")
        at = tl.minimum(at, tl.where(least <= v, column, NONE))
        column += BV
        x_tile = tl.advance(x_tile, (0, BV))
    first = tl.min(at, 1)
    first = tl.where(first == NONE, 0.0, first)
    out_tile = tl.make_block_ptr(out, (m,), (1,), (row,), (BM,), (0,))
    tl.store(out_tile, first, boundary_check=(0,))
