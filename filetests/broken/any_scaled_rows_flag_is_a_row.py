#: sibling: any_scaled_rows
#: mistake: the flag moves the row, not the weight
#: fails: in-bounds
#: replay: differs
"""Each row times a weight of its columns; a flag chooses between two weights. Raw pointers, any width."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# w = "weight 0 f32"
# out = "out 0 f32"
# N = "dim 1..1048576"
# FLAG = "dim 0..1"
# [constants]
# BM = 4
# BN = 16
# [shapes]
# x = ["rows", "N"]
# w = ["2", "N"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, rows, w, out, N, FLAG, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    live = (row < m)[:, None] & (col < N)[None, :]
    at = row.to(tl.int64)[:, None] * N + col[None, :]
    v = tl.load(x + at + FLAG.to(tl.int64) * N, mask=live, other=0.0)
    scale = tl.load(w + (col.to(tl.int64) ), mask=col < N, other=0.0)
    tl.store(out + at, v * scale[None, :], mask=live)
