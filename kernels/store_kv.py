"""Writes each row's key and value to its slot of the paged cache `[pages, KV_HEADS, PAGE, 2 * HALF]`.

A row of the fused projection has PACKED heads of 2 * HALF numbers; keys begin at head K_FIRST, values at head V_FIRST.
Keys are normed head by head if NORM is 1, then rotated; values are normed without a weight if V_NORM is 1.
A number that is not finite is stored as 0, because attention multiplies masked lanes by zero, and `0 * inf` is not 0.
So is a number above the largest BF16, which the cast could make infinite.
"""
import triton
import triton.language as tl
from rotation import columns, rotated


# /// contract
# shape = "store_kv"
# grid = ["cdiv(rows, BM)", "KV_HEADS"]
# where = ["K_FIRST + KV_HEADS <= PACKED", "V_FIRST + KV_HEADS <= PACKED", "HALF <= HP"]
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
# HALF = "dim 1..256"
# PACKED = "dim 1..4096"
# K_FIRST = "dim 0..4096"
# V_FIRST = "dim 0..4096"
# NORM = "dim 0..1"
# V_NORM = "dim 0..1"
# EPS = "number"
# [shapes]
# qkv = ["rows", "PACKED", "2 * HALF"]
# cos = ["context", "HALF"]
# sin = ["context", "HALF"]
# norm_w = ["2 * HALF"]
# ///
@triton.jit
def store_kv(qkv, rows, positions, slots, cos, sin, norm_w, cache_k, cache_v, KV_HEADS, HALF, PACKED, K_FIRST, V_FIRST,
             NORM, V_NORM, EPS, PAGE: tl.constexpr, BM: tl.constexpr, HP: tl.constexpr):
    LARGEST: tl.constexpr = 3.3895313892515355e38
    D = 2 * HALF
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    k_a, k_b = rotated(qkv, positions, cos, sin, norm_w, m, row, (K_FIRST + head) * D, PACKED * D, HALF, NORM, EPS, BM,
                       HP)
    v = columns(qkv, m, row, (V_FIRST + head) * D, PACKED * D, D, BM, 2 * HP)
    if V_NORM == 1:
        v = v * tl.rsqrt(tl.sum(v * v, 1) / D + EPS)[:, None]
    k_a = tl.where(tl.abs(k_a) <= LARGEST, k_a, 0.0).to(cache_k.dtype.element_ty)
    k_b = tl.where(tl.abs(k_b) <= LARGEST, k_b, 0.0).to(cache_k.dtype.element_ty)
    v = tl.where(tl.abs(v) <= LARGEST, v, 0.0).to(cache_v.dtype.element_ty)

    t = row + tl.arange(0, BM)
    live = (t < m)[:, None]
    d = tl.arange(0, HP)[None, :]
    e = tl.arange(0, 2 * HP)[None, :]
    slot = tl.load(slots + t, mask=t < m, other=0)
    line = ((slot // PAGE).to(tl.int64) * KV_HEADS + head) * PAGE + slot % PAGE
    cell = line[:, None] * D + d
    tl.store(cache_k + cell, k_a, mask=live & (d < HALF))
    tl.store(cache_k + (cell + HALF), k_b, mask=live & (d < HALF))
    tl.store(cache_v + (line[:, None] * D + e), v, mask=live & (e < D))
