"""A linear layer for any K and N whose weights lie column by column: a pointer goes down them by BK rows in each turn."""
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
# K = "dim 1..65536"
# N = "dim 1..65536"
# [constants]
# BM = 16
# BN = 16
# BK = 16
# [shapes]
# x = ["rows", "K"]
# w = ["K", "N"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, rows, w, out, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + row.to(tl.int64)[:, None] * K + k[None, :]
    w_at = w + k.to(tl.int64)[:, None] * N + col[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(x_at, mask=(row < m)[:, None] & (start + k < K)[None, :], other=0.0)
        b = tl.load(w_at, mask=(col < N)[None, :] & (start + k < K)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        x_at += BK
        w_at += BK * N
    out_at = row.to(tl.int64)[:, None] * N + col[None, :]
    tl.store(out + out_at, acc.to(out.dtype.element_ty), mask=(row < m)[:, None] & (col < N)[None, :])
