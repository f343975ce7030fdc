#: sibling: softmax_square
#: mistake: the largest numbers of rows are subtracted from columns
#: fails: guard
#: replay: differs
"""Softmax of each row, in tiles that are as wide as they are high, through raw pointers."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# out = "out 0 f32"
# [constants]
# BM = 16
# N = 16
# [shapes]
# x = ["rows", "N"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, rows, out, BM: tl.constexpr, N: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.arange(0, N)
    live = (row < m)[:, None] & (col < N)[None, :]
    at = row[:, None] * N + col[None, :]
    v = tl.load(x + at, mask=live, other=0.0)
    most = tl.max(v, 1)
    e = tl.exp(v - most[None, :])
    total = tl.sum(e, 1)
    tl.store(out + at, e / total[:, None], mask=live)
