#: sibling: any_topk_part
#: mistake: each part writes over the last of the part before
#: fails: coverage
#: replay: differs
"""The first launch of top-k: the K largest logits of each stretch of PART columns, and where they stand, as numbers.

A denormal counts as zero and is written as zero, whatever a comparison takes it for.
"""
import triton
import triton.language as tl

NONE = tl.constexpr(16777216.0)
LEAST_NORMAL = tl.constexpr(1.1754943508222875e-38)


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "PARTS"]
# where = ["V <= PARTS * PART"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# values = "out 0 f32"
# columns = "out 1 f32"
# V = "dim 1..16777216"
# PARTS = "dim 1..4096"
# [constants]
# PART = 16
# K = 4
# BM = 4
# [shapes]
# x = ["rows", "V"]
# values = ["rows", "PARTS", "K"]
# columns = ["rows", "PARTS", "K"]
# ///
@triton.jit
def kernel(x, rows, values, columns, V, PARTS, PART: tl.constexpr, K: tl.constexpr, BM: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    part = tl.program_id(1)
    x_tile = tl.make_block_ptr(x, (m, V), (V, 1), (row, part * PART), (BM, PART), (1, 0))
    v = tl.load(x_tile, boundary_check=(0, 1), padding_option="nan")
    v = tl.where(tl.abs(v) < LEAST_NORMAL, 0.0, v)
    column = (part * PART + tl.arange(0, PART)).to(tl.float32)[None, :]
    place = tl.arange(0, K).to(tl.float32)[None, :]
    found = tl.full((BM, K), float("-inf"), tl.float32)
    stands = tl.full((BM, K), NONE, tl.float32)
    for _ in range(0, K):
        largest = tl.maximum(tl.max(v, 1), float("-inf"))[:, None]
        first = tl.min(tl.where(largest <= v, column, NONE), 1)[:, None]
        found = tl.where(place == 0.0, largest, found)
        stands = tl.where(place == 0.0, first, stands)
        place -= 1.0
        # It has been taken.
        v = tl.where(column == first, float("nan"), v)
    WIDTH = PARTS * K
    values_tile = tl.make_block_ptr(values, (m, WIDTH), (WIDTH, 1), (row, part * (K - 1)), (BM, K), (1, 0))
    tl.store(values_tile, found, boundary_check=(0,))
    columns_tile = tl.make_block_ptr(columns, (m, WIDTH), (WIDTH, 1), (row, part * (K - 1)), (BM, K), (1, 0))
    tl.store(columns_tile, stands, boundary_check=(0,))
