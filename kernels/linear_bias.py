"""A linear layer with a bias: `out = x w^T + bias`. The bias is added to the sum in FP32, with one cast at the end."""
import triton
import triton.language as tl
from product import plus, start, upright


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# text = ["BK", "SWAP"]
# [params]
# x = "in 0"
# rows = "rows"
# w = "weight 0"
# bias = "weight 1 f32"
# out = "out 0"
# K = "dim 1..1048576"
# N = "dim 1..1048576"
# [shapes]
# x = ["rows", "K"]
# w = ["N", "K"]
# bias = ["N"]
# out = ["rows", "N"]
# ///
@triton.jit
def linear_bias(x, rows, w, bias, out, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                SWAP: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    x_tile = tl.make_block_ptr(x, (m, K), (K, 1), (row, 0), (BM, BK), (1, 0))
    w_tile = tl.make_block_ptr(w, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    acc = start(BM, BN, SWAP)
    for _ in range(0, K, BK):
        a = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(w_tile, boundary_check=(0, 1), padding_option="zero")
        acc = plus(acc, a, b, SWAP)
        x_tile = tl.advance(x_tile, (0, BK))
        w_tile = tl.advance(w_tile, (BK, 0))
    bias_tile = tl.make_block_ptr(bias, (N,), (1,), (col,), (BN,), (0,))
    y = upright(acc, SWAP) + tl.load(bias_tile, boundary_check=(0,), padding_option="zero")[None, :]
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, y.to(out.dtype.element_ty), boundary_check=(0, 1))
