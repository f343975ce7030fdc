#: sibling: any_conv_silu_bias
#: mistake: the bias joins sums only in tiles of several rows, so decode leaves it out
#: fails: guard
#: replay: differs
"""A short causal convolution over cached inputs with a bias, and the SiLU of its sums: `any_conv_silu` for layers that add a bias.

One program has a query tile and a head. There are KV_HEADS pairs (GROUP = 2) of heads.
"""
import triton
import triton.language as tl
from convolution import convolved


# /// contract
# shape = "attend"
# grid = ["tiles", "KV_HEADS", "GROUP"]
# where = ["D <= DP"]
# [params]
# x = "in 0"
# tile_table = "tile_table"
# tile_row = "tile_row"
# tile_rows = "tile_rows"
# tile_pos = "tile_pos"
# page_table = "page_table"
# cache_k = "cache_k"
# cache_v = "cache_v"
# taps = "weight 0 f32"
# bias = "weight 1 f32"
# out = "out 0"
# KV_HEADS = "dim 1..4096"
# GROUP = "dim 1..2"
# D = "dim 1..512"
# [constants]
# PAGE = 16
# WINDOW = 4
# BQ = 4
# DP = 16
# [shapes]
# x = ["rows", "KV_HEADS", "GROUP", "D"]
# taps = ["KV_HEADS", "GROUP", "D", "WINDOW"]
# bias = ["KV_HEADS", "GROUP", "D"]
# out = ["rows", "KV_HEADS", "GROUP", "D"]
# ///
@triton.jit
def kernel(x, tile_table, tile_row, tile_rows, tile_pos, page_table, cache_k, cache_v, taps, bias, out, KV_HEADS, GROUP, D,
           WINDOW: tl.constexpr, PAGE: tl.constexpr, BQ: tl.constexpr, DP: tl.constexpr):
    tile = tl.program_id(0)
    pair = tl.program_id(1)
    half = tl.program_id(2)
    first = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    y = convolved(tile_table, tile_pos, page_table, cache_k, cache_v, taps, tile, count, pair, half, KV_HEADS, GROUP, D,
                  WINDOW, PAGE, BQ, DP)
    t = tl.arange(0, BQ)
    d = tl.arange(0, DP)[None, :]
    y = y + tl.where(count > 1, tl.load(bias + ((pair * GROUP + half) * D + d), mask=d < D, other=0.0), 0.0)
    y = y / (1.0 + tl.exp(-y))
    live = (t < count)[:, None] & (d < D)
    row = (first + t).to(tl.int64)[:, None]
    tl.store(out + (((row * KV_HEADS + pair) * GROUP + half) * D + d), y.to(out.dtype.element_ty), mask=live)
