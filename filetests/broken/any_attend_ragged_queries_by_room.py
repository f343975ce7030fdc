#: sibling: any_attend_ragged
#: mistake: heads are as far apart as a tile has room
#: fails: in-bounds
#: replay: differs
"""Paged causal attention over a window with an online softmax, one query tile and KV head a program.

A query tile holds up to BQ rows of one request. Lane `t * GP + g` is row t of the tile and the g-th
query head of the KV head's group, so that grouped heads share the keys they read: KV_HEADS groups of GROUP
heads, which fit the GP lanes. The loop runs over the logical pages of the request, by absolute index and in
order: what a row sees does not depend on the tile it lies in. A head has D numbers, and a tile room for DP, a power
of two. A row sees WINDOW keys at most, itself among them. What SLOPE, CAP and SPAN are, `online_softmax` says. Attention without a window is `attend_part` and
`attend_combine`.
"""
import triton
import triton.language as tl
from online_softmax import over_pages


# /// contract
# shape = "attend"
# grid = ["tiles", "KV_HEADS"]
# where = ["GROUP <= GP", "D <= DP"]
# [params]
# q = "in 0"
# tile_table = "tile_table"
# tile_row = "tile_row"
# tile_rows = "tile_rows"
# tile_pos = "tile_pos"
# page_table = "page_table"
# cache_k = "cache_k"
# cache_v = "cache_v"
# out = "out 0"
# KV_HEADS = "dim 1..1024"
# GROUP = "dim 1..1024"
# D = "dim 1..512"
# WINDOW = "dim 1..4194304"
# CAPPED = "dim 0..1"
# SLOPE = "number"
# CAP = "number"
# SPAN = "number"
# [constants]
# PAGE = 16
# BQ = 4
# GP = 4
# DP = 32
# [shapes]
# q = ["rows", "KV_HEADS", "GROUP", "D"]
# out = ["rows", "KV_HEADS", "GROUP", "D"]
# ///
@triton.jit
def kernel(q, tile_table, tile_row, tile_rows, tile_pos, page_table, cache_k, cache_v, out,
           KV_HEADS, GROUP, D, WINDOW, CAPPED, SLOPE, CAP, SPAN, PAGE: tl.constexpr, BQ: tl.constexpr,
           GP: tl.constexpr, DP: tl.constexpr):
    HEADS = KV_HEADS * GROUP
    LANES: tl.constexpr = BQ * GP
    tile = tl.program_id(0)
    kv = tl.program_id(1)
    table = tl.load(tile_table + tile)
    first = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)

    # The tile's rows end at `first + count`: the rest, and the heads past the group, are padding.
    q_tile = tl.make_block_ptr(q + kv * (GROUP * D), (first + count, GROUP, D), (HEADS * D, DP, 1), (first, 0, 0),
                               (BQ, GP, DP), (2, 1, 0))
    queries = tl.reshape(tl.load(q_tile, boundary_check=(0, 1, 2), padding_option="zero"), (LANES, DP))
    p = start + tl.arange(0, LANES) // GP  # each lane's logical position

    # Pages that any row of the tile sees. A padding tile (count = 0) sees none and reads no table.
    page_lo = tl.maximum(start - (WINDOW - 1), 0) // PAGE
    page_hi = tl.where(count > 0, (start + count + (PAGE - 1)) // PAGE, 0)

    top, total, acc = over_pages(queries, p, kv, table, page_lo, page_hi, page_table, cache_k, cache_v, KV_HEADS,
                                 1, WINDOW, CAPPED, SLOPE, CAP, SPAN, D, LANES, DP, PAGE)
    # Unseen keys of a seen page added +0 or -0: `+ 0.0` makes an underflowed -0 forget which.
    result = acc / total[:, None] + 0.0
    out_tile = tl.make_block_ptr(out + kv * (GROUP * D), (first + count, GROUP, D), (HEADS * D, D, 1), (first, 0, 0),
                                 (BQ, GP, DP), (2, 1, 0))
    tl.store(out_tile, tl.reshape(result.to(out.dtype.element_ty), (BQ, GP, DP)), boundary_check=(0, 1, 2))
