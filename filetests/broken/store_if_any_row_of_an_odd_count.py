#: sibling: store_if_any_row
#: mistake: the lowest bit of the number of rows is asked, not whether there are any: an even number stores nothing
#: fails: coverage
#: replay: differs
"""Rows are copied by programs that have any."""
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
# BM = 4
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
    if (tl.sum((row < m).to(tl.int32), 0) & 1) == 1:
        tl.store(out + at, v, mask=live)
