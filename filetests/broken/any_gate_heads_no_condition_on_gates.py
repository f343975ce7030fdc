#: sibling: any_gate_heads
#: mistake: nothing says that the gates lie within a row of the projection
#: fails: in-bounds
#: replay: differs
"""Attention's output times a gate: each number times the sigmoid of its own number in the fused projection.

A row of the fused projection has PACKED heads of D numbers; the gates' heads begin at head FIRST.
"""
import triton
import triton.language as tl
from rotation import columns


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "HEADS"]
# where = ["D <= DP"]
# [params]
# x = "in 0"
# fused = "in 1"
# rows = "rows"
# out = "out 0"
# HEADS = "dim 1..4096"
# D = "dim 1..512"
# PACKED = "dim 1..8192"
# FIRST = "dim 0..8192"
# [constants]
# BM = 4
# DP = 16
# [shapes]
# x = ["rows", "HEADS", "D"]
# fused = ["rows", "PACKED", "D"]
# out = ["rows", "HEADS", "D"]
# ///
@triton.jit
def kernel(x, fused, rows, out, HEADS, D, PACKED, FIRST, BM: tl.constexpr, DP: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    value = columns(x, m, row, head * D, HEADS * D, D, BM, DP)
    gate = columns(fused, m, row, (FIRST + head) * D, PACKED * D, D, BM, DP)
    y = value / (1.0 + tl.exp(-gate))
    tile = tl.make_block_ptr(out + head * D, (m, D), (HEADS * D, 1), (row, 0), (BM, DP), (1, 0))
    tl.store(tile, y.to(out.dtype.element_ty), boundary_check=(0, 1))
