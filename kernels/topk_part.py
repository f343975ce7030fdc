"""The first launch of top-k: the K largest logits of each part of PART columns, and their columns as FP32 numbers.

A denormal counts as zero and is written as zero, whether or not comparisons flush it. PARTS parts hold all V logits. V is
NONE at most, so that FP32 holds every column exactly.
"""
import triton
import triton.language as tl
from selection import select

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
# [shapes]
# x = ["rows", "V"]
# values = ["rows", "PARTS", "K"]
# columns = ["rows", "PARTS", "K"]
# ///
@triton.jit
def topk_part(x, rows, values, columns, V, PARTS, PART: tl.constexpr, K: tl.constexpr, BM: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    part = tl.program_id(1)
    x_tile = tl.make_block_ptr(x, (m, V), (V, 1), (row, part * PART), (BM, PART), (1, 0))
    v = tl.load(x_tile, boundary_check=(0, 1), padding_option="nan")
    v = tl.where(tl.abs(v) < LEAST_NORMAL, 0.0, v)
    column = (part * PART + tl.arange(0, PART)).to(tl.float32)[None, :]
    v, column = select(v, column, K, BM)
    WIDTH = PARTS * K
    values_tile = tl.make_block_ptr(values, (m, WIDTH), (WIDTH, 1), (row, part * K), (BM, K), (1, 0))
    tl.store(values_tile, v, boundary_check=(0,))
    columns_tile = tl.make_block_ptr(columns, (m, WIDTH), (WIDTH, 1), (row, part * K), (BM, K), (1, 0))
    tl.store(columns_tile, column, boundary_check=(0,))
