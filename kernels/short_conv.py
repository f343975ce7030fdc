"""A short causal convolution over cached inputs, gated: attention with a window and fixed weights, one query tile and head a program.

A sum is multiplied by the row's output gate, in FP32. There are KV_HEADS pairs (GROUP = 2) of heads. `store_gated` writes the inputs,
and says what a row of the projection holds.
"""
import triton
import triton.language as tl
from convolution import convolved


# /// contract
# shape = "attend"
# grid = ["tiles", "KV_HEADS", "GROUP"]
# where = ["D <= DP", "HEIGHT <= BQ"]
# [params]
# fused = "in 0"
# tile_table = "tile_table"
# tile_row = "tile_row"
# tile_rows = "tile_rows"
# tile_pos = "tile_pos"
# page_table = "page_table"
# cache_k = "cache_k"
# cache_v = "cache_v"
# taps = "weight 0 f32"
# out = "out 0"
# KV_HEADS = "dim 1..4096"
# GROUP = "dim 1..2"
# D = "dim 1..512"
# HEIGHT = "dim 1..64"
# [shapes]
# fused = ["rows", "3 * KV_HEADS", "GROUP", "D"]
# taps = ["KV_HEADS", "GROUP", "D", "WINDOW"]
# out = ["rows", "KV_HEADS", "GROUP", "D"]
# ///
@triton.jit
def short_conv(fused, tile_table, tile_row, tile_rows, tile_pos, page_table, cache_k, cache_v, taps, out, KV_HEADS, GROUP, D,
               HEIGHT, WINDOW: tl.constexpr, PAGE: tl.constexpr, BQ: tl.constexpr, DP: tl.constexpr):
    tile = tl.program_id(0)
    pair = tl.program_id(1)
    half = tl.program_id(2)
    first = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    acc = convolved(tile_table, tile_pos, page_table, cache_k, cache_v, taps, tile, count, pair, half, KV_HEADS, GROUP, D,
                    WINDOW, PAGE, BQ, DP)
    t = tl.arange(0, BQ)
    d = tl.arange(0, DP)[None, :]
    live = (t < count)[:, None] & (d < D)
    row = (first + t).to(tl.int64)[:, None]
    gate = tl.load(fused + (((row * (3 * KV_HEADS) + KV_HEADS + pair) * GROUP + half) * D + d), mask=live, other=0.0)
    result = gate.to(tl.float32) * acc
    tl.store(out + (((row * KV_HEADS + pair) * GROUP + half) * D + d), result.to(out.dtype.element_ty), mask=live)
