"""A hash of each row's token, in integers that wrap."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# [params]
# tokens = "tokens"
# rows = "rows"
# out = "out 0 f32"
# [constants]
# V = 50000
# BM = 16
# [shapes]
# out = ["rows", "1"]
# ///
@triton.jit
def kernel(tokens, rows, out, V: tl.constexpr, BM: tl.constexpr):
    m = tl.load(rows)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    h = tl.load(tokens + r, mask=r < m, other=0)
    h = h ^ (h << 13)
    h = h ^ (h >> 17)
    h = h ^ (h << 5)
    h = h + (h << 3)
    tl.store(out + r, h.to(tl.float32), mask=r < m)
