"""Writes each row's gated input, the product of two parts of a projection, to its slot of the paged cache: what `any_short_conv` reads.

A head has 2 * D channels: the first half is stored as keys are, the second as values are. What is not finite is stored as 0.
The bound is the largest BF16, so that the cast does not overflow either.
"""
import triton
import triton.language as tl


@triton.jit
def half(fused, m, row, gate, x, PACKED, D: tl.constexpr, BM: tl.constexpr):
    """The product of two heads of the rows, finite."""
    LARGEST: tl.constexpr = 3.3895313892515355e38
    a = tl.make_block_ptr(fused, (m, PACKED * D), (PACKED * D, 1), (row, gate * D), (BM, D), (1, 0))
    b = tl.make_block_ptr(fused, (m, PACKED * D), (PACKED * D, 1), (row, x * D), (BM, D), (1, 0))
    gated = tl.load(a, boundary_check=(0,), padding_option="zero").to(tl.float32)
    gated = gated * tl.load(b, boundary_check=(0,), padding_option="zero").to(tl.float32)
    return tl.where(tl.abs(gated) <= LARGEST, gated, 0.0)


# /// contract
# shape = "store_kv"
# grid = ["cdiv(rows, BM)", "KV_HEADS"]
# where = ["GATE + 2 * KV_HEADS <= PACKED", "INPUT + 2 * KV_HEADS <= PACKED"]
# [params]
# fused = "in 0"
# rows = "rows"
# slots = "slots"
# cache_k = "cache_k"
# cache_v = "cache_v"
# KV_HEADS = "dim 1..4096"
# PACKED = "dim 1..65536"
# GATE = "dim 0..65536"
# INPUT = "dim 0..65536"
# [constants]
# D = 16
# PAGE = 8
# BM = 16
# [shapes]
# fused = ["rows", "PACKED", "D"]
# ///
@triton.jit
def kernel(fused, rows, slots, cache_k, cache_v, KV_HEADS, PACKED, GATE, INPUT, D: tl.constexpr, PAGE: tl.constexpr,
           BM: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    first = half(fused, m, row, GATE + 2 * head, INPUT + 2 * head, PACKED, D, BM)
    second = half(fused, m, row, GATE + 2 * head + 1, INPUT + 2 * head + 1, PACKED, D, BM)
    t = row + tl.arange(0, BM)
    slot = tl.load(slots + t, mask=t < m, other=0)
    line = ((slot // PAGE).to(tl.int64) * KV_HEADS + head) * PAGE + slot % PAGE
    cell = line[:, None] * D + tl.arange(0, D)[None, :]
    live = (t < m)[:, None]
    tl.store(cache_k + cell, first.to(cache_k.dtype.element_ty), mask=live)
    tl.store(cache_v + cell, second.to(cache_v.dtype.element_ty), mask=live)
