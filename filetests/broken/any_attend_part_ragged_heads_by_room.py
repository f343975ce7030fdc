#: sibling: any_attend_part_ragged
#: mistake: heads are as far apart as a tile has room
#: fails: in-bounds
#: replay: differs
"""Paged causal attention over one split of the keys: the first of two launches, `attend_combine` is the second.

Split s holds the keys at positions s * SPLIT to (s + 1) * SPLIT - 1: boundaries of the request's own positions, whatever
its length, its queries or the batch. A row at a position below SPLIT sees keys of the first split alone, and is done here.
Of other rows each program leaves what an online softmax over its split's keys has come to, in FP32: the largest score, the
sum of weights and the weighted sum of values of each row and head. Lanes are those of `attend`, and so are SLOPE, CAP and SPAN.
"""
import triton
import triton.language as tl
from online_softmax import over_pages


# /// contract
# shape = "attend_part"
# grid = ["tiles", "KV_HEADS", "cdiv(length, SPLIT)"]
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
# tops = "scratch 0 f32"
# totals = "scratch 1 f32"
# accs = "scratch 2 f32"
# out = "out 0"
# KV_HEADS = "dim 1..1024"
# GROUP = "dim 1..1024"
# D = "dim 1..512"
# CAPPED = "dim 0..1"
# SLOPE = "number"
# CAP = "number"
# SPAN = "number"
# [constants]
# PAGE = 16
# SPLIT = 32
# ROWS = 64
# BQ = 4
# GP = 4
# DP = 32
# [shapes]
# q = ["rows", "KV_HEADS", "GROUP", "D"]
# tops = ["splits", "ROWS", "KV_HEADS", "GROUP"]
# totals = ["splits", "ROWS", "KV_HEADS", "GROUP"]
# accs = ["splits", "ROWS", "KV_HEADS", "GROUP", "D"]
# out = ["rows", "KV_HEADS", "GROUP", "D"]
# ///
@triton.jit
def kernel(q, tile_table, tile_row, tile_rows, tile_pos, page_table, cache_k, cache_v, tops, totals, accs, out,
                KV_HEADS, GROUP, D, CAPPED, SLOPE, CAP, SPAN, PAGE: tl.constexpr, SPLIT: tl.constexpr,
                ROWS: tl.constexpr, BQ: tl.constexpr, GP: tl.constexpr, DP: tl.constexpr):
    HEADS = KV_HEADS * GROUP
    LANES: tl.constexpr = BQ * GP
    tile = tl.program_id(0)
    kv = tl.program_id(1)
    split = tl.program_id(2)
    table = tl.load(tile_table + tile)
    first = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)

    # The tile's rows end at `end`; a split behind the tile's last row has none, and leaves everything as it was.
    reached = (count > 0) & (split * SPLIT < start + count)
    end = tl.where(reached, first + count, 0)
    q_tile = tl.make_block_ptr(q + kv * (GROUP * D), (end, GROUP, D), (HEADS * D, D, 1), (first, 0, 0), (BQ, GP, DP),
                               (2, 1, 0))
    queries = tl.reshape(tl.load(q_tile, boundary_check=(0, 1, 2), padding_option="zero"), (LANES, DP))
    p = start + tl.arange(0, LANES) // GP  # each lane's logical position

    # The split's pages that any row of the tile sees.
    page_lo = split * (SPLIT // PAGE)
    seen_hi = tl.where(reached, (start + count + (PAGE - 1)) // PAGE, 0)
    page_hi = tl.minimum(seen_hi, page_lo + SPLIT // PAGE)
    top, total, acc = over_pages(queries, p, kv, table, page_lo, page_hi, page_table, cache_k, cache_v, KV_HEADS,
                                 0, 1, CAPPED, SLOPE, CAP, SPAN, D, LANES, DP, PAGE)

    # Unseen keys of a seen page added +0 or -0: `+ 0.0` makes an underflowed -0 forget which, here and below.
    if split == 0:
        done = first + tl.minimum(count, SPLIT - start)  # rows from here on see other splits too
        result = acc / total[:, None] + 0.0
        out_tile = tl.make_block_ptr(out + kv * (GROUP * DP), (done, GROUP, D), (HEADS * D, D, 1), (first, 0, 0),
                                     (BQ, GP, DP), (2, 1, 0))
        tl.store(out_tile, tl.reshape(result.to(out.dtype.element_ty), (BQ, GP, DP)), boundary_check=(0, 1, 2))
    if start + count > SPLIT:
        head = split.to(tl.int64) * (ROWS * HEADS) + kv * GROUP
        top_tile = tl.make_block_ptr(tops + head, (end, GROUP, 1), (HEADS, 1, 1), (first, 0, 0), (BQ, GP, 1), (2, 1, 0))
        total_tile = tl.make_block_ptr(totals + head, (end, GROUP, 1), (HEADS, 1, 1), (first, 0, 0), (BQ, GP, 1),
                                       (2, 1, 0))
        acc_tile = tl.make_block_ptr(accs + head * D, (end, GROUP, D), (HEADS * D, D, 1), (first, 0, 0), (BQ, GP, DP),
                                     (2, 1, 0))
        tl.store(top_tile, tl.reshape(top[:, None], (BQ, GP, 1)), boundary_check=(0, 1))
        tl.store(total_tile, tl.reshape(total[:, None], (BQ, GP, 1)), boundary_check=(0, 1))
        tl.store(acc_tile, tl.reshape(acc + 0.0, (BQ, GP, DP)), boundary_check=(0, 1, 2))
