#: sibling: persistent
#: mistake: two programs write each tile but the first four
#: fails: single-writer
#: replay: none
"""Eight programs go through all row tiles in turn."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["8"]
# text = ["BM"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# out = "out 0 f32"
# [constants]
# K = 16
# BM = 16
# [shapes]
# x = ["rows", "K"]
# out = ["rows", "K"]
# ///
@triton.jit
def kernel(x, rows, out, K: tl.constexpr, BM: tl.constexpr):
    m = tl.load(rows)
    for tile in range(tl.program_id(0), tl.cdiv(m, BM), 4):
        r = tile * BM + tl.arange(0, BM)
        at = r[:, None] * K + tl.arange(0, K)[None, :]
        v = tl.load(x + at, mask=(r < m)[:, None], other=0.0)
        tl.store(out + at, v * 2.0, mask=(r < m)[:, None])
