#: sibling: argmax
#: mistake: logits are FP32 and read as BF16
#: fails: contract
#: replay: none
#: types: x = bf16
"""Greedy choice: where the first largest logit of each row stands, as a number; 0 where no logit is a number.

NaN counts as nothing, and a denormal as zero, whatever a comparison takes it for. The largest is found first and looked for
then; columns are exact in FP32 up to NONE.
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
# [constants]
# V = 40
# BM = 4
# BV = 16
# [shapes]
# x = ["rows", "V"]
# out = ["rows"]
# ///
@triton.jit
def kernel(x, rows, out, V: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr):
    tl.static_assert(V <= NONE)
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    x_tile = tl.make_block_ptr(x, (m, V), (V, 1), (row, 0), (BM, BV), (1, 0))
    largest = tl.full((BM, BV), float("-inf"), tl.float32)
    for _ in range(0, V, BV):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="nan")
        largest = tl.maximum(largest, v)
        x_tile = tl.advance(x_tile, (0, BV))
    least = tl.max(largest, 1)
    # Zero: any denormal is as good.
    zeros = tl.full((BM,), LEAST_OF_ZEROS, tl.float32)
    least = tl.where(tl.abs(least) < LEAST_NORMAL, zeros, least)[:, None]

    # From the last block to the first: what is found later stands before.
    last = (V - 1) // BV * BV
    x_tile = tl.make_block_ptr(x, (m, V), (V, 1), (row, last), (BM, BV), (1, 0))
    column = (last + tl.arange(0, BV)).to(tl.float32)[None, :]
    at = tl.full((BM, BV), NONE, tl.float32)
    for _ in range(0, V, BV):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="nan")
        at = tl.where(least <= v, column, at)
        column -= BV
        x_tile = tl.advance(x_tile, (0, -BV))
    first = tl.min(at, 1)
    first = tl.where(first == NONE, 0.0, first)
    out_tile = tl.make_block_ptr(out, (m,), (1,), (row,), (BM,), (0,))
    tl.store(out_tile, first, boundary_check=(0,))
