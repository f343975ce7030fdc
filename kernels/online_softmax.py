"""The loops of paged causal attention: over some pages of a request, those of a window or of a split, and over splits.

Lane `t * GP + g` is row t of the query tile and the g-th query head of the KV head's group. Pages are taken by absolute
index and in order, so the keys that a row sees do not depend on its tile.
"""
import triton
import triton.language as tl


@triton.jit
def over_pages(queries, p, kv, table, page_lo, page_hi, page_table, cache_k, cache_v, KV_HEADS, WINDOWED, WINDOW,
               CAPPED, SLOPE, CAP, SPAN, D, LANES: tl.constexpr, DP: tl.constexpr, PAGE: tl.constexpr):
    """The largest score, the sum of weights and the weighted sum of values of each lane, whose position is `p`.

    If WINDOWED is true, a lane sees at most WINDOW keys. A dot product times SLOPE is a score times log2(e), because weights are
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
        if WINDOWED:
            seen = seen & (j[None, :] > p[:, None] - WINDOW)
            touched = touched & (i * PAGE + (PAGE - 1) > p - WINDOW)
        scores = tl.where(seen, scores, float("-inf"))

        # A page of which a lane sees no key does not change the lane's state: its weights are 0, and what there is decays by 1.
        # A choice between the sums before and after the product would hold both in registers.
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.where(touched[:, None], tl.exp2(scores - new_top[:, None]), 0.0)
        decay = tl.where(touched, tl.exp2(top - new_top), 1.0)
        new_total = total * decay + tl.sum(weights, 1)
        acc = tl.dot(weights.to(values.dtype), values, acc * decay[:, None], input_precision="ieee")
        top = tl.where(touched, new_top, top)
        total = tl.where(touched, new_total, total)
    # Unseen keys of a seen page added +0 or -0. `+ 0.0` turns a -0 into +0, so that they do not show.
    return top, total, acc + 0.0


@triton.jit
def with_split(top, total, acc, part_top, part_total, part_acc, s, p, SPLIT: tl.constexpr):
    """The state of an online softmax over the splits before `s` and split `s`. Before the first split it is -inf, 0 and 0."""
    new_top = tl.maximum(top, part_top)
    decay = tl.exp2(top - new_top)
    weight = tl.exp2(part_top - new_top)
    new_total = total * decay + part_total * weight
    new_acc = acc * decay[:, None] + part_acc * weight[:, None]

    # A split that begins behind a lane's position does not change the lane's state, bit for bit.
    touched = s * SPLIT <= p
    return tl.where(touched, new_top, top), tl.where(touched, new_total, total), tl.where(touched[:, None], new_acc, acc)


@triton.jit
def finished(top, total, acc, sink, SINKS):
    """Each lane's output. If SINKS is 1, `sink` is the score of one more key, times log2(e), whose value is zero."""
    # No branch: a proof has a case for each. A sum of weights is at least 1, so that a weight of 0 leaves its bits.
    whole = total + tl.where(SINKS == 1, tl.exp2(sink - top), 0.0)
    return acc / whole[:, None] + 0.0
