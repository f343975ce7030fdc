"""Attention whose keys are summed in parts, and the number of parts follows the number of query rows.

The form of vLLM #53896: with few query rows the launcher splits the keys, so that more programs run, and each part has a sum of its
own; with many rows it does not. The parts' sums are added at the end, so a row's bits depend on how many rows there are.
"""
import triton
import triton.language as tl


def parts_of(arguments):
    return 4 if arguments["n_queries"] <= 16 else 1


@triton.heuristics({"PARTS": parts_of})
@triton.jit
def attention_in_parts(q, k, v, out, n_queries, n_keys, D: tl.constexpr, KEYS: tl.constexpr, PARTS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, D)
    query = tl.load(q + row * D + lanes).to(tl.float32)
    weighted = tl.zeros([D], tl.float32)
    weights = 0.0
    for part in tl.static_range(PARTS):
        own = tl.zeros([D], tl.float32)
        own_weights = 0.0
        for first in range(part * KEYS // PARTS, (part + 1) * KEYS // PARTS, 16):
            keys = first + tl.arange(0, 16)
            mask = (keys < n_keys)[:, None]
            key = tl.load(k + keys[:, None] * D + lanes[None, :], mask=mask, other=0.0).to(tl.float32)
            value = tl.load(v + keys[:, None] * D + lanes[None, :], mask=mask, other=0.0).to(tl.float32)
            scores = tl.sum(key * query[None, :], axis=1) * 0.125
            scores = tl.where(keys < n_keys, tl.exp(scores), 0.0)
            own += tl.sum(scores[:, None] * value, axis=0)
            own_weights += tl.sum(scores, axis=0)
        weighted += own
        weights += own_weights
    tl.store(out + row * D + lanes, weighted / weights)
