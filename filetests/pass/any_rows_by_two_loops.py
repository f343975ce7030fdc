"""Each row as often as the flag says, by one of two loops: small batches take the second, which gives the same."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# out = "out 0 f32"
# FLAG = "dim 0..1"
# [constants]
# BM = 4
# N = 4
# [shapes]
# x = ["rows", "N"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, rows, out, FLAG, BM: tl.constexpr, N: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    x_tile = tl.make_block_ptr(x, (m, N), (N, 1), (row, 0), (BM, N), (1, 0))
    v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
    t = tl.zeros((BM, N), tl.float32)
    u = tl.zeros((BM, N), tl.float32)
    for _ in range(0, FLAG):
        t = t + v
    for _ in range(0, FLAG):
        u = u + v
    if m > 6:
        y = t
    else:
        y = u
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, 0), (BM, N), (1, 0))
    tl.store(out_tile, y, boundary_check=(0, 1))
