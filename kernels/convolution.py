"""A short convolution over cached inputs, and their store: what the kernels of short convolutions share.

There are KV_HEADS pairs of heads of D channels, and a tile has room for DP. The first head of a pair lies in `cache_k`, the other in
`cache_v`.
"""
import triton
import triton.language as tl


@triton.jit
def finite(x):
    """0 for what is not finite, and for what the cast to BF16 could make infinite."""
    LARGEST: tl.constexpr = 3.3895313892515355e38
    return tl.where(tl.abs(x) <= LARGEST, x, 0.0)


@triton.jit
def stored(k, v, m, row, head, slots, cache_k, cache_v, KV_HEADS, D, PAGE: tl.constexpr, BM: tl.constexpr, DP: tl.constexpr):
    """Writes a pair of heads of the rows from `row` on to their slots, finite."""
    t = row + tl.arange(0, BM)
    d = tl.arange(0, DP)[None, :]
    slot = tl.load(slots + t, mask=t < m, other=0)
    line = ((slot // PAGE).to(tl.int64) * KV_HEADS + head) * PAGE + slot % PAGE
    cell = line[:, None] * D + d
    live = (t < m)[:, None] & (d < D)
    tl.store(cache_k + cell, finite(k).to(cache_k.dtype.element_ty), mask=live)
    tl.store(cache_v + cell, finite(v).to(cache_v.dtype.element_ty), mask=live)


@triton.jit
def convolved(tile_table, tile_pos, page_table, cache_k, cache_v, taps, tile, count, pair, half, KV_HEADS, GROUP, D,
              WINDOW: tl.constexpr, PAGE: tl.constexpr, BQ: tl.constexpr, DP: tl.constexpr):
    """Each channel's weighted sum of its own last WINDOW inputs, oldest first, in FP32. Inputs before the request's first are zero.

    The loop runs over the logical pages of the request, by absolute index and in order, so a row's sum does not depend on its tile.
    """
    table = tl.load(tile_table + tile)
    start = tl.load(tile_pos + tile)
    d = tl.arange(0, DP)
    p = start + tl.arange(0, BQ)  # each lane's logical position
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
    return acc
