#: sibling: any_short_conv_fused
#: mistake: a row of the output has three parts too, and two of them are never written
#: fails: contract
#: replay: none
"""A short causal convolution over cached inputs, gated: attention with a window and fixed weights, one query tile, head and half a program.

Each channel is a weighted sum of its own last WINDOW inputs, oldest first, times the gate of the row. A head has 2 * D channels:
the inputs of the first half lie in `cache_k`, those of the second in `cache_v`. Positions before the request's first are zero.
A row of the projection has three parts, and the second is the gate.
The loop runs over the logical pages of the request, by absolute index and in order, so a row's sum does not depend on its tile.
"""
import triton
import triton.language as tl


# /// contract
# shape = "attend"
# grid = ["tiles", "KV_HEADS", "GROUP"]
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
# [constants]
# D = 16
# WINDOW = 4
# PAGE = 16
# BQ = 4
# [shapes]
# fused = ["rows", "3 * KV_HEADS", "GROUP", "D"]
# taps = ["WINDOW", "KV_HEADS", "GROUP", "D"]
# out = ["rows", "3 * KV_HEADS", "GROUP", "D"]
# ///
@triton.jit
def kernel(fused, tile_table, tile_row, tile_rows, tile_pos, page_table, cache_k, cache_v, taps, out, KV_HEADS, GROUP,
           D: tl.constexpr, WINDOW: tl.constexpr, PAGE: tl.constexpr, BQ: tl.constexpr):
    tile = tl.program_id(0)
    head = tl.program_id(1)
    half = tl.program_id(2)
    table = tl.load(tile_table + tile)
    first = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)
    t = tl.arange(0, BQ)
    d = tl.arange(0, D)
    p = start + t  # each lane's logical position

    # Pages that any row of the tile sees. A padding tile (count = 0) sees none and reads no table.
    page_lo = tl.maximum(start - (WINDOW - 1), 0) // PAGE
    page_hi = tl.where(count > 0, (start + count + (PAGE - 1)) // PAGE, 0)
    acc = tl.zeros((BQ, D), tl.float32)
    for i in range(page_lo, page_hi):
        page = tl.load(page_table + table + i)
        base = (page.to(tl.int64) * KV_HEADS + head) * (PAGE * D)
        for w in tl.static_range(WINDOW):
            at = p - (WINDOW - 1) + w - i * PAGE  # the input's place in this page, if it lies there
            there = ((at >= 0) & (at < PAGE))[:, None]
            cell = base + ((at & (PAGE - 1))[:, None] * D + d[None, :])
            if half == 0:
                x = tl.load(cache_k + cell, mask=there, other=0.0)
            else:
                x = tl.load(cache_v + cell, mask=there, other=0.0)
            tap = tl.load(taps + (((w * KV_HEADS + head) * GROUP + half) * D + d))
            acc = tl.where(there, acc + x.to(tl.float32) * tap[None, :], acc)
    row = (first + t).to(tl.int64)[:, None]
    live = (t < count)[:, None]
    gate = tl.load(fused + (((row * (3 * KV_HEADS) + KV_HEADS + head) * GROUP + half) * D + d[None, :]), mask=live, other=0.0)
    result = gate.to(tl.float32) * acc
    tl.store(out + (((row * (3 * KV_HEADS) + head) * GROUP + half) * D + d[None, :]), result.to(out.dtype.element_ty), mask=live)
