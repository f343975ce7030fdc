"""Writes each row's inputs of a short convolution to its slot of the paged cache: what `any_conv_silu` reads."""
import triton
import triton.language as tl
from convolution import stored
from rotation import columns


# /// contract
# shape = "store_kv"
# grid = ["cdiv(rows, BM)", "KV_HEADS"]
# where = ["D <= DP"]
# [params]
# x = "in 0"
# rows = "rows"
# slots = "slots"
# cache_k = "cache_k"
# cache_v = "cache_v"
# KV_HEADS = "dim 1..4096"
# D = "dim 1..512"
# [constants]
# PAGE = 16
# BM = 4
# DP = 16
# [shapes]
# x = ["rows", "2 * KV_HEADS", "D"]
# ///
@triton.jit
def kernel(x, rows, slots, cache_k, cache_v, KV_HEADS, D, PAGE: tl.constexpr, BM: tl.constexpr, DP: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    head = tl.program_id(1)
    k = columns(x, m, row, 2 * head * D, 2 * KV_HEADS * D, D, BM, DP)
    v = columns(x, m, row, (2 * head + 1) * D, 2 * KV_HEADS * D, D, BM, DP)
    stored(k, v, m, row, head, slots, cache_k, cache_v, KV_HEADS, D, PAGE, BM, DP)
