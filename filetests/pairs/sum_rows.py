"""Sums of rows: the tile as it is loaded, summed over its last axis."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# out = "out 0 f32"
# [constants]
# K = 64
# BM = 16
# [shapes]
# x = ["rows", "K"]
# out = ["rows", "1"]
# ///
@triton.jit
def kernel(x, rows, out, K: tl.constexpr, BM: tl.constexpr):
    m = tl.load(rows)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    k = tl.arange(0, K)
    v = tl.load(x + r[:, None] * K + k[None, :], mask=(r < m)[:, None], other=0.0)
    tl.store(out + r, tl.sum(v, 1), mask=r < m)
