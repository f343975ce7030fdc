"""The loop of paged causal attention over some pages of a request: those of a window or of a split.

Lane `t * GP + g` is row t of the query tile and the g-th query head of the KV head's group. Pages are taken by absolute
index and in order, so the keys that a row sees do not depend on its tile.
"""
import triton
import triton.language as tl


@triton.jit
def over_pages(queries, p, kv, table, page_lo, page_hi, page_table, cache_k, cache_v, KV_HEADS, WINDOWED, WINDOW,
               CAPPED, SLOPE, CAP, SPAN, D, LANES: tl.constexpr, DP: tl.constexpr, PAGE: tl.constexpr):
    """The largest score, the sum of weights and the weighted sum of values of each lane, whose position is `p`.

    If WINDOWED is 1, a lane sees at most WINDOW keys. A dot product times SLOPE is a score times log2(e), because weights are
    powers of two. If CAPPED is 1, scores are softly capped to (-CAP, CAP), the product is 2 / CAP times that, and SPAN is 2 * CAP.
    A head has D numbers, and a tile has room for DP: behind a head's last number there are zeros.
    """
    LOG2E: tl.constexpr = 1.4426950408889634
    top = tl.full((LANES,), float("-inf"), tl.float32)  # largest score so far
    total = tl.zeros((LANES,), tl.float32)  # sum of weights so far
    acc = tl.zeros((LANES, DP), tl.float32)
    for i in range(page_lo, page_hi):
        page = tl.load(page_table + table + i)
        base = (page.to(tl.int64) * KV_HEADS + kv) * (PAGE * D)
        k_tile = tl.make_block_ptr(cache_k + base, (D, PAGE), (1, D), (0, 0), (DP, PAGE), (0, 1))
        v_tile = tl.make_block_ptr(cache_v + base, (PAGE, D), (D, 1), (0, 0), (PAGE, DP), (1, 0))
        keys = tl.load(k_tile, boundary_check=(0,), padding_option="zero")
        values = tl.load(v_tile, boundary_check=(1,), padding_option="zero")
        scores = tl.dot(queries, keys, input_precision="ieee")
        scores = scores * SLOPE
        if CAPPED == 1:  # c * tanh(x / c) = c - 2c / (exp(2x / c) + 1)
            scores = (CAP - SPAN / (tl.exp2(scores) + 1.0)) * LOG2E

        j = i * PAGE + tl.arange(0, PAGE)
        seen = j[None, :] <= p[:, None]
        touched = i * PAGE <= p  # some key of this page is seen by the lane
        if WINDOWED == 1:
            seen = seen & (j[None, :] > p[:, None] - WINDOW)
            touched = touched & (i * PAGE + (PAGE - 1) > p - WINDOW)
        scores = tl.where(seen, scores, float("-inf"))

        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        decay = tl.exp2(top - new_top)
        new_total = total * decay + tl.sum(weights, 1)
        new_acc = tl.dot(weights.to(values.dtype), values, acc * decay[:, None], input_precision="ieee")

        # A page of which a lane sees no key does not change the lane's state, bit for bit.
        top = tl.where(touched, new_top, top)
        total = tl.where(touched, new_total, total)
        acc = tl.where(touched[:, None], new_acc, acc)
    return top, total, acc
