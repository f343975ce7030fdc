"""FP32 rows plus a vector, `out[t, n] = x[t, n] + bias[n]`: the bias of a product whose result is FP32."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# bias = "weight 0 f32"
# out = "out 0 f32"
# N = "dim 1..1048576"
# [shapes]
# x = ["rows", "N"]
# bias = ["N"]
# out = ["rows", "N"]
# ///
@triton.jit
def add_bias(x, rows, bias, out, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    x_tile = tl.make_block_ptr(x, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    value = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
    bias_tile = tl.make_block_ptr(bias, (N,), (1,), (col,), (BN,), (0,))
    y = value + tl.load(bias_tile, boundary_check=(0,), padding_option="zero")[None, :]
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, y, boundary_check=(0, 1))
