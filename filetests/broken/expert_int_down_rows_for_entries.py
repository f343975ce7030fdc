#: sibling: any_expert_int_down
#: mistake: of a tile, only as many choices as the step has rows are read
#: fails: guard
#: replay: differs
"""The second matrix of the experts that a row chose, in integers (`integers.py`), in FP32: `expert_down` of a weight in blocks."""
import triton
import triton.language as tl
from integers import product


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)", "E"]
# text = ["LANES"]
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
# out = "out 0 f32"
# BLOCKS = "dim 1..4096"
# N = "dim 1..1048576"
# E = "dim 1..4096"
# HALVES = "dim 0..1"
# OFFSETS = "dim 0..1"
# WIDE = "dim 0..1"
# [constants]
# TOPK = 3
# LANES = 64
# BM = 16
# BN = 16
# [shapes]
# hi = ["rows", "TOPK", "32 * BLOCKS"]
# lo = ["rows", "TOPK", "32 * BLOCKS"]
# scale = ["rows", "TOPK", "BLOCKS"]
# sums = ["rows", "TOPK", "2 * BLOCKS"]
# ids = ["rows", "TOPK"]
# codes = ["E", "N", "32 * BLOCKS"]
# scales = ["E", "N", "2 * BLOCKS"]
# offsets = ["E", "N", "2 * BLOCKS"]
# out = ["rows", "TOPK", "N"]
# ///
@triton.jit
def kernel(hi, lo, scale, sums, ids, rows, codes, scales, offsets, out, BLOCKS, N, E, HALVES, OFFSETS, WIDE,
           TOPK: tl.constexpr, LANES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    entries = tl.load(rows) * TOPK
    first = tl.program_id(0) * BM * TOPK
    col = tl.program_id(1) * BN
    expert = tl.program_id(2)
    own = expert.to(tl.int64) * N * (BLOCKS * 2)
    y = product(hi, lo, scale, sums, codes + own * 16, scales + own, offsets + own, tl.load(rows), first, col, BLOCKS, N, HALVES,
                OFFSETS, WIDE, LANES, BN)
    lane = tl.arange(0, LANES)
    entry = first + lane
    # A tile's last lanes may be the next tile's first.
    live = (lane < BM * TOPK) & (entry < entries)
    chosen = tl.load(ids + entry, mask=live, other=0)
    chosen = tl.minimum(tl.maximum(chosen, 0), E - 1)
    mine = live & (chosen == expert)
    n = col + tl.arange(0, BN)
    tl.store(out + (entry.to(tl.int64)[:, None] * N + n[None, :]), y, mask=mine[:, None] & (n < N)[None, :])
