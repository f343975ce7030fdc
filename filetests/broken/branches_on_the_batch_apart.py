#: sibling: branches_on_the_batch
#: mistake: one side of one branch adds another number
#: fails: guard
#: replay: differs
"""Twelve branches on the size of the batch, each with two equal sides: no combination of them is another sum."""
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
# K = 16
# BM = 16
# [shapes]
# x = ["rows", "K"]
# out = ["rows", "K"]
# ///
@triton.jit
def kernel(x, rows, out, K: tl.constexpr, BM: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    r = row + tl.arange(0, BM)
    at = r[:, None] * K + tl.arange(0, K)[None, :]
    v = tl.load(x + at, mask=(r < m)[:, None], other=0.0)
    if m > 7:
        v = v + 0.0
    else:
        v = v + 0.5
    if m > 57:
        v = v + 1.0
    else:
        v = v + 1.0
    if m > 107:
        v = v + 2.0
    else:
        v = v + 2.0
    if m > 157:
        v = v + 3.0
    else:
        v = v + 3.0
    if m > 207:
        v = v + 4.0
    else:
        v = v + 4.0
    if m > 257:
        v = v + 5.0
    else:
        v = v + 5.0
    if m > 307:
        v = v + 6.0
    else:
        v = v + 6.0
    if m > 357:
        v = v + 7.0
    else:
        v = v + 7.0
    if m > 407:
        v = v + 8.0
    else:
        v = v + 8.0
    if m > 457:
        v = v + 9.0
    else:
        v = v + 9.0
    if m > 507:
        v = v + 10.0
    else:
        v = v + 10.0
    if m > 557:
        v = v + 11.0
    else:
        v = v + 11.0
    tl.store(out + at, v, mask=(r < m)[:, None])
