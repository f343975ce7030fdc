"""Each row TOPK times: `out[t, j] = x[t]`, what experts without a gate read by `expert_down`."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)", "TOPK"]
# [params]
# x = "in 0"
# rows = "rows"
# out = "out 0"
# N = "dim 1..1048576"
# TOPK = "dim 1..64"
# [constants]
# BM = 4
# BN = 16
# [shapes]
# x = ["rows", "N"]
# out = ["rows", "TOPK", "N"]
# ///
@triton.jit
def kernel(x, rows, out, N, TOPK, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    place = tl.program_id(2)
    x_tile = tl.make_block_ptr(x, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    value = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
    own = out + N.to(tl.int64) * place
    out_tile = tl.make_block_ptr(own, (m, N), (N.to(tl.int64) * TOPK, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, value, boundary_check=(0, 1))
