#: sibling: any_linear_pointers
#: mistake: a row of x begins one cell late: its last column is the next row's first
#: fails: in-bounds
#: replay: differs
"""The same with raw pointers: offsets are products of a row and a dimension, in 64 bits."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# text = ["BK"]
# [params]
# x = "in 0"
# rows = "rows"
# w = "weight 0"
# out = "out 0"
# K = "dim 1..1048576"
# N = "dim 1..1048576"
# [constants]
# BM = 16
# BN = 16
# BK = 16
# [shapes]
# x = ["rows", "K"]
# w = ["N", "K"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, rows, w, out, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x_at = row.to(tl.int64)[:, None] * K + k[None, :] + 1
        w_at = col.to(tl.int64)[None, :] * K + k[:, None]
        a = tl.load(x + x_at, mask=(row < m)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(w + w_at, mask=(col < N)[None, :] & (k < K)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    out_at = row.to(tl.int64)[:, None] * N + col[None, :]
    tl.store(out + out_at, acc.to(out.dtype.element_ty), mask=(row < m)[:, None] & (col < N)[None, :])
