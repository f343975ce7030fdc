"""The heads of a fused projection after it: queries are rotated, and keys and values go to their slots of the paged cache
`[pages, KV_HEADS, PAGE, 2 * HALF]`, the keys rotated.

A row of the projection has PACKED heads of 2 * HALF numbers; queries begin at head FIRST, keys at head K_FIRST, values at head
V_FIRST. Queries and keys are normed head by head if NORM is 1; values are normed without a weight if V_NORM is 1. Queries and
keys have tables of their own: a temperature multiplies queries only. A program has one head of some rows: the first HEADS programs
a query head, the next KV_HEADS a key and its value.
"""
import triton
import triton.language as tl
from rotation import columns, half, rotated


@triton.jit
def stored(qkv, positions, slots, cos, sin, norm_w, cache_k, cache_v, m, row, head, KV_HEADS, HALF, PACKED, K_FIRST,
           V_FIRST, NORM, V_NORM, EPS, PAGE: tl.constexpr, BM: tl.constexpr, HP: tl.constexpr):
    """Writes the key and the value of a KV head. A number that is not finite is stored as 0, because attention multiplies masked
    lanes by zero, and `0 * inf` is not 0. So is a number above the largest BF16, which the cast could make infinite."""
    LARGEST: tl.constexpr = 3.3895313892515355e38
    D = 2 * HALF
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


# /// contract
# shape = "store_kv"
# grid = ["cdiv(rows, BM)", "PROGRAMS"]
# where = [
#   "HEADS + KV_HEADS <= PROGRAMS",
#   "FIRST + HEADS <= PACKED",
#   "K_FIRST + KV_HEADS <= PACKED",
#   "V_FIRST + KV_HEADS <= PACKED",
#   "HALF <= HP",
# ]
# [params]
# qkv = "in 0"
# rows = "rows"
# positions = "positions"
# slots = "slots"
# cos = "weight 0 f32"
# sin = "weight 1 f32"
# norm_w = "weight 2 f32"
# k_cos = "weight 3 f32"
# k_sin = "weight 4 f32"
# k_norm_w = "weight 5 f32"
# out = "out 0"
# cache_k = "cache_k"
# cache_v = "cache_v"
# HEADS = "dim 1..4096"
# KV_HEADS = "dim 1..4096"
# PROGRAMS = "dim 1..8192"
# HALF = "dim 1..256"
# PACKED = "dim 1..4096"
# FIRST = "dim 0..4096"
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
# k_cos = ["context", "HALF"]
# k_sin = ["context", "HALF"]
# k_norm_w = ["2 * HALF"]
# out = ["rows", "HEADS", "2 * HALF"]
# ///
@triton.jit
def rope_store(qkv, rows, positions, slots, cos, sin, norm_w, k_cos, k_sin, k_norm_w, out, cache_k, cache_v, HEADS,
               KV_HEADS, PROGRAMS, HALF, PACKED, FIRST, K_FIRST, V_FIRST, NORM, V_NORM, EPS, PAGE: tl.constexpr,
               BM: tl.constexpr, HP: tl.constexpr):
    D = 2 * HALF
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    if head < HEADS:
        a, b = rotated(qkv, positions, cos, sin, norm_w, m, row, (FIRST + head) * D, PACKED * D, HALF, NORM, EPS, BM, HP)
        half(out, a, m, row, head * D, HEADS * D, HALF, BM, HP)
        half(out, b, m, row, head * D + HALF, HEADS * D, HALF, BM, HP)
    elif head < HEADS + KV_HEADS:
        stored(qkv, positions, slots, k_cos, k_sin, k_norm_w, cache_k, cache_v, m, row, head - HEADS, KV_HEADS, HALF,
               PACKED, K_FIRST, V_FIRST, NORM, V_NORM, EPS, PAGE, BM, HP)
