"""Rotary position embedding of the query heads, after an RMS norm of each head if NORM is 1.

A row of the fused projection has PACKED heads of 2 * HALF numbers; the queries' heads begin at head FIRST. The rotation pairs
number d of a head with number d + HALF. `cos` and `sin` are FP32 tables `[context, HALF]`.
"""
import triton
import triton.language as tl
from rotation import half, rotated


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "HEADS"]
# where = ["FIRST + HEADS <= PACKED", "HALF <= HP"]
# [params]
# qkv = "in 0"
# rows = "rows"
# positions = "positions"
# cos = "weight 0 f32"
# sin = "weight 1 f32"
# norm_w = "weight 2 f32"
# out = "out 0"
# HEADS = "dim 1..4096"
# HALF = "dim 1..256"
# PACKED = "dim 1..4096"
# FIRST = "dim 0..4096"
# NORM = "dim 0..1"
# EPS = "number"
# [shapes]
# qkv = ["rows", "PACKED", "2 * HALF"]
# cos = ["context", "HALF"]
# sin = ["context", "HALF"]
# norm_w = ["2 * HALF"]
# out = ["rows", "HEADS", "2 * HALF"]
# ///
@triton.jit
def rope_q(qkv, rows, positions, cos, sin, norm_w, out, HEADS, HALF, PACKED, FIRST, NORM, EPS, BM: tl.constexpr,
           HP: tl.constexpr):
    D = 2 * HALF
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    a, b = rotated(qkv, positions, cos, sin, norm_w, m, row, (FIRST + head) * D, PACKED * D, HALF, NORM, EPS, BM, HP)
    half(out, a, m, row, head * D, HEADS * D, HALF, BM, HP)
    half(out, b, m, row, head * D + HALF, HEADS * D, HALF, BM, HP)
