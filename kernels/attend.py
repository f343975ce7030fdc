"""Paged causal attention with an online softmax, one query tile and KV head a program: over a window, over one split of the keys,
or over all keys, split by split.

A query tile has up to HEIGHT rows of one request, and room for BQ. There are KV_HEADS groups of GROUP query heads, and a
group fits GP lanes: lane `t * GP + g` is row t of the tile and the g-th query head of the KV head's group, so that the heads
of a group share the keys that they read. The loop runs over the logical pages of the request, by absolute index and in
order, so the keys that a row sees do not depend on its tile. A head has D numbers, and a tile has room for DP, a power
of two. `online_softmax` explains SLOPE, CAP and SPAN. If SINKS is 1, each head has a sink: the score of one more key, times log2(e),
whose value is zero. It joins the sum of weights behind the last key.

Split s has the keys at positions s * SPLIT to (s + 1) * SPLIT - 1 of the request, whatever its length, its queries or the batch.
USE says what this launch is:

- 0: the first of two, with a program for each split. A row at a position below SPLIT sees only keys of the first split, and
  this kernel writes its output. For other rows each program writes the state of an online softmax over its split's keys to
  scratch, in FP32: the largest score, the sum of weights and the weighted sum of values of each row and head.
  `attend_combine` is the second launch.
- 1: all of attention over a window. A row sees at most WINDOW keys, its own among them.
- 2: all of attention. A program folds its rows' splits in the order in which `attend_combine` does, and has the same bits.
- 3: as 2, and it writes the states of the splits as well. A proof compares 2 with 0 by it; no launch is of this kind.
"""
import triton
import triton.language as tl
from online_softmax import finished, over_pages, with_split


# /// contract
# shape = "attend_part"
# grid = ["tiles", "KV_HEADS", "cdiv(length, SPLIT + USE * 4194304)"]
# where = ["GROUP <= GP", "D <= DP", "HEIGHT <= BQ"]
# [params]
# q = "in 0"
# tile_table = "tile_table"
# tile_row = "tile_row"
# tile_rows = "tile_rows"
# tile_pos = "tile_pos"
# page_table = "page_table"
# cache_k = "cache_k"
# cache_v = "cache_v"
# sinks = "weight 0 f32"
# tops = "scratch 0 f32"
# totals = "scratch 1 f32"
# accs = "scratch 2 f32"
# out = "out 0"
# KV_HEADS = "dim 1..1024"
# GROUP = "dim 1..1024"
# D = "dim 1..512"
# USE = "dim 0..3"
# WINDOW = "dim 1..4194304"
# HEIGHT = "dim 1..128"
# CAPPED = "dim 0..1"
# SINKS = "dim 0..1"
# SLOPE = "number"
# CAP = "number"
# SPAN = "number"
# [shapes]
# q = ["rows", "KV_HEADS", "GROUP", "D"]
# sinks = ["KV_HEADS", "GROUP"]
# tops = ["splits", "ROWS", "KV_HEADS", "GROUP"]
# totals = ["splits", "ROWS", "KV_HEADS", "GROUP"]
# accs = ["splits", "ROWS", "KV_HEADS", "GROUP", "D"]
# out = ["rows", "KV_HEADS", "GROUP", "D"]
# ///
@triton.jit
def attend(q, tile_table, tile_row, tile_rows, tile_pos, page_table, cache_k, cache_v, sinks, tops, totals, accs,
           out, KV_HEADS, GROUP, D, USE, WINDOW, HEIGHT, CAPPED, SINKS, SLOPE, CAP, SPAN,
           PAGE: tl.constexpr, SPLIT: tl.constexpr, ROWS: tl.constexpr, BQ: tl.constexpr, GP: tl.constexpr,
           DP: tl.constexpr):
    HEADS = KV_HEADS * GROUP
    LANES: tl.constexpr = BQ * GP
    WINDOWED = USE == 1
    FOLDED = USE >= 2
    tile = tl.program_id(0)
    kv = tl.program_id(1)
    split = tl.program_id(2)
    table = tl.load(tile_table + tile)
    first = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)

    # The tile's rows end at `end`; in a split behind the tile's last row there are none, and nothing is written. Rows whose
    # output is written here end at `done`: those that see only the first split, or all.
    reached = (count > 0) & (split * SPLIT < start + count)
    end = tl.where(reached, first + count, 0)
    done = tl.where(USE > 0, end, first + tl.minimum(count, SPLIT - start))
    splits_end = tl.where(FOLDED, (start + count + (SPLIT - 1)) // SPLIT, split + 1)
    pages_end = tl.where(reached, (start + count + (PAGE - 1)) // PAGE, 0)

    q_tile = tl.make_block_ptr(q + kv * (GROUP * D), (end, GROUP, D), (HEADS * D, D, 1), (first, 0, 0), (BQ, GP, DP),
                               (2, 1, 0))
    queries = tl.reshape(tl.load(q_tile, boundary_check=(0, 1, 2), padding_option="zero"), (LANES, DP))
    p = start + tl.arange(0, LANES) // GP  # each lane's logical position
    top = tl.full((LANES,), float("-inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    acc = tl.zeros((LANES, DP), tl.float32)
    for s in range(tl.where(FOLDED, 0, split), splits_end):
        page_lo = s * (SPLIT // PAGE)
        page_hi = tl.minimum(pages_end, page_lo + SPLIT // PAGE)
        if WINDOWED:
            page_lo = tl.maximum(start - (WINDOW - 1), 0) // PAGE
            page_hi = pages_end
        part_top, part_total, part_acc = over_pages(
            queries, p, kv, table, page_lo, page_hi, page_table, cache_k, cache_v, KV_HEADS, WINDOWED, WINDOW, CAPPED,
            SLOPE, CAP, SPAN, D, LANES, DP, PAGE)
        if (USE == 0) | (USE == 3):
            if start + count > SPLIT:
                head = s.to(tl.int64) * (ROWS * HEADS) + kv * GROUP
                top_tile = tl.make_block_ptr(tops + head, (end, GROUP, 1), (HEADS, 1, 1), (first, 0, 0), (BQ, GP, 1),
                                             (2, 1, 0))
                total_tile = tl.make_block_ptr(totals + head, (end, GROUP, 1), (HEADS, 1, 1), (first, 0, 0),
                                               (BQ, GP, 1), (2, 1, 0))
                acc_tile = tl.make_block_ptr(accs + head * D, (end, GROUP, D), (HEADS * D, D, 1), (first, 0, 0),
                                             (BQ, GP, DP), (2, 1, 0))
                tl.store(top_tile, tl.reshape(part_top[:, None], (BQ, GP, 1)), boundary_check=(0, 1))
                tl.store(total_tile, tl.reshape(part_total[:, None], (BQ, GP, 1)), boundary_check=(0, 1))
                tl.store(acc_tile, tl.reshape(part_acc, (BQ, GP, DP)), boundary_check=(0, 1, 2))
        top, total, acc = with_split(top, total, acc, part_top, part_total, part_acc, s, p, SPLIT)

    if split == 0:
        head = tl.arange(0, LANES) % GP
        sink = tl.load(sinks + kv * GROUP + head, mask=(head < GROUP) & (SINKS == 1), other=0.0)
        result = finished(top, total, acc, sink, SINKS)
        out_tile = tl.make_block_ptr(out + kv * (GROUP * D), (done, GROUP, D), (HEADS * D, D, 1), (first, 0, 0),
                                     (BQ, GP, DP), (2, 1, 0))
        tl.store(out_tile, tl.reshape(result.to(out.dtype.element_ty), (BQ, GP, DP)), boundary_check=(0, 1, 2))
