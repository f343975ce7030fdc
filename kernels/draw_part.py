"""The first launch of a draw: for each part of PART columns its largest logit, the sum of its weights relative to that, and the
token that is drawn if the draw is of this part, as an FP32 number.

A logit v weighs `2 ** ((v - largest) * scale)`; `scale` is `log2(e) / temperature`, finite and positive, and `within` is in
[0, 1). NaN weighs nothing: a part of NaN has the largest -inf, the sum 0 and its first token. PARTS parts hold all V logits.
"""
import triton
import triton.language as tl
from drawing import draw_column, weigh


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "PARTS"]
# where = ["V <= PARTS * PART"]
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
# [shapes]
# x = ["rows", "V"]
# scale = ["rows"]
# within = ["rows"]
# largest = ["rows", "PARTS"]
# sums = ["rows", "PARTS"]
# tokens = ["rows", "PARTS"]
# ///
@triton.jit
def draw_part(x, scale, within, rows, largest, sums, tokens, V, PARTS, PART: tl.constexpr, BM: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    part = tl.program_id(1)
    x_tile = tl.make_block_ptr(x, (m, V), (V, 1), (row, part * PART), (BM, PART), (1, 0))
    scale_tile = tl.make_block_ptr(scale, (m,), (1,), (row,), (BM,), (0,))
    within_tile = tl.make_block_ptr(within, (m,), (1,), (row,), (BM,), (0,))
    v = tl.load(x_tile, boundary_check=(0, 1), padding_option="nan")
    factor = tl.load(scale_tile, boundary_check=(0,), padding_option="zero")
    number = tl.load(within_tile, boundary_check=(0,), padding_option="zero")

    top, weight = weigh(v, factor)
    total, at = draw_column(weight, number, PART, BM)
    token = (part * PART).to(tl.float32) + at

    largest_tile = tl.make_block_ptr(largest, (m, PARTS), (PARTS, 1), (row, part), (BM, 1), (1, 0))
    tl.store(largest_tile, top[:, None], boundary_check=(0,))
    sums_tile = tl.make_block_ptr(sums, (m, PARTS), (PARTS, 1), (row, part), (BM, 1), (1, 0))
    tl.store(sums_tile, total[:, None], boundary_check=(0,))
    tokens_tile = tl.make_block_ptr(tokens, (m, PARTS), (PARTS, 1), (row, part), (BM, 1), (1, 0))
    tl.store(tokens_tile, token[:, None], boundary_check=(0,))
