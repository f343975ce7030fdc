"""Each row, shifted by its largest number if the flag is 1: a loop of one turn. A branch of other rows gives the same either way."""
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
# N = 16
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
    most = tl.max(v, 1)
    shift = tl.zeros((BM,), tl.float32)
    for _ in range(0, FLAG):
        shift = most * 2.0
        most = most + 1.0
    if tl.max(shift, 0) > 1.0:
        y = v * 3.0
    else:
        y = v * 3.0
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, 0), (BM, N), (1, 0))
    tl.store(out_tile, y + shift[:, None], boundary_check=(0, 1))
