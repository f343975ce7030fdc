"""The first launch of a draw: for each part of PART columns its largest logit, the sum of its weights relative to that, and the
token that is drawn if the draw is of this part, as a number.

The drawn column is the first at which the running sum of weights exceeds `within` times the sum; it is found by halving.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "PARTS"]
# where = ["V <= PARTS * PART"]
# text = ["STEPS"]
# [params]
# x = "in 0 f32"
# scale = "in 1 f32"
# within = "in 2 f32"
# rows = "rows"
# largest = "out 0 f32"
# sums = "out 1 f32"
# tokens = "out 2 f32"
# V = "dim 1..16777216"
# PARTS = "dim 1..4096"
# [constants]
# PART = 16
# STEPS = 4
# BM = 4
# [shapes]
# x = ["rows", "V"]
# scale = ["rows"]
# within = ["rows"]
# largest = ["rows", "PARTS"]
# sums = ["rows", "PARTS"]
# tokens = ["rows", "PARTS"]
# ///
@triton.jit
def kernel(x, scale, within, rows, largest, sums, tokens, V, PARTS, PART: tl.constexpr, STEPS: tl.constexpr,
           BM: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    part = tl.program_id(1)
    x_tile = tl.make_block_ptr(x, (m, V), (V, 1), (row, part * PART), (BM, PART), (1, 0))
    scale_tile = tl.make_block_ptr(scale, (m,), (1,), (row,), (BM,), (0,))
    within_tile = tl.make_block_ptr(within, (m,), (1,), (row,), (BM,), (0,))
    v = tl.load(x_tile, boundary_check=(0, 1), padding_option="nan")
    factor = tl.load(scale_tile, boundary_check=(0,), padding_option="zero")
    number = tl.load(within_tile, boundary_check=(0,), padding_option="zero")

    top = tl.maximum(tl.max(v, 1), float("-inf"))
    weight = tl.where(v >= top[:, None], 1.0, tl.exp2((v - top[:, None]) * factor[:, None]))
    weight = tl.where(weight >= 0.0, weight, 0.0)
    total = tl.sum(weight, 1)
    target = number * total
    column = tl.arange(0, PART).to(tl.float32)[None, :]
    last = tl.max(tl.where(weight > 0.0, column, 0.0), 1)
    at = tl.zeros((BM,), tl.float32)
    half = PART / 2
    for _ in range(0, STEPS):
        middle = at + half
        before = tl.sum(tl.where(column < middle[:, None], weight, 0.0), 1)
        at = tl.where(before <= target, middle, at)
        half *= 0.5
    at = tl.minimum(at, last)
    token = (part * PART).to(tl.float32) + at

    largest_tile = tl.make_block_ptr(largest, (m, PARTS), (PARTS, 1), (row, part), (BM, 1), (1, 0))
    tl.store(largest_tile, top[:, None], boundary_check=(0,))
    sums_tile = tl.make_block_ptr(sums, (m, PARTS), (PARTS, 1), (row, part), (BM, 1), (1, 0))
    tl.store(sums_tile, total[:, None], boundary_check=(0,))
    tokens_tile = tl.make_block_ptr(tokens, (m, PARTS), (PARTS, 1), (row, part), (BM, 1), (1, 0))
    tl.store(tokens_tile, token[:, None], boundary_check=(0,))
