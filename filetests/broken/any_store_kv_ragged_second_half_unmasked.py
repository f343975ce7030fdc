#: sibling: any_store_kv_ragged
#: mistake: the second half goes on into the next slot
#: fails: in-bounds
#: replay: differs
"""Writes each row's key and value to its slot of the paged cache `[pages, KV_HEADS, PAGE, D]`.

Keys are normed per head (NORM) and rotated; values are normed without a weight when V_NORM is 1.
What is not finite is stored as 0: attention multiplies masked lanes by zero, and `0 * inf` is not 0.
The bound is the largest BF16, so that the cast does not overflow either. All heads of keys and of values lie in the
projection: the conditions say so.
"""
import triton
import triton.language as tl
from rotation import columns, rotated


# /// contract
# shape = "store_kv"
# grid = ["cdiv(rows, BM)", "KV_HEADS"]
# where = ["K_OFFSET + KV_HEADS * D <= STRIDE", "V_OFFSET + KV_HEADS * D <= STRIDE"]
# text = ["NORM", "V_NORM"]
# [params]
# qkv = "in 0"
# rows = "rows"
# positions = "positions"
# slots = "slots"
# cos = "weight 0 f32"
# sin = "weight 1 f32"
# norm_w = "weight 2 f32"
# cache_k = "cache_k"
# cache_v = "cache_v"
# KV_HEADS = "dim 1..4096"
# STRIDE = "dim 1..1048576"
# K_OFFSET = "dim 0..1048576"
# V_OFFSET = "dim 0..1048576"
# EPS = "number"
# [constants]
# D = 24
# PAGE = 16
# NORM = 1
# V_NORM = 1
# BM = 16
# [shapes]
# qkv = ["rows", "STRIDE"]
# cos = ["context", "D / 2"]
# sin = ["context", "D / 2"]
# norm_w = ["D"]
# ///
@triton.jit
def kernel(qkv, rows, positions, slots, cos, sin, norm_w, cache_k, cache_v, KV_HEADS, STRIDE, K_OFFSET, V_OFFSET, EPS,
             D: tl.constexpr, PAGE: tl.constexpr, NORM: tl.constexpr, V_NORM: tl.constexpr, BM: tl.constexpr):
    LARGEST: tl.constexpr = 3.3895313892515355e38
    HALF: tl.constexpr = D // 2
    RAGGED: tl.constexpr = D < triton.next_power_of_2(D)
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    k_a, k_b = rotated(qkv, positions, cos, sin, norm_w, m, row, K_OFFSET + head * D, STRIDE, EPS, D, NORM, BM)
    v = columns(qkv, m, row, V_OFFSET + head * D, STRIDE, D, BM)
    if V_NORM:
        v = v * tl.rsqrt(tl.sum(v * v, 1) / D + EPS)[:, None]
    k_a = tl.where(tl.abs(k_a) <= LARGEST, k_a, 0.0).to(cache_k.dtype.element_ty)
    k_b = tl.where(tl.abs(k_b) <= LARGEST, k_b, 0.0).to(cache_k.dtype.element_ty)
    v = tl.where(tl.abs(v) <= LARGEST, v, 0.0).to(cache_v.dtype.element_ty)

    t = row + tl.arange(0, BM)
    live = (t < m)[:, None]
    d = tl.arange(0, triton.next_power_of_2(HALF))[None, :]
    e = tl.arange(0, triton.next_power_of_2(D))[None, :]
    slot = tl.load(slots + t, mask=t < m, other=0)
    line = ((slot // PAGE).to(tl.int64) * KV_HEADS + head) * PAGE + slot % PAGE
    cell = line[:, None] * D + d
    tl.store(cache_k + cell, k_a, mask=live & (d < HALF) if RAGGED else live)
    tl.store(cache_k + (cell + HALF), k_b, mask=live)
    tl.store(cache_v + (line[:, None] * D + e), v, mask=live & (e < D) if RAGGED else live)
