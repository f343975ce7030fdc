#: sibling: any_skip_gated
#: mistake: the gates are those of the row after
#: fails: guard
#: replay: differs
"""The results of a Mamba 2 layer before their norm, in FP32: each head's results and its values times a weight, times the SiLU of a gate."""
import triton
import triton.language as tl
from rotation import columns


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "HEADS"]
# where = ["D <= DP"]
# [params]
# y = "in 0 f32"
# x = "in 1 f32"
# z = "in 2"
# rows = "rows"
# skip = "weight 0 f32"
# out = "out 0 f32"
# HEADS = "dim 1..1024"
# D = "dim 1..256"
# [constants]
# BM = 4
# DP = 16
# [shapes]
# y = ["rows", "HEADS", "D"]
# x = ["rows", "HEADS", "D"]
# z = ["rows", "HEADS", "D"]
# skip = ["HEADS"]
# out = ["rows", "HEADS", "D"]
# ///
@triton.jit
def kernel(y, x, z, rows, skip, out, HEADS, D, BM: tl.constexpr, DP: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    width = HEADS * D
    result = columns(y, m, row, head * D, width, D, BM, DP)
    value = columns(x, m, row, head * D, width, D, BM, DP)
    gate = columns(z, m, row + 1, head * D, width, D, BM, DP)
    total = (result + tl.load(skip + head) * value) * (gate / (1.0 + tl.exp(-gate)))
    tile = tl.make_block_ptr(out + head * D, (m, D), (width, 1), (row, 0), (BM, DP), (1, 0))
    tl.store(tile, total, boundary_check=(0, 1))
