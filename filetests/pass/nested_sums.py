"""Sums inside of sums of as many terms: `out[t, :] = sum_k ((x[t] w)[k] + (sum x[t] if k = 0))`.

A sum's terms are compared at every lane of its own, whatever lane of the other sum is looked at.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# [params]
# x = "in 0"
# rows = "rows"
# w = "weight 0"
# out = "out 0 f32"
# [constants]
# BM = 16
# D = 16
# [shapes]
# x = ["rows", "D"]
# w = ["D", "D"]
# out = ["rows", "D"]
# ///
@triton.jit
def kernel(x, rows, w, out, BM: tl.constexpr, D: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    t = row + tl.arange(0, BM)
    k = tl.arange(0, D)
    a = tl.load(x + (t[:, None] * D + k[None, :]), mask=(t < m)[:, None], other=0.0)
    b = tl.load(w + (k[:, None] * D + k[None, :]))
    product = tl.dot(a, b, tl.zeros((BM, D), tl.float32), input_precision="ieee")
    own = a.to(tl.float32)
    whole = tl.sum(own, 1)
    terms = product + tl.where(k[None, :] == 0, whole[:, None], 0.0)
    y = tl.sum(terms, 1)[:, None] + tl.zeros((BM, D), tl.float32)
    tl.store(out + (t[:, None] * D + k[None, :]), y, mask=(t < m)[:, None])
