"""The experts of a row and their weights, from its router logits: the TOPK largest, of equal ones the lowest index first.

A NaN logit counts as -inf. SIGMOID 0 scores by softmax, 1 by `1 / (1 + exp(-x))`; the bias joins the score for the choice alone.
NORMED 1 divides the chosen scores by their sum. Of GROUPS groups, the KEPT whose two largest keys have the largest sums.
"""
import triton
import triton.language as tl

NONE = tl.constexpr(16777216.0)


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# where = ["E <= EP", "TOPK <= PLACES", "TOPK <= E", "KEPT <= GROUPS"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# bias = "weight 0 f32"
# ids = "out 0 i32"
# shares = "out 1 f32"
# E = "dim 1..4096"
# TOPK = "dim 1..64"
# SIGMOID = "dim 0..1"
# NORMED = "dim 0..1"
# GROUPS = "dim 0..64"
# MEMBERS = "dim 1..4096"
# KEPT = "dim 0..64"
# SCALE = "number"
# [constants]
# EP = 16
# PLACES = 4
# BM = 4
# [shapes]
# x = ["rows", "E"]
# bias = ["E"]
# ids = ["rows", "TOPK"]
# shares = ["rows", "TOPK"]
# ///
@triton.jit
def kernel(x, rows, bias, ids, shares, E, TOPK, SIGMOID, NORMED, GROUPS, MEMBERS, KEPT, SCALE, EP: tl.constexpr,
           PLACES: tl.constexpr, BM: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    column = tl.arange(0, EP)[None, :]
    x_tile = tl.make_block_ptr(x, (m, E), (E, 1), (row, 0), (BM, EP), (1, 0))
    v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
    v = tl.where((v == v) & (column < E), v, float("-inf"))
    if SIGMOID == 1:
        score = 1.0 / (1.0 + tl.exp(-v))
        key = score + tl.load(bias + column, mask=column < E, other=0.0)
    else:
        score = tl.exp(v - tl.max(v, 1)[:, None])
        key = v
    # A lane that is no expert, or is chosen already, is NaN and takes part in no comparison.
    key = tl.where(key == key, key, float("-inf"))
    key = tl.where(column < E, key, float("nan"))
    number = column.to(tl.float32)
    # A lane of a group that is not kept has a number here.
    left_out = tl.full((BM, EP), float("nan"), tl.float32)
    for g in range(0, GROUPS):
        inside = (column >= g * MEMBERS) & (column < (g + 1) * MEMBERS)
        own = tl.where(inside, key, float("nan"))
        best = tl.maximum(tl.max(own, 1), float("-inf"))[:, None]
        first = tl.min(tl.where(best <= own, number, NONE), 1)[:, None]
        second = tl.maximum(tl.max(tl.where(number == first, float("nan"), own), 1), float("-inf"))[:, None]
        both = best + second
        left_out = tl.where(inside, tl.where(both == both, both, float("-inf")), left_out)
    for j in range(0, KEPT):
        best = tl.maximum(tl.max(left_out, 1), float("-inf"))[:, None]
        first = tl.min(tl.where(best <= left_out, number, NONE), 1)[:, None]
        left_out = tl.where((first <= number) & (number < first + MEMBERS), float("nan"), left_out)
    key = tl.where(left_out == left_out, float("-inf"), key)
    place = tl.arange(0, PLACES)[None, :]
    chosen = tl.full((BM, PLACES), 0.0, tl.float32)
    share = tl.full((BM, PLACES), 0.0, tl.float32)
    for j in range(0, TOPK):
        largest = tl.maximum(tl.max(key, 1), float("-inf"))[:, None]
        first = tl.min(tl.where(largest <= key, number, NONE), 1)[:, None]
        own = tl.sum(tl.where(number == first, score, 0.0), 1)[:, None]
        chosen = tl.where(place == j, first, chosen)
        share = tl.where(place == j, own, share)
        key = tl.where(number == first, float("nan"), key)
    total = tl.full((BM,), 1.0, tl.float32)
    if NORMED == 1:
        total = tl.sum(share, 1)
    else:
        if SIGMOID == 0:
            total = tl.sum(score, 1)
    share = share / total[:, None] * SCALE
    ids_tile = tl.make_block_ptr(ids, (m, TOPK), (TOPK, 1), (row, 0), (BM, PLACES), (1, 0))
    tl.store(ids_tile, chosen.to(tl.int32), boundary_check=(0, 1))
    shares_tile = tl.make_block_ptr(shares, (m, TOPK), (TOPK, 1), (row, 0), (BM, PLACES), (1, 0))
    tl.store(shares_tile, share, boundary_check=(0, 1))
