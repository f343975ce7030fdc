"""Each row or its double, by bits that two loops turn over: a true bit and a true bit are false."""
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
    at = row[:, None] * N + tl.arange(0, N)[None, :]
    live = (row < m)[:, None] & (tl.arange(0, N) < N)[None, :]
    v = tl.load(x + at, mask=live, other=0.0)
    bit = tl.full((), 1, tl.int1)
    once = bit
    for _ in range(0, 1):
        once = once + bit
    thrice = bit
    for _ in range(0, 3):
        thrice = thrice + bit
    y = tl.where(once != thrice, v, v * 2.0)
    tl.store(out + at, y, mask=live)
