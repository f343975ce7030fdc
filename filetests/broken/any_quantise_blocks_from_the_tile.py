#: sibling: any_quantise
#: mistake: blocks begin at the number of the tile
#: fails: guard
#: replay: differs
"""Rows as integers: each block of 32 numbers becomes integers of 16 or 8 bits and one scale.

`scale = absmax / TOP` and `q = round(x * (TOP / absmax))`, to nearest even. If WIDE is 1, TOP is 32639 = 127 * 256 + 127 and
`q = 256 * hi + lo` with `lo` from -128 to 127; if WIDE is 0, TOP is 127, `q = hi` and `lo` is 0. `sums` has the sums of q over
each half of a block. A block whose largest magnitude is at most 1e-30 becomes zeros, so that `TOP / absmax` is finite. A block
with a NaN or an infinity becomes zeros with a scale that is not finite: what is computed from it is NaN.
"""
import triton
import triton.language as tl
from integers import largest


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(BLOCKS, BB)"]
# [params]
# x = "in 0"
# rows = "rows"
# hi = "out 0 i8"
# lo = "out 1 i8"
# scale = "out 2 f32"
# sums = "out 3 f32"
# BLOCKS = "dim 1..4096"
# WIDE = "dim 0..1"
# [constants]
# BM = 16
# BB = 4
# [shapes]
# x = ["rows", "32 * BLOCKS"]
# hi = ["rows", "32 * BLOCKS"]
# lo = ["rows", "32 * BLOCKS"]
# scale = ["rows", "BLOCKS"]
# sums = ["rows", "2 * BLOCKS"]
# ///
@triton.jit
def kernel(x, rows, hi, lo, scale, sums, BLOCKS, WIDE, BM: tl.constexpr, BB: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    block = tl.program_id(1) * BB
    first = (tl.arange(0, 32) < 16)[None, None, :]
    limit = 127
    if WIDE == 1:
        limit = 32639
    top = limit.to(tl.float32)
    x_tile = tl.make_block_ptr(x, (m, BLOCKS, 32), (BLOCKS * 32, 32, 1), (row, block + row // BM, 0), (BM, BB, 32),
                               (2, 1, 0))
    v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
    absmax = tl.reduce(tl.abs(v), 2, largest)
    inverse = tl.where(absmax <= 1e-30, 0.0, top / absmax)
    # Adding 1.5 * 2^23 rounds to a whole number, to nearest even.
    y = v * inverse[:, :, None] + 12582912.0 - 12582912.0
    # NaN becomes 0.
    q = y.to(tl.int32)
    high = q
    low = tl.zeros((BM, BB, 32), tl.int8)
    if WIDE == 1:
        high = (q + 128) >> 8
        low = q.to(tl.int8)
    hi_tile = tl.make_block_ptr(hi, (m, BLOCKS, 32), (BLOCKS * 32, 32, 1), (row, block, 0), (BM, BB, 32), (2, 1, 0))
    tl.store(hi_tile, high.to(tl.int8), boundary_check=(0, 1))
    lo_tile = tl.make_block_ptr(lo, (m, BLOCKS, 32), (BLOCKS * 32, 32, 1), (row, block, 0), (BM, BB, 32), (2, 1, 0))
    tl.store(lo_tile, low, boundary_check=(0, 1))
    scale_tile = tl.make_block_ptr(scale, (m, BLOCKS), (BLOCKS, 1), (row, block), (BM, BB), (1, 0))
    tl.store(scale_tile, absmax / top, boundary_check=(0, 1))
    # The sums of each half of a block.
    sums_tile = tl.make_block_ptr(sums, (m, BLOCKS, 2), (BLOCKS * 2, 2, 1), (row, block, 0), (BM, BB, 1), (2, 1, 0))
    half = tl.sum(tl.where(first, q, 0), 2)
    tl.store(sums_tile, half.to(tl.float32)[:, :, None], boundary_check=(0, 1))
    rest = tl.sum(q, 2) - half
    tl.store(tl.advance(sums_tile, (0, 0, 1)), rest.to(tl.float32)[:, :, None], boundary_check=(0, 1))
