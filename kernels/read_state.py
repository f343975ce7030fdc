"""Reads a layer whose pages carry a state: a row's query against its page's entries and the state at the end of the page before.

With S that state, a row with the query q and the log-decay c since its page began gets exp(c) S^T q + sum over the page's entries j
up to its own of exp(c - c_j) (k_j . q) u_j. `store_delta` and `store_mamba` write the entries. One program has a query tile, of up to
HEIGHT rows of a request, and a head. It goes over the pages of the tile's rows by absolute index, and each row takes its own page's.
Products go over a key's numbers in blocks of BK, because a program of a GPU has no registers for more. No sum of tile IR depends
on BK.
"""
import triton
import triton.language as tl
from columns import load_head, within


# /// contract
# shape = "recur_read"
# grid = ["tiles", "KEY_HEADS", "GROUP"]
# where = ["HEIGHT <= BQ"]
# text = ["BK", "DP"]
# [params]
# q = "in 0 f32"
# tile_table = "tile_table"
# tile_row = "tile_row"
# tile_rows = "tile_rows"
# tile_pos = "tile_pos"
# page_table = "page_table"
# keys = "entry 0 f32"
# values = "entry 1 f32"
# decays = "entry 2 f32"
# ends = "state 0 f32"
# out = "out 0 f32"
# KEY_HEADS = "dim 1..1024"
# GROUP = "dim 1..1024"
# HEIGHT = "dim 1..64"
# [shapes]
# q = ["rows", "KEY_HEADS", "DK"]
# keys = ["pages", "KEY_HEADS", "GROUP", "PAGE", "DK"]
# values = ["pages", "KEY_HEADS", "GROUP", "PAGE", "DV"]
# decays = ["pages", "KEY_HEADS", "GROUP", "PAGE", "1"]
# ends = ["pages", "KEY_HEADS", "GROUP", "DK", "DV"]
# out = ["rows", "KEY_HEADS", "GROUP", "DV"]
# ///
@triton.jit
def read_state(q, tile_table, tile_row, tile_rows, tile_pos, page_table, keys, values, decays, ends, out, KEY_HEADS, GROUP,
               HEIGHT, DK: tl.constexpr, DV: tl.constexpr, DP: tl.constexpr, PAGE: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr):
    HEADS = KEY_HEADS * GROUP
    tile = tl.program_id(0)
    key_head = tl.program_id(1)
    head = key_head * GROUP + tl.program_id(2)
    table = tl.load(tile_table + tile)
    first = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)
    t = tl.arange(0, BQ)
    e = tl.arange(0, DP)
    j = tl.arange(0, PAGE)
    live = t < count
    p = start + t  # each lane's logical position
    row = (first + t).to(tl.int64)

    # A row's own log-decay.
    own_page = tl.load(page_table + table + p // PAGE, mask=live, other=0)
    own = tl.load(decays + ((own_page.to(tl.int64) * HEADS + head) * PAGE + p % PAGE), mask=live, other=0.0)

    result = tl.zeros((BQ, DP), tl.float32)
    for i in range(start // PAGE, tl.where(count > 0, (start + count + (PAGE - 1)) // PAGE, 0)):
        page = tl.load(page_table + table + i)
        line = (page.to(tl.int64) * HEADS + head) * PAGE + j
        page_u = load_head(values + (line[:, None] * DV + e[None, :]), e[None, :], DV, DP)
        page_c = tl.load(decays + line)
        before = tl.load(page_table + table + (i - 1), mask=i > 0, other=0)

        near = tl.zeros((BQ, PAGE), tl.float32)
        kept = tl.zeros((BQ, DP), tl.float32)
        for b in tl.static_range(DK // BK):
            d = b * BK + tl.arange(0, BK)
            queries = tl.load(q + ((row * KEY_HEADS + key_head)[:, None] * DK + d[None, :]), mask=live[:, None], other=0.0)
            page_k = tl.load(keys + (line[:, None] * DK + d[None, :]))
            near = tl.dot(queries, tl.trans(page_k), near, input_precision="ieee")
            end = ((before.to(tl.int64) * HEADS + head) * DK + d[:, None]) * DV + e[None, :]
            state = tl.load(ends + end, mask=within(i > 0, e[None, :], DV, DP), other=0.0)
            kept = tl.dot(queries, state, kept, input_precision="ieee")
        seen = i * PAGE + j[None, :] <= p[:, None]
        near = tl.where(seen, tl.exp(own[:, None] - page_c[None, :]) * near, 0.0)
        kept = kept * tl.exp(own)[:, None]
        new = tl.dot(near, page_u, kept, input_precision="ieee")
        # A row takes one page, its own.
        result = tl.where((p // PAGE == i)[:, None], new, result)

    # Unseen entries of a page added +0 or -0. `+ 0.0` turns a -0 into +0, so that they do not show.
    tl.store(out + ((row * HEADS + head)[:, None] * DV + e[None, :]), result + 0.0,
             mask=within(live[:, None], e[None, :], DV, DP))
