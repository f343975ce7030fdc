"""What a gated delta rule takes of each row, in FP32: queries and keys of length one, values, log-decays and strengths.

A row of `qkv` has PARTS times KEY_HEADS heads of D numbers: the queries, the keys, and then GROUP values for each key head, the first
ones of all key heads before the second ones, as llama.cpp has them in its files. A row of `ba` has their strengths and then their decays
in the same order. In the outputs the values of one key head are neighbours. A query is also divided by the square root of D. A value's
log-decay is `rate * softplus(a + dt_bias)`, where rates are negative, and its strength is `sigmoid(b)`. Both are written COPIES times,
once for each slice of a value that has a program of its own in the rule.
"""
import triton
import triton.language as tl
from rotation import columns
from softplus import softplus


@triton.jit
def unit(x, EPS: tl.constexpr):
    """Rows of length one."""
    return x * tl.rsqrt(tl.sum(x * x, 1) + EPS)[:, None]


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "KEY_HEADS", "GROUP"]
# where = ["GROUP + 2 <= PARTS", "D <= DP", "COPIES <= CP"]
# [params]
# qkv = "in 0"
# ba = "in 1 f32"
# rows = "rows"
# rate = "weight 0 f32"
# dt_bias = "weight 1 f32"
# q = "out 0 f32"
# k = "out 1 f32"
# v = "out 2 f32"
# g = "out 3 f32"
# beta = "out 4 f32"
# KEY_HEADS = "dim 1..1024"
# GROUP = "dim 1..64"
# PARTS = "dim 3..66"
# D = "dim 1..256"
# COPIES = "dim 1..4"
# SCALE = "number"
# [shapes]
# qkv = ["rows", "PARTS", "KEY_HEADS", "D"]
# ba = ["rows", "2", "GROUP", "KEY_HEADS"]
# rate = ["GROUP", "KEY_HEADS"]
# dt_bias = ["GROUP", "KEY_HEADS"]
# q = ["rows", "KEY_HEADS", "D"]
# k = ["rows", "KEY_HEADS", "D"]
# v = ["rows", "KEY_HEADS", "GROUP", "D"]
# g = ["rows", "KEY_HEADS", "GROUP", "COPIES"]
# beta = ["rows", "KEY_HEADS", "GROUP", "COPIES"]
# ///
@triton.jit
def delta_inputs(qkv, ba, rows, rate, dt_bias, q, k, v, g, beta, KEY_HEADS, GROUP, PARTS, D, COPIES, SCALE, BM: tl.constexpr,
                 DP: tl.constexpr, CP: tl.constexpr):
    EPS: tl.constexpr = 1e-6
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    key_head = tl.program_id(1)
    member = tl.program_id(2)
    stride = PARTS * KEY_HEADS * D
    t = row + tl.arange(0, BM)
    d = tl.arange(0, DP)
    live = (t < m)[:, None] & (d < D)[None, :]
    long = t.to(tl.int64)

    # The program of a key head's first value writes its query and its key.
    query = unit(columns(qkv, m, row, key_head * D, stride, D, BM, DP), EPS) * SCALE
    key = unit(columns(qkv, m, row, (KEY_HEADS + key_head) * D, stride, D, BM, DP), EPS)
    cell = (long * KEY_HEADS + key_head)[:, None] * D + d[None, :]
    tl.store(q + cell, query, mask=live & (member == 0))
    tl.store(k + cell, key, mask=live & (member == 0))

    value = columns(qkv, m, row, ((2 + member) * KEY_HEADS + key_head) * D, stride, D, BM, DP)
    place = (long * KEY_HEADS + key_head) * GROUP + member
    tl.store(v + (place[:, None] * D + d[None, :]), value, mask=live)

    own = member * KEY_HEADS + key_head
    b = tl.load(ba + ((long * 2 * GROUP + member) * KEY_HEADS + key_head), mask=t < m, other=0.0)
    a = tl.load(ba + (((long * 2 + 1) * GROUP + member) * KEY_HEADS + key_head), mask=t < m, other=0.0)
    decay = tl.load(rate + own) * softplus(a + tl.load(dt_bias + own))
    strength = 1.0 / (1.0 + tl.exp(-b))
    copy = tl.arange(0, CP)
    cells = (place * COPIES)[:, None] + copy[None, :]
    written = (t < m)[:, None] & (copy < COPIES)[None, :]
    tl.store(g + cells, decay[:, None], mask=written)
    tl.store(beta + cells, strength[:, None], mask=written)
