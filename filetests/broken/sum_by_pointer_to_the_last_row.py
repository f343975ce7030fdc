#: sibling: sum_by_pointer
#: mistake: the loop has as many turns as the batch has rows
#: fails: in-bounds
#: replay: differs
"""The sum of each row, through a pointer that goes along it."""
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
# out = ["rows"]
# ///
@triton.jit
def kernel(x, rows, out, BM: tl.constexpr, N: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    live = row < m
    p = x + row * N
    total = tl.zeros((BM,), tl.float32)
    for _ in range(0, m):
        total += tl.load(p, mask=live, other=0.0)
        p += 1
    tl.store(out + row, total, mask=live)
