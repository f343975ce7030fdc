"""The second launch of a draw: the token of the part that is drawn, as a number.

A part weighs the sum of its weights times what its largest logit weighs relative to the row's. If all logits of a row are NaN,
the token is that of the first part: 0.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# where = ["PARTS <= WIDTH"]
# text = ["STEPS"]
# [params]
# largest = "in 0 f32"
# sums = "in 1 f32"
# tokens = "in 2 f32"
# scale = "in 3 f32"
# pick = "in 4 f32"
# rows = "rows"
# out = "out 0 f32"
# PARTS = "dim 1..4096"
# [constants]
# BM = 4
# WIDTH = 8
# STEPS = 3
# [shapes]
# largest = ["rows", "PARTS"]
# sums = ["rows", "PARTS"]
# tokens = ["rows", "PARTS"]
# scale = ["rows"]
# pick = ["rows"]
# out = ["rows"]
# ///
@triton.jit
def kernel(largest, sums, tokens, scale, pick, rows, out, PARTS, BM: tl.constexpr, WIDTH: tl.constexpr, STEPS: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    largest_tile = tl.make_block_ptr(largest, (m, PARTS), (PARTS, 1), (row, 0), (BM, WIDTH), (1, 0))
    sums_tile = tl.make_block_ptr(sums, (m, PARTS), (PARTS, 1), (row, 0), (BM, WIDTH), (1, 0))
    tokens_tile = tl.make_block_ptr(tokens, (m, PARTS), (PARTS, 1), (row, 0), (BM, WIDTH), (1, 0))
    scale_tile = tl.make_block_ptr(scale, (m,), (1,), (row,), (BM,), (0,))
    pick_tile = tl.make_block_ptr(pick, (m,), (1,), (row,), (BM,), (0,))
    tops = tl.load(largest_tile, boundary_check=(0, 1), padding_option="nan")
    sum_of = tl.load(sums_tile, boundary_check=(0, 1), padding_option="zero")
    token_of = tl.load(tokens_tile, boundary_check=(0, 1), padding_option="zero")
    factor = tl.load(scale_tile, boundary_check=(0,), padding_option="zero")
    number = tl.load(pick_tile, boundary_check=(0,), padding_option="zero")

    top = tl.maximum(tl.max(tops, 1), float("-inf"))
    weight = tl.where(tops >= top[:, None], 1.0, tl.exp2((tops - top[:, None]) * factor[:, None]))
    weight = tl.where(weight >= 0.0, weight, 0.0) * sum_of
    total = tl.sum(weight, 1)
    target = number * total
    part = tl.arange(0, WIDTH).to(tl.float32)[None, :]
    last = tl.max(tl.where(weight > 0.0, part, 0.0), 1)
    at = tl.zeros((BM,), tl.float32)
    half = WIDTH / 2
    for _ in range(0, STEPS):
        middle = at + half
        before = tl.sum(tl.where(part < middle[:, None], weight, 0.0), 1)
        at = tl.where(before <= target, middle, at)
        half *= 0.5
    at = tl.minimum(at, last)
    token = tl.sum(tl.where(part == at[:, None], token_of, 0.0), 1)
    out_tile = tl.make_block_ptr(out, (m,), (1,), (row,), (BM,), (0,))
    tl.store(out_tile, token, boundary_check=(0,))
