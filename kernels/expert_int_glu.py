"""The gated unit of the experts that a row chose, in integers (`integers.py`), in FP32: `expert_glu` of a weight in blocks."""
import triton
import triton.language as tl
from integers import product


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)", "E"]
# text = ["PLACES"]
# [params]
# hi = "in 0 i8"
# lo = "in 1 i8"
# scale = "in 2 f32"
# sums = "in 3 f32"
# ids = "in 4 i32"
# rows = "rows"
# codes = "weight 0 i8"
# scales = "weight 1 f32"
# offsets = "weight 2 f32"
# bias = "weight 3 f32"
# out = "out 0 f32"
# BLOCKS = "dim 1..4096"
# N = "dim 1..1048576"
# E = "dim 1..4096"
# HALVES = "dim 0..1"
# OFFSETS = "dim 0..1"
# WIDE = "dim 0..1"
# ACT = "dim 0..2"
# [shapes]
# hi = ["rows", "32 * BLOCKS"]
# lo = ["rows", "32 * BLOCKS"]
# scale = ["rows", "BLOCKS"]
# sums = ["rows", "2 * BLOCKS"]
# ids = ["rows", "TOPK"]
# codes = ["E", "2 * N", "32 * BLOCKS"]
# scales = ["E", "2 * N", "2 * BLOCKS"]
# offsets = ["E", "2 * N", "2 * BLOCKS"]
# bias = ["E", "2 * N"]
# out = ["rows", "TOPK", "N"]
# ///
@triton.jit
def expert_int_glu(hi, lo, scale, sums, ids, rows, codes, scales, offsets, bias, out, BLOCKS, N, E, HALVES, OFFSETS, WIDE,
                   ACT, TOPK: tl.constexpr, PLACES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    expert = tl.program_id(2)
    n = col + tl.arange(0, BN)
    own_bias = bias + expert.to(tl.int64) * 2 * N + n
    gate_bias = tl.load(own_bias, mask=(n < N) & (ACT == 2), other=0.0)
    up_bias = tl.load(own_bias + N, mask=(n < N) & (ACT == 2), other=0.0)
    halves = N.to(tl.int64) * (BLOCKS * 2)
    own = expert.to(tl.int64) * 2 * N * (BLOCKS * 2)
    gate = product(hi, lo, scale, sums, codes + own * 16, scales + own, offsets + own, m, row, col, BLOCKS, N, HALVES, OFFSETS,
                   WIDE, BM, BN, PLACES)
    second = own + halves
    up = product(hi, lo, scale, sums, codes + second * 16, scales + second, offsets + second, m, row, col, BLOCKS, N, HALVES,
                 OFFSETS, WIDE, BM, BN, PLACES)
    # A branch would double the cases of the proof, of which there is one for each flag.
    held = gate + gate_bias[None, :]
    gate = tl.where(ACT == 2, tl.where(held > 7.0, 7.0, held), gate)
    held = up + up_bias[None, :]
    up = tl.where(ACT == 2, tl.where(held > 7.0, 7.0, tl.where(held < -7.0, -7.0, held)) + 1.0, up)
    z = tl.where(ACT == 1, 1.5957691216057308 * (gate + 0.044715 * (gate * gate * gate)), gate)
    z = tl.where(ACT == 2, 1.702 * gate, z)
    y = gate / (1.0 + tl.exp(-z)) * up
    # A lane is a row and one of its choices, so that there is one store: each would prove both products again.
    lane = tl.arange(0, BM * PLACES)
    t = row + lane // PLACES
    place = lane % PLACES
    entry = t * TOPK + place
    live = (t < m) & (place < TOPK)
    chosen = tl.load(ids + entry, mask=live, other=0)
    chosen = tl.minimum(tl.maximum(chosen, 0), E - 1)
    mine = live & (chosen == expert)
    tl.store(out + (entry.to(tl.int64)[:, None] * N + n[None, :]), y, mask=mine[:, None] & (n < N)[None, :])
