#: sibling: any_quantise
#: mistake: scales of rows behind the last are written
#: fails: in-bounds
#: replay: differs
"""Rows as integers: each block of 32 numbers becomes integers of 16 or 8 bits and one scale.

`scale = absmax / TOP` and `q = round(x * (TOP / absmax))`, to nearest even. If WIDE is 1, TOP is 32639 = 127 * 256 + 127 and
`q = 256 * hi + lo` with `lo` from -128 to 127; if WIDE is 0, TOP is 127, `q = hi` and `lo` is 0. `sums` has the sums of q over
each half of a block. A block whose largest magnitude is at most 1e-30 becomes zeros, so that `TOP / absmax` is finite. A block
with a NaN or an infinity has a scale that is not finite: no number that is computed from it is finite.
"""
import triton
import triton.language as tl
from integers import largest


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# hi = "out 0 i8"
# lo = "out 1 i8"
# scale = "out 2 f32"
# sums = "out 3 f32"
# BLOCKS = "dim 1..4096"
# WIDE = "dim 0..1"
# [constants]
# BM = 16
# [shapes]
# x = ["rows", "32 * BLOCKS"]
# hi = ["rows", "32 * BLOCKS"]
# lo = ["rows", "32 * BLOCKS"]
# scale = ["rows", "BLOCKS"]
# sums = ["rows", "2 * BLOCKS"]
# ///
@triton.jit
def kernel(x, rows, hi, lo, scale, sums, BLOCKS, WIDE, BM: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    first = tl.arange(0, 32) < 16
    limit = 127
    if WIDE == 1:
        limit = 32639
    top = limit.to(tl.float32)
    x_tile = tl.make_block_ptr(x, (m, BLOCKS * 32), (BLOCKS * 32, 1), (row, 0), (BM, 32), (1, 0))
    hi_tile = tl.make_block_ptr(hi, (m, BLOCKS * 32), (BLOCKS * 32, 1), (row, 0), (BM, 32), (1, 0))
    lo_tile = tl.make_block_ptr(lo, (m, BLOCKS * 32), (BLOCKS * 32, 1), (row, 0), (BM, 32), (1, 0))
    scale_tile = tl.make_block_ptr(scale, (m, BLOCKS), (BLOCKS, 1), (row, 0), (BM, 1), (1, 0))
    sums_tile = tl.make_block_ptr(sums, (m, BLOCKS * 2), (BLOCKS * 2, 1), (row, 0), (BM, 1), (1, 0))
    for _ in range(0, BLOCKS):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        absmax = tl.reduce(tl.abs(v), 1, largest)
        inverse = tl.where(absmax <= 1e-30, 0.0, top / absmax)
        # Adding 1.5 * 2^23 rounds to a whole number, to nearest even.
        y = v * inverse[:, None] + 12582912.0 - 12582912.0
        # Only a block that is not finite has numbers outside.
        q = tl.minimum(tl.maximum(y.to(tl.int32), -limit), limit)
        high = q
        low = tl.zeros((BM, 32), tl.int32)
        if WIDE == 1:
            high = (q + 128) >> 8
            low = q - (high << 8)
        tl.store(hi_tile, high.to(tl.int8), boundary_check=(0, 1))
        tl.store(lo_tile, low.to(tl.int8), boundary_check=(0, 1))
        tl.store(scale_tile, (absmax / top)[:, None], boundary_check=(1,))
        half = tl.sum(tl.where(first[None, :], q, 0), 1)
        tl.store(sums_tile, half.to(tl.float32)[:, None], boundary_check=(0, 1))
        half = tl.sum(tl.where(first[None, :], 0, q), 1)
        tl.store(tl.advance(sums_tile, (0, 1)), half.to(tl.float32)[:, None], boundary_check=(0, 1))
        x_tile = tl.advance(x_tile, (0, 32))
        hi_tile = tl.advance(hi_tile, (0, 32))
        lo_tile = tl.advance(lo_tile, (0, 32))
        scale_tile = tl.advance(scale_tile, (0, 1))
        sums_tile = tl.advance(sums_tile, (0, 2))
