#: sibling: linear_indexed
#: mistake: a full tile of rows accumulates in dot, the last one adds afterwards
#: fails: guard
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
# out = "out 0 f32"
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
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, tl.cdiv(K, BK)):
        k = i * BK
        x_tile = tl.make_block_ptr(x, (m, K), (K, 1), (row, k), (BM, BK), (1, 0))
        w_tile = tl.make_block_ptr(w, (K, N), (1, K), (k, col), (BK, BN), (0, 1))
        a = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(w_tile, boundary_check=(0, 1), padding_option="zero")
        full = row + BM <= m
        acc = tl.where(full, tl.dot(a, b, acc, input_precision="ieee"), acc + tl.dot(a, b, input_precision="ieee"))
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, acc.to(out.dtype.element_ty), boundary_check=(0, 1))
