"""A linear layer with tokens on the columns of `dot`: `out[t, n] = sum_k w[n, k] * x[t, k]`."""
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
    x_tile = tl.make_block_ptr(x, (K, m), (1, K), (0, row), (BK, BM), (0, 1))
    w_tile = tl.make_block_ptr(w, (N, K), (K, 1), (col, 0), (BN, BK), (1, 0))
    acc = tl.zeros((BN, BM), tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(w_tile, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(b, a, acc, input_precision="ieee")
        x_tile = tl.advance(x_tile, (BK, 0))
        w_tile = tl.advance(w_tile, (0, BK))
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, tl.trans(acc).to(out.dtype.element_ty), boundary_check=(0, 1))
