"""Writes each row's gated input to its slot of the paged cache `[pages, KV_HEADS, PAGE, D]`: what `short_conv` reads.

A row of the projection has three parts of 2 * KV_HEADS heads of D channels: the gate of the input, the gate of the output, and the
input. An entry is the product of the first and the last. Heads with even numbers are stored as keys are, the others as values are.
What is not finite is stored as 0, and so is what the cast could make infinite.
"""
import triton
import triton.language as tl
from convolution import stored
from rotation import columns


@triton.jit
def gated(fused, m, row, head, KV_HEADS, D, BM: tl.constexpr, DP: tl.constexpr):
    """The gated inputs of a head."""
    gate = columns(fused, m, row, head * D, 6 * KV_HEADS * D, D, BM, DP)
    x = columns(fused, m, row, (4 * KV_HEADS + head) * D, 6 * KV_HEADS * D, D, BM, DP)
    return gate * x


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
    stored(k, v, m, row, head, slots, cache_k, cache_v, KV_HEADS, D, PAGE, BM, DP)
