#: sibling: any_rope_q_ragged
#: mistake: the first half is stored over the second
#: fails: in-bounds
#: replay: differs
"""Rotary position embedding of the query heads, after an RMS norm per head when NORM is 1.

Head `h` lies in columns `OFFSET + h * D` of the fused projection; the rotation pairs column d with
d + D / 2. `cos` and `sin` are FP32 tables `[context, D / 2]`. All heads lie in the projection: the condition says so.
"""
import triton
import triton.language as tl
from rotation import rotated


@triton.jit
def half(out, x, m, row, col, WIDTH, HALF: tl.constexpr, BM: tl.constexpr):
    ROOM: tl.constexpr = triton.next_power_of_2(HALF)
    if HALF == ROOM:
        tile = tl.make_block_ptr(out, (m, WIDTH), (WIDTH, 1), (row, col), (BM, ROOM), (1, 0))
        tl.store(tile, x.to(out.dtype.element_ty), boundary_check=(0,))
    else:
        tile = tl.make_block_ptr(out, (m, col + HALF), (WIDTH, 1), (row, col), (BM, ROOM), (1, 0))
        tl.store(tile, x.to(out.dtype.element_ty), boundary_check=(0,))


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "HEADS"]
# where = ["OFFSET + HEADS * D <= STRIDE"]
# text = ["NORM"]
# [params]
# qkv = "in 0"
# rows = "rows"
# positions = "positions"
# cos = "weight 0 f32"
# sin = "weight 1 f32"
# norm_w = "weight 2 f32"
# out = "out 0"
# HEADS = "dim 1..4096"
# STRIDE = "dim 1..1048576"
# OFFSET = "dim 0..1048576"
# EPS = "number"
# [constants]
# D = 24
# NORM = 1
# BM = 16
# [shapes]
# qkv = ["rows", "STRIDE"]
# cos = ["context", "D / 2"]
# sin = ["context", "D / 2"]
# norm_w = ["D"]
# out = ["rows", "HEADS", "D"]
# ///
@triton.jit
def kernel(qkv, rows, positions, cos, sin, norm_w, out, HEADS, STRIDE, OFFSET, EPS, D: tl.constexpr,
           NORM: tl.constexpr, BM: tl.constexpr):
    HALF: tl.constexpr = D // 2
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    a, b = rotated(qkv, positions, cos, sin, norm_w, m, row, OFFSET + head * D, STRIDE, EPS, D, NORM, BM)
    half(out, a, m, row, head * D, HEADS * D, HALF, BM)
    half(out, b, m, row, head * D + HALF, HEADS * D, HALF, BM)
