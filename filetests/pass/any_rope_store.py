"""One launch for two ops: the first HEADS programs of a row tile rotate a query head, the next KV_HEADS write a key, rotated, and
its value to the row's slot of the paged cache `[pages, KV_HEADS, PAGE, D]`."""
import triton
import triton.language as tl


@triton.jit
def rotated(qkv, positions, cos, sin, m, row, col, STRIDE, D: tl.constexpr, BM: tl.constexpr):
    HALF: tl.constexpr = D // 2
    a_tile = tl.make_block_ptr(qkv, (m, STRIDE), (STRIDE, 1), (row, col), (BM, HALF), (1, 0))
    b_tile = tl.make_block_ptr(qkv, (m, STRIDE), (STRIDE, 1), (row, col + HALF), (BM, HALF), (1, 0))
    a = tl.load(a_tile, boundary_check=(0,), padding_option="zero").to(tl.float32)
    b = tl.load(b_tile, boundary_check=(0,), padding_option="zero").to(tl.float32)
    t = row + tl.arange(0, BM)
    position = tl.load(positions + t, mask=t < m, other=0)
    entry = position[:, None] * HALF + tl.arange(0, HALF)[None, :]
    live = (t < m)[:, None]
    c = tl.load(cos + entry, mask=live, other=0.0)
    s = tl.load(sin + entry, mask=live, other=0.0)
    return a * c - b * s, b * c + a * s


@triton.jit
def finite(x):
    return tl.where(tl.abs(x) <= 3.3895313892515355e38, x, 0.0)


# /// contract
# shape = "store_kv"
# grid = ["cdiv(rows, BM)", "PROGRAMS"]
# where = ["HEADS + KV_HEADS <= PROGRAMS", "HEADS * D + 2 * KV_HEADS * D <= STRIDE"]
# [params]
# qkv = "in 0"
# rows = "rows"
# positions = "positions"
# slots = "slots"
# cos = "weight 0 f32"
# sin = "weight 1 f32"
# out = "out 0"
# cache_k = "cache_k"
# cache_v = "cache_v"
# HEADS = "dim 1..4096"
# KV_HEADS = "dim 1..4096"
# PROGRAMS = "dim 1..8192"
# STRIDE = "dim 1..1048576"
# [constants]
# D = 16
# PAGE = 8
# BM = 16
# [shapes]
# qkv = ["rows", "STRIDE"]
# cos = ["context", "D / 2"]
# sin = ["context", "D / 2"]
# out = ["rows", "HEADS", "D"]
# ///
@triton.jit
def kernel(qkv, rows, positions, slots, cos, sin, out, cache_k, cache_v, HEADS, KV_HEADS, PROGRAMS, STRIDE,
           D: tl.constexpr, PAGE: tl.constexpr, BM: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    t = row + tl.arange(0, BM)
    live = (t < m)[:, None]
    d = tl.arange(0, D // 2)[None, :]
    if head < HEADS:
        a, b = rotated(qkv, positions, cos, sin, m, row, head * D, STRIDE, D, BM)
        cell = t.to(tl.int64)[:, None] * (HEADS * D) + head * D + d
        tl.store(out + cell, a.to(out.dtype.element_ty), mask=live)
        tl.store(out + (cell + D // 2), b.to(out.dtype.element_ty), mask=live)
    elif head < HEADS + KV_HEADS:
        a, b = rotated(qkv, positions, cos, sin, m, row, head * D, STRIDE, D, BM)
        v_tile = tl.make_block_ptr(qkv, (m, STRIDE), (STRIDE, 1), (row, (head + KV_HEADS) * D), (BM, D), (1, 0))
        v = tl.load(v_tile, boundary_check=(0,), padding_option="zero").to(tl.float32)
        slot = tl.load(slots + t, mask=t < m, other=0)
        line = ((slot // PAGE).to(tl.int64) * KV_HEADS + (head - HEADS)) * PAGE + slot % PAGE
        cell = line[:, None] * D + d
        tl.store(cache_k + cell, finite(a).to(cache_k.dtype.element_ty), mask=live)
        tl.store(cache_k + (cell + D // 2), finite(b).to(cache_k.dtype.element_ty), mask=live)
        tl.store(cache_v + (line[:, None] * D + tl.arange(0, D)[None, :]), finite(v).to(cache_v.dtype.element_ty), mask=live)
