#: sibling: any_norm_gated
#: mistake: every head of a group is stored in the place of its first
#: fails: coverage
#: replay: differs
"""RMS norm of each head, times a weight and the SiLU of a gate: the output of a gated delta rule.

There are GROUP heads of D numbers for each of KEY_HEADS. Those of one key head are neighbours in `x`; in `z` and `out` the first heads
of all key heads come first, then the second ones, as llama.cpp has them in its files.
"""
import triton
import triton.language as tl
from rotation import columns, weights


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "KEY_HEADS", "GROUP"]
# where = ["D <= DP"]
# [params]
# x = "in 0 f32"
# z = "in 1"
# rows = "rows"
# norm_w = "weight 0 f32"
# out = "out 0"
# KEY_HEADS = "dim 1..1024"
# GROUP = "dim 1..64"
# D = "dim 1..256"
# EPS = "number"
# [constants]
# BM = 4
# DP = 16
# [shapes]
# x = ["rows", "KEY_HEADS", "GROUP", "D"]
# z = ["rows", "GROUP", "KEY_HEADS", "D"]
# norm_w = ["D"]
# out = ["rows", "GROUP", "KEY_HEADS", "D"]
# ///
@triton.jit
def kernel(x, z, rows, norm_w, out, KEY_HEADS, GROUP, D, EPS, BM: tl.constexpr, DP: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    key_head = tl.program_id(1)
    member = tl.program_id(2)
    width = KEY_HEADS * GROUP * D
    value = columns(x, m, row, (key_head * GROUP + member) * D, width, D, BM, DP)
    place = (member * KEY_HEADS + key_head) * D
    gate = columns(z, m, row, place, width, D, BM, DP)
    scale = tl.rsqrt(tl.sum(value * value, 1) / D + EPS)
    y = value * scale[:, None] * weights(norm_w, D, DP) * (gate / (1.0 + tl.exp(-gate)))
    tile = tl.make_block_ptr(out + key_head * D, (m, D), (width, 1), (row, 0), (BM, DP), (1, 0))
    tl.store(tile, y.to(out.dtype.element_ty), boundary_check=(0, 1))
