"""The squares of a row's positive numbers: `out[t, n] = max(x[t, n], 0)^2`, the unit of perceptrons without a gate; a NaN stays one."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# [params]
# x = "in 0"
# rows = "rows"
# out = "out 0"
# N = "dim 1..1048576"
# [constants]
# BM = 4
# BN = 16
# [shapes]
# x = ["rows", "N"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, rows, out, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    x_tile = tl.make_block_ptr(x, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    value = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
    y = tl.where(value < 0.0, 0.0, value)
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, (y * y).to(out.dtype.element_ty), boundary_check=(0, 1))
