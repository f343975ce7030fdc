"""A short causal convolution over cached inputs, gated: attention with a window and fixed weights, one query tile and head a program.

Each channel is a weighted sum of its own last WINDOW inputs, oldest first, times the row's output gate, in FP32. Inputs before the
request's first are zero. There are KV_HEADS pairs (GROUP = 2) of heads of D channels, and a tile has room for DP. The first of a
pair lies in `cache_k`, the other in `cache_v`; `store_gated` writes them, and says what a row of the projection holds.

The loop runs over the logical pages of the request, by absolute index and in order, so a row's sum does not depend on its tile.
"""
import triton
import triton.language as tl


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
    table = tl.load(tile_table + tile)
    first = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)
    t = tl.arange(0, BQ)
    d = tl.arange(0, DP)
    p = start + t  # each lane's logical position
    wide = (d < D)[None, :]

    # Pages that any row of the tile sees. A padding tile (count = 0) sees none and reads no table.
    page_lo = tl.maximum(start - (WINDOW - 1), 0) // PAGE
    page_hi = tl.where(count > 0, (start + count + (PAGE - 1)) // PAGE, 0)
    acc = tl.zeros((BQ, DP), tl.float32)
    for i in range(page_lo, page_hi):
        page = tl.load(page_table + table + i)
        base = (page.to(tl.int64) * KV_HEADS + pair) * PAGE
        for w in tl.static_range(WINDOW):
            at = p - (WINDOW - 1) + w - i * PAGE  # the input's place in this page, if it lies there
            there = ((at >= 0) & (at < PAGE))[:, None]
            cell = (base + (at & (PAGE - 1)))[:, None] * D + d[None, :]
            if half == 0:
                x = tl.load(cache_k + cell, mask=there & wide, other=0.0)
            else:
                x = tl.load(cache_v + cell, mask=there & wide, other=0.0)
            tap = tl.load(taps + (((pair * GROUP + half) * D + d) * WINDOW + w), mask=d < D, other=0.0)
            acc = tl.where(there, acc + x.to(tl.float32) * tap[None, :], acc)
    row = (first + t).to(tl.int64)[:, None]
    live = (t < count)[:, None] & wide
    gate = tl.load(fused + (((row * (3 * KV_HEADS) + KV_HEADS + pair) * GROUP + half) * D + d[None, :]), mask=live, other=0.0)
    result = gate.to(tl.float32) * acc
    tl.store(out + (((row * KV_HEADS + pair) * GROUP + half) * D + d[None, :]), result.to(out.dtype.element_ty), mask=live)
