#: sibling: store_kv
#: mistake: values are stored by the program of the first head only
#: fails: coverage
#: replay: differs
"""Writes each row's key and value to its slot of the paged cache `[pages, KV_HEADS, PAGE, D]`.

Keys are rotated.
What is not finite is stored as 0: attention multiplies masked lanes by zero, and `0 * inf` is not 0.
The bound is the largest BF16, so that the cast does not overflow either.
"""
import triton
import triton.language as tl


# /// contract
# shape = "store_kv"
# grid = ["cdiv(rows, BM)", "KV_HEADS"]
# text = ["K_OFFSET", "V_OFFSET"]
# [params]
# qkv = "in 0"
# rows = "rows"
# positions = "positions"
# slots = "slots"
# cos = "weight 0 f32"
# sin = "weight 1 f32"
# cache_k = "cache_k"
# cache_v = "cache_v"
# [constants]
# KV_HEADS = 2
# D = 16
# PAGE = 8
# STRIDE = 96
# K_OFFSET = 32
# V_OFFSET = 64
# BM = 16
# [shapes]
# qkv = ["rows", "STRIDE"]
# cos = ["context", "D / 2"]
# sin = ["context", "D / 2"]
# ///
@triton.jit
def kernel(qkv, rows, positions, slots, cos, sin, cache_k, cache_v, KV_HEADS: tl.constexpr, D: tl.constexpr,
             PAGE: tl.constexpr, STRIDE: tl.constexpr, K_OFFSET: tl.constexpr, V_OFFSET: tl.constexpr,
             BM: tl.constexpr):
    LARGEST: tl.constexpr = 3.3895313892515355e38
    HALF: tl.constexpr = D // 2
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    col = K_OFFSET + head * D
    a_tile = tl.make_block_ptr(qkv, (m, STRIDE), (STRIDE, 1), (row, col), (BM, HALF), (1, 0))
    b_tile = tl.make_block_ptr(qkv, (m, STRIDE), (STRIDE, 1), (row, col + HALF), (BM, HALF), (1, 0))
    v_tile = tl.make_block_ptr(qkv, (m, STRIDE), (STRIDE, 1), (row, V_OFFSET + head * D), (BM, D), (1, 0))
    a = tl.load(a_tile, boundary_check=(0,), padding_option="zero").to(tl.float32)
    b = tl.load(b_tile, boundary_check=(0,), padding_option="zero").to(tl.float32)
    v = tl.load(v_tile, boundary_check=(0,), padding_option="zero").to(tl.float32)
    d = tl.arange(0, HALF)
    t = row + tl.arange(0, BM)
    live = (t < m)[:, None]
    position = tl.load(positions + t, mask=t < m, other=0)
    entry = position[:, None] * HALF + d[None, :]
    c = tl.load(cos + entry, mask=live, other=0.0)
    s = tl.load(sin + entry, mask=live, other=0.0)
    k_a = a * c - b * s
    k_b = b * c + a * s
    k_a = tl.where(tl.abs(k_a) <= LARGEST, k_a, 0.0).to(cache_k.dtype.element_ty)
    k_b = tl.where(tl.abs(k_b) <= LARGEST, k_b, 0.0).to(cache_k.dtype.element_ty)
    v = tl.where(tl.abs(v) <= LARGEST, v, 0.0).to(cache_v.dtype.element_ty)

    slot = tl.load(slots + t, mask=t < m, other=0)
    line = ((slot // PAGE).to(tl.int64) * KV_HEADS + head) * PAGE + slot % PAGE
    cell = line[:, None] * D + d[None, :]
    tl.store(cache_k + cell, k_a, mask=live)
    tl.store(cache_k + (cell + HALF), k_b, mask=live)
    tl.store(cache_v + (line[:, None] * D + tl.arange(0, D)[None, :]), v, mask=live & (head == 0))
