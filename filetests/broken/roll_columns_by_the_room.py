#: sibling: roll_columns
#: mistake: columns go around at the tile's width, not the row's
#: fails: in-bounds
#: replay: differs
"""Each row, moved by one column to the right and around."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# text = ["BN"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# out = "out 0 f32"
# [constants]
# BM = 4
# N = 40
# BN = 64
# [shapes]
# x = ["rows", "N"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, rows, out, BM: tl.constexpr, N: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.arange(0, BN)
    live = (row < m)[:, None] & (col < N)[None, :]
    left = (col + BN - 1) % BN
    v = tl.load(x + row[:, None] * N + left[None, :], mask=live, other=0.0)
    tl.store(out + row[:, None] * N + col[None, :], v, mask=live)
