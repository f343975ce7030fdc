"""Writes each row's gated input to its slot of the paged cache `[pages, KV_HEADS, PAGE, D]`: what `short_conv` reads.

A row of the projection has three parts of 2 * KV_HEADS heads of D channels: the gate of the input, the gate of the output, and the
input. An entry is the product of the first and the last. Heads with even numbers are stored as keys are, the others as values are.
What is not finite is stored as 0, and so is what the cast could make infinite.
"""
import triton
import triton.language as tl
from rotation import columns


@triton.jit
def gated(fused, m, row, head, KV_HEADS, D, BM: tl.constexpr, DP: tl.constexpr):
    """The gated inputs of a head, finite."""
    LARGEST: tl.constexpr = 3.3895313892515355e38
    gate = columns(fused, m, row, head * D, 6 * KV_HEADS * D, D, BM, DP)
    x = columns(fused, m, row, (4 * KV_HEADS + head) * D, 6 * KV_HEADS * D, D, BM, DP)
    product = gate * x
    return tl.where(tl.abs(product) <= LARGEST, product, 0.0)


# /// contract
# shape = "store_kv"
# grid = ["cdiv(rows, BM)", "KV_HEADS"]
# where = ["D <= DP"]
# [params]
# fused = "in 0"
# rows = "rows"
# slots = "slots"
# cache_k = "cache_k"
# cache_v = "cache_v"
# KV_HEADS = "dim 1..4096"
# D = "dim 1..512"
# [shapes]
# fused = ["rows", "6 * KV_HEADS", "D"]
# ///
@triton.jit
def store_gated(fused, rows, slots, cache_k, cache_v, KV_HEADS, D, PAGE: tl.constexpr, BM: tl.constexpr, DP: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    k = gated(fused, m, row, 2 * head, KV_HEADS, D, BM, DP)
    v = gated(fused, m, row, 2 * head + 1, KV_HEADS, D, BM, DP)

    t = row + tl.arange(0, BM)
    d = tl.arange(0, DP)[None, :]
    slot = tl.load(slots + t, mask=t < m, other=0)
    line = ((slot // PAGE).to(tl.int64) * KV_HEADS + head) * PAGE + slot % PAGE
    cell = line[:, None] * D + d
    live = (t < m)[:, None] & (d < D)
    tl.store(cache_k + cell, k.to(cache_k.dtype.element_ty), mask=live)
    tl.store(cache_v + cell, v.to(cache_v.dtype.element_ty), mask=live)
