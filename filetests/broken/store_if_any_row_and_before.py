#: sibling: store_if_any_row
#: mistake: the first row is stored before, where it is there
#: fails: single-writer
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
    tl.store(out + tl.arange(0, N), v.max(0), mask=(tl.program_id(0) == 0) & (col < N))
    if tl.max((row < m).to(tl.int32), 0) == 1:
        tl.store(out + at, v, mask=live)
