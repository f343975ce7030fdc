#: sibling: any_codebook
#: mistake: a number goes by the index of the row behind it
#: fails: dependency
#: replay: differs
"""Numbers of a book that the input's own integers choose: `out[t, n] = book[ids[t, n]]`. An index outside of the book counts as
the nearest one."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# [params]
# ids = "in 0 i32"
# rows = "rows"
# book = "weight 0"
# out = "out 0"
# N = "dim 1..1048576"
# E = "dim 1..4096"
# [constants]
# BM = 4
# BN = 16
# [shapes]
# ids = ["rows", "N"]
# book = ["E"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(ids, rows, book, out, N, E, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    live = (t < m)[:, None] & (n < N)[None, :]
    at = t.to(tl.int64)[:, None] * N + n[None, :]
    chosen = tl.load(ids + (at + N), mask=live & (t + 1 < m)[:, None], other=0)
    chosen = tl.minimum(tl.maximum(chosen, 0), E - 1)
    tl.store(out + at, tl.load(book + chosen, mask=live, other=0.0), mask=live)
