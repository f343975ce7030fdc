"""Paged causal attention as one text for two promises: over a window, or over one split of the keys.

Where USE is 1, a row sees WINDOW keys at most, and this is all of attention. Where it is 0, this is `any_attend_part`.
"""
import triton
import triton.language as tl


# /// contract
# shape = "attend_part"
# grid = ["tiles", "KV_HEADS", "cdiv(length, SPLIT + USE * 4194304)"]
# text = ["SOFTCAP"]
# where = ["GROUP <= GP"]
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
# KV_HEADS = "dim 1..4096"
# GROUP = "dim 1..64"
# USE = "dim 0..1"
# WINDOW = "dim 1..4194304"
# SLOPE = "number"
# [constants]
# D = 16
# PAGE = 16
# SOFTCAP = 0.0
# SPLIT = 32
# ROWS = 64
# BQ = 4
# GP = 4
# [shapes]
# q = ["rows", "KV_HEADS", "GROUP", "D"]
# tops = ["splits", "ROWS", "KV_HEADS", "GROUP"]
# totals = ["splits", "ROWS", "KV_HEADS", "GROUP"]
# accs = ["splits", "ROWS", "KV_HEADS", "GROUP", "D"]
# out = ["rows", "KV_HEADS", "GROUP", "D"]
# ///
@triton.jit
def kernel(q, tile_table, tile_row, tile_rows, tile_pos, page_table, cache_k, cache_v, tops, totals, accs, out,
           KV_HEADS, GROUP, USE, WINDOW, SLOPE, D: tl.constexpr, PAGE: tl.constexpr, SOFTCAP: tl.constexpr,
           SPLIT: tl.constexpr, ROWS: tl.constexpr, BQ: tl.constexpr, GP: tl.constexpr):
    LOG2E: tl.constexpr = 1.4426950408889634
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
    done = first + tl.minimum(count, SPLIT - start)  # rows from here on see other splits too
    q_tile = tl.make_block_ptr(q + kv * (GROUP * D), (end, GROUP, D), (HEADS * D, D, 1), (first, 0, 0), (BQ, GP, D),
                               (2, 1, 0))
    queries = tl.reshape(tl.load(q_tile, boundary_check=(0, 1), padding_option="zero"), (LANES, D))
    p = start + tl.arange(0, LANES) // GP  # each lane's logical position

    # The split's pages that any row of the tile sees.
    page_lo = split * (SPLIT // PAGE)
    seen_hi = tl.where(reached, (start + count + (PAGE - 1)) // PAGE, 0)
    page_hi = tl.minimum(seen_hi, page_lo + SPLIT // PAGE)
    if USE == 1:
        done = end
        page_lo = tl.maximum(start - (WINDOW - 1), 0) // PAGE
        page_hi = seen_hi
    top = tl.full((LANES,), float("-inf"), tl.float32)  # largest score so far
    total = tl.zeros((LANES,), tl.float32)  # sum of weights so far
    acc = tl.zeros((LANES, D), tl.float32)
    for i in range(page_lo, page_hi):
        page = tl.load(page_table + table + i)
        base = (page.to(tl.int64) * KV_HEADS + kv) * (PAGE * D)
        keys = tl.load(tl.make_block_ptr(cache_k + base, (D, PAGE), (1, D), (0, 0), (D, PAGE), (0, 1)))
        values = tl.load(tl.make_block_ptr(cache_v + base, (PAGE, D), (D, 1), (0, 0), (PAGE, D), (1, 0)))
        scores = tl.dot(queries, keys, input_precision="ieee")
        if SOFTCAP > 0.0:
            scores = SOFTCAP - (2.0 * SOFTCAP) / (tl.exp2(scores * SLOPE) + 1.0)
            scores = scores * LOG2E
        else:
            scores = scores * SLOPE

        j = i * PAGE + tl.arange(0, PAGE)
        seen = j[None, :] <= p[:, None]
        touched = i * PAGE <= p  # some key of this page is seen by the lane
        if USE == 1:
            seen = seen & (j[None, :] > p[:, None] - WINDOW)
            touched = touched & (i * PAGE + (PAGE - 1) > p - WINDOW)
        scores = tl.where(seen, scores, float("-inf"))

        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        decay = tl.exp2(top - new_top)
        new_total = total * decay + tl.sum(weights, 1)
        new_acc = tl.dot(weights.to(values.dtype), values, acc * decay[:, None], input_precision="ieee")

        # A page that a lane does not see at all leaves its state as it was, bit for bit.
        top = tl.where(touched, new_top, top)
        total = tl.where(touched, new_total, total)
        acc = tl.where(touched[:, None], new_acc, acc)

    # Unseen keys of a seen page added +0 or -0: `+ 0.0` makes an underflowed -0 forget which, here and below.
    if split == 0:
        result = acc / total[:, None] + 0.0
        out_tile = tl.make_block_ptr(out + kv * (GROUP * D), (done, GROUP, D), (HEADS * D, D, 1), (first, 0, 0),
                                     (BQ, GP, D), (2, 1, 0))
        tl.store(out_tile, tl.reshape(result.to(out.dtype.element_ty), (BQ, GP, D)), boundary_check=(0, 1))
    if USE == 0:
        if start + count > SPLIT:
            head = split.to(tl.int64) * (ROWS * HEADS) + kv * GROUP
            top_tile = tl.make_block_ptr(tops + head, (end, GROUP, 1), (HEADS, 1, 1), (first, 0, 0), (BQ, GP, 1), (2, 1, 0))
            total_tile = tl.make_block_ptr(totals + head, (end, GROUP, 1), (HEADS, 1, 1), (first, 0, 0), (BQ, GP, 1),
                                           (2, 1, 0))
            acc_tile = tl.make_block_ptr(accs + head * D, (end, GROUP, D), (HEADS * D, D, 1), (first, 0, 0), (BQ, GP, D),
                                         (2, 1, 0))
            tl.store(top_tile, tl.reshape(top[:, None], (BQ, GP, 1)), boundary_check=(0, 1))
            tl.store(total_tile, tl.reshape(total[:, None], (BQ, GP, 1)), boundary_check=(0, 1))
            tl.store(acc_tile, tl.reshape(acc + 0.0, (BQ, GP, D)), boundary_check=(0, 1))
