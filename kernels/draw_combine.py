"""The second launch of a draw: the token of the part that is drawn, as an FP32 number.

A part weighs the sum of its weights times `2 ** ((largest of the part - largest of the row) * scale)`. `pick` is in [0, 1).
If no part has a weight, because all logits of a row are NaN, the token is that of the first part: 0.
"""
import triton
import triton.language as tl
from drawing import draw_column, weigh


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# where = ["PARTS <= WIDTH"]
# [params]
# largest = "in 0 f32"
# sums = "in 1 f32"
# tokens = "in 2 f32"
# scale = "in 3 f32"
# pick = "in 4 f32"
# rows = "rows"
# out = "out 0 f32"
# PARTS = "dim 1..4096"
# [shapes]
# largest = ["rows", "PARTS"]
# sums = ["rows", "PARTS"]
# tokens = ["rows", "PARTS"]
# scale = ["rows"]
# pick = ["rows"]
# out = ["rows"]
# ///
@triton.jit
def draw_combine(largest, sums, tokens, scale, pick, rows, out, PARTS, BM: tl.constexpr, WIDTH: tl.constexpr):
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

    _, weight = weigh(tops, factor)
    _, at = draw_column(weight * sum_of, number, WIDTH, BM)
    part = tl.arange(0, WIDTH).to(tl.float32)[None, :]
    token = tl.sum(tl.where(part == at[:, None], token_of, 0.0), 1)
    out_tile = tl.make_block_ptr(out, (m,), (1,), (row,), (BM,), (0,))
    tl.store(out_tile, token, boundary_check=(0,))
