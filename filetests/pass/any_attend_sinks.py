"""Paged causal attention with a window and a sink: each head has the score of one more key, times log2(e), whose value is zero.
It joins the sum of weights behind the last key. One query tile and KV head a program.

A query tile holds up to BQ rows of one request. Lane `t * GP + g` is row t of the tile and the g-th
query head of the KV head's group, so that grouped heads share the keys they read. The loop runs over
the logical pages of the request, by absolute index and in order: what a row sees does not depend on
the tile it lies in.
"""
import triton
import triton.language as tl


# /// contract
# shape = "attend"
# grid = ["tiles", "KV_HEADS"]
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
# sinks = "weight 0 f32"
# out = "out 0"
# KV_HEADS = "dim 1..4096"
# GROUP = "dim 1..64"
# WINDOW = "dim 1..4194304"
# SLOPE = "number"
# [constants]
# D = 16
# PAGE = 16
# BQ = 4
# GP = 4
# [shapes]
# q = ["rows", "KV_HEADS", "GROUP", "D"]
# sinks = ["KV_HEADS", "GROUP"]
# out = ["rows", "KV_HEADS", "GROUP", "D"]
# ///
@triton.jit
def kernel(q, tile_table, tile_row, tile_rows, tile_pos, page_table, cache_k, cache_v, sinks, out, KV_HEADS, GROUP,
           WINDOW, SLOPE, D: tl.constexpr, PAGE: tl.constexpr, BQ: tl.constexpr, GP: tl.constexpr):
    HEADS = KV_HEADS * GROUP
    LANES: tl.constexpr = BQ * GP
    tile = tl.program_id(0)
    kv = tl.program_id(1)
    table = tl.load(tile_table + tile)
    first = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)

    # The tile's rows end at `first + count`: the rest, and the heads past the group, are padding.
    q_tile = tl.make_block_ptr(q + kv * (GROUP * D), (first + count, GROUP, D), (HEADS * D, D, 1), (first, 0, 0),
                               (BQ, GP, D), (2, 1, 0))
    queries = tl.reshape(tl.load(q_tile, boundary_check=(0, 1), padding_option="zero"), (LANES, D))
    p = start + tl.arange(0, LANES) // GP  # each lane's logical position

    # Pages that any row of the tile sees. A padding tile (count = 0) sees none and reads no table.
    page_lo = tl.maximum(start - (WINDOW - 1), 0) // PAGE
    page_hi = tl.where(count > 0, (start + count + (PAGE - 1)) // PAGE, 0)

    top = tl.full((LANES,), float("-inf"), tl.float32)  # largest score so far
    total = tl.zeros((LANES,), tl.float32)  # sum of weights so far
    acc = tl.zeros((LANES, D), tl.float32)
    for i in range(page_lo, page_hi):
        page = tl.load(page_table + table + i)
        base = (page.to(tl.int64) * KV_HEADS + kv) * (PAGE * D)
        keys = tl.load(tl.make_block_ptr(cache_k + base, (D, PAGE), (1, D), (0, 0), (D, PAGE), (0, 1)))
        values = tl.load(tl.make_block_ptr(cache_v + base, (PAGE, D), (D, 1), (0, 0), (PAGE, D), (1, 0)))
        scores = tl.dot(queries, keys, input_precision="ieee") * SLOPE

        j = i * PAGE + tl.arange(0, PAGE)
        seen = j[None, :] <= p[:, None]
        touched = i * PAGE <= p  # some key of this page is seen by the lane
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

    # Unseen keys of a seen page added +0 or -0: `+ 0.0` makes an underflowed -0 forget which.
    head = tl.arange(0, GP)[None, :, None]
    sink = tl.load(sinks + kv * GROUP + head, mask=head < GROUP, other=0.0)
    weight = tl.exp2(tl.broadcast_to(sink, (BQ, GP, 1)) - tl.reshape(top[:, None], (BQ, GP, 1)))
    whole = total + tl.reshape(weight, (LANES,))
    result = acc / whole[:, None] + 0.0
    out_tile = tl.make_block_ptr(out + kv * (GROUP * D), (first + count, GROUP, D), (HEADS * D, D, 1), (first, 0, 0),
                                 (BQ, GP, D), (2, 1, 0))
    tl.store(out_tile, tl.reshape(result.to(out.dtype.element_ty), (BQ, GP, D)), boundary_check=(0, 1))
