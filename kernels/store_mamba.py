"""Writes the entries of a Mamba 2 layer: what later rows of a page need of each token, and the state at the page's end.

As `store_delta`, and nothing of a token's u depends on earlier tokens: u = dt * x. So an entry has the token's key k (Mamba's B), u and
the log-decay c since its page began, and the entry of a page's last row also has the state at the page's end.

One program has all of the step's rows of a request for one head. It goes over their positions by absolute index. What it carries
are the page's entries up to there: at first those of earlier steps, from the cache, and then those of this step as it stores them.
So all sums are the same wherever a step begins. No number stored is other than finite.
"""
import triton
import triton.language as tl
from columns import load_head, store_head, within


# /// contract
# shape = "recur_store"
# grid = ["tiles", "KEY_HEADS", "GROUP"]
# text = ["DP"]
# [params]
# k = "in 0 f32"
# x = "in 1 f32"
# g = "in 2 f32"
# dt = "in 3 f32"
# tile_table = "tile_table"
# tile_row = "tile_row"
# tile_rows = "tile_rows"
# tile_pos = "tile_pos"
# page_table = "page_table"
# keys = "entry 0 f32"
# values = "entry 1 f32"
# decays = "entry 2 f32"
# ends = "state 0 f32"
# KEY_HEADS = "dim 1..1024"
# GROUP = "dim 1..1024"
# [shapes]
# k = ["rows", "KEY_HEADS", "DK"]
# x = ["rows", "KEY_HEADS", "GROUP", "DV"]
# g = ["rows", "KEY_HEADS", "GROUP"]
# dt = ["rows", "KEY_HEADS", "GROUP"]
# keys = ["pages", "KEY_HEADS", "GROUP", "PAGE", "DK"]
# values = ["pages", "KEY_HEADS", "GROUP", "PAGE", "DV"]
# decays = ["pages", "KEY_HEADS", "GROUP", "PAGE", "1"]
# ends = ["pages", "KEY_HEADS", "GROUP", "DK", "DV"]
# ///
@triton.jit
def store_mamba(k, x, g, dt, tile_table, tile_row, tile_rows, tile_pos, page_table, keys, values, decays, ends,
                KEY_HEADS, GROUP, DK: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, PAGE: tl.constexpr):
    LARGEST: tl.constexpr = 3.3895313892515355e38
    HEADS = KEY_HEADS * GROUP
    tile = tl.program_id(0)
    key_head = tl.program_id(1)
    head = key_head * GROUP + tl.program_id(2)
    table = tl.load(tile_table + tile)
    first = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)
    d = tl.arange(0, DK)
    e = tl.arange(0, DP)
    j = tl.arange(0, PAGE)

    # The entries of the first row's page that earlier steps stored, and the state at its start. A padding tile (count = 0) reads
    # no table. Lane j is the page's j-th row; lanes that are not yet there hold 0.
    begun = start // PAGE
    old = (j < start % PAGE) & (count > 0)
    here = tl.load(page_table + table + begun, mask=count > 0, other=0)
    lines = (here.to(tl.int64) * HEADS + head) * PAGE + j
    page_k = tl.load(keys + (lines[:, None] * DK + d[None, :]), mask=old[:, None], other=0.0)
    page_u = tl.load(values + (lines[:, None] * DV + e[None, :]), mask=within(old[:, None], e[None, :], DV, DP), other=0.0)
    page_c = tl.load(decays + lines, mask=old, other=0.0)
    follows = (count > 0) & (begun > 0)
    before = tl.load(page_table + table + (begun - 1), mask=follows, other=0)
    end = ((before.to(tl.int64) * HEADS + head) * DK + d[:, None]) * DV + e[None, :]
    state = tl.load(ends + end, mask=within(follows, e[None, :], DV, DP), other=0.0)
    for i in range(start, start + count):
        at = i % PAGE
        row = (first + (i - start)).to(tl.int64)
        page = tl.load(page_table + table + i // PAGE)
        line = (page.to(tl.int64) * HEADS + head) * PAGE + at

        own_k = tl.load(k + ((row * KEY_HEADS + key_head) * DK + d))
        own_k = tl.where(tl.abs(own_k) <= LARGEST, own_k, 0.0)
        own_x = load_head(x + ((row * HEADS + head) * DV + e), e, DV, DP)
        step = tl.load(dt + (row * HEADS + head))
        decay = tl.load(g + (row * HEADS + head))
        # The row before has the page's decay so far; a sum of one number and zeros is that number.
        own_c = tl.sum(tl.where(j == at - 1, page_c, 0.0), 0) + decay
        own_c = tl.where(tl.abs(own_c) <= LARGEST, own_c, 0.0)
        own_u = step * own_x
        own_u = tl.where(tl.abs(own_u) <= LARGEST, own_u, 0.0)
        tl.store(keys + (line * DK + d), own_k)
        store_head(values + (line * DV + e), own_u, e, DV, DP)
        tl.store(decays + line, own_c)
        own = j == at
        page_k = tl.where(own[:, None], own_k[None, :], page_k)
        page_u = tl.where(own[:, None], own_u[None, :], page_u)
        page_c = tl.where(own, own_c, page_c)

        # The page's last row has all of its rows before it, so the state is the same whenever it comes.
        if at == PAGE - 1:
            faded = page_k * tl.exp(own_c - page_c)[:, None]
            state = tl.dot(tl.trans(faded), page_u, tl.exp(own_c) * state, input_precision="ieee")
            state = tl.where(tl.abs(state) <= LARGEST, state, 0.0)
            cells = ((page.to(tl.int64) * HEADS + head) * DK + d[:, None]) * DV + e[None, :]
            store_head(ends + cells, state, e[None, :], DV, DP)
