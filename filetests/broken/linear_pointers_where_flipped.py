#: sibling: linear_pointers_where
#: mistake: lanes that are not loaded are taken and the others are zero
#: fails: undefined
#: replay: differs
"""A linear layer: `out[t, n] = sum_k x[t, k] * w[n, k]`, accumulated in FP32 from k = 0 upwards."""
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
# [constants]
# K = 40
# N = 24
# BM = 16
# BN = 16
# BK = 16
# [shapes]
# x = ["rows", "K"]
# w = ["N", "K"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, rows, w, out, K: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    r = row + tl.arange(0, BM)
    c = col + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        live = (r < m)[:, None] & (k < K)[None, :]
        a = tl.where(live, 0.0, tl.load(x + (r[:, None].to(tl.int64) * K + k[None, :]), mask=live))
        b = tl.load(w + (c[None, :] * K + k[:, None]), mask=(k < K)[:, None] & (c < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, acc.to(out.dtype.element_ty), boundary_check=(0, 1))
