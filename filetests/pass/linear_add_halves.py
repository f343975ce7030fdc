"""A linear layer added to a residual, by halves of a tile's rows: one product, and two stores of its rows."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# text = ["BK"]
# [params]
# x = "in 0"
# residual = "in 1 f32"
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
# residual = ["rows", "N"]
# w = ["N", "K"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, residual, rows, w, out, K: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    x_tile = tl.make_block_ptr(x, (m, K), (K, 1), (row, 0), (BM, BK), (1, 0))
    w_tile = tl.make_block_ptr(w, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    acc = tl.zeros((BN, BM), tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(w_tile, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(tl.trans(b), tl.trans(a), acc, input_precision="ieee")
        x_tile = tl.advance(x_tile, (0, BK))
        w_tile = tl.advance(w_tile, (BK, 0))
    BH: tl.constexpr = BM // 2
    rows_apart = tl.reshape(tl.trans(acc), (2, BH, BN))
    first, second = tl.split(tl.permute(rows_apart, (1, 2, 0)))
    r = tl.make_block_ptr(residual, (m, N), (N, 1), (row, col), (BH, BN), (1, 0))
    o = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BH, BN), (1, 0))
    tl.store(o, tl.load(r, boundary_check=(0, 1), padding_option="zero") + first, boundary_check=(0, 1))
    r = tl.make_block_ptr(residual, (m, N), (N, 1), (row + BH, col), (BH, BN), (1, 0))
    o = tl.make_block_ptr(out, (m, N), (N, 1), (row + BH, col), (BH, BN), (1, 0))
    tl.store(o, tl.load(r, boundary_check=(0, 1), padding_option="zero") + second, boundary_check=(0, 1))
