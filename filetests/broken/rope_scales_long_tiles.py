#: sibling: rope_q
#: mistake: the frequencies change when a position of the tile is large
#: fails: guard
#: replay: differs
"""Rotary position embedding of the query heads, after an RMS norm per head when NORM is 1.

Head `h` lies in columns `OFFSET + h * D` of the fused projection; the rotation pairs column d with
d + D / 2. `cos` and `sin` are FP32 tables `[context, D / 2]`.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "HEADS"]
# text = ["OFFSET", "NORM", "EPS"]
# [params]
# qkv = "in 0"
# rows = "rows"
# positions = "positions"
# cos = "weight 0 f32"
# sin = "weight 1 f32"
# norm_w = "weight 2 f32"
# out = "out 0"
# [constants]
# HEADS = 2
# D = 16
# STRIDE = 64
# OFFSET = 0
# NORM = 1
# EPS = 1e-6
# BM = 16
# [shapes]
# qkv = ["rows", "STRIDE"]
# cos = ["context", "D / 2"]
# sin = ["context", "D / 2"]
# norm_w = ["D"]
# out = ["rows", "HEADS * D"]
# ///
@triton.jit
def kernel(qkv, rows, positions, cos, sin, norm_w, out, HEADS: tl.constexpr, D: tl.constexpr, STRIDE: tl.constexpr,
           OFFSET: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr, BM: tl.constexpr):
    HALF: tl.constexpr = D // 2
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    col = OFFSET + head * D
    a_tile = tl.make_block_ptr(qkv, (m, STRIDE), (STRIDE, 1), (row, col), (BM, HALF), (1, 0))
    b_tile = tl.make_block_ptr(qkv, (m, STRIDE), (STRIDE, 1), (row, col + HALF), (BM, HALF), (1, 0))
    a = tl.load(a_tile, boundary_check=(0,), padding_option="zero").to(tl.float32)
    b = tl.load(b_tile, boundary_check=(0,), padding_option="zero").to(tl.float32)
    d = tl.arange(0, HALF)
    if NORM:
        scale = tl.rsqrt(tl.sum(a * a + b * b, 1) / D + EPS)
        a = a * scale[:, None] * tl.load(norm_w + d)[None, :]
        b = b * scale[:, None] * tl.load(norm_w + HALF + d)[None, :]

    t = row + tl.arange(0, BM)
    position = tl.load(positions + t, mask=t < m, other=0)
    entry = position[:, None] * HALF + d[None, :]
    far = tl.max(position, 0) > 100
    a = tl.where(far, a * 0.5, a)
    c = tl.load(cos + entry, mask=(t < m)[:, None], other=0.0)
    s = tl.load(sin + entry, mask=(t < m)[:, None], other=0.0)
    out_a = tl.make_block_ptr(out, (m, HEADS * D), (HEADS * D, 1), (row, head * D), (BM, HALF), (1, 0))
    out_b = tl.make_block_ptr(out, (m, HEADS * D), (HEADS * D, 1), (row, head * D + HALF), (BM, HALF), (1, 0))
    tl.store(out_a, (a * c - b * s).to(out.dtype.element_ty), boundary_check=(0,))
    tl.store(out_b, (b * c + a * s).to(out.dtype.element_ty), boundary_check=(0,))
