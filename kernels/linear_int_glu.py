"""Gated linear unit in integers, in FP32 (`integers.py`); the weight has N rows of gate, then N rows of up.

ACT is that of `linear_glu`.
"""
import triton
import triton.language as tl
from integers import product


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# text = []
# [params]
# hi = "in 0 i8"
# lo = "in 1 i8"
# scale = "in 2 f32"
# sums = "in 3 f32"
# rows = "rows"
# codes = "weight 0 i8"
# scales = "weight 1 f32"
# offsets = "weight 2 f32"
# out = "out 0 f32"
# BLOCKS = "dim 1..4096"
# N = "dim 1..1048576"
# HALVES = "dim 0..1"
# OFFSETS = "dim 0..1"
# WIDE = "dim 0..1"
# ACT = "dim 0..1"
# [shapes]
# hi = ["rows", "32 * BLOCKS"]
# lo = ["rows", "32 * BLOCKS"]
# scale = ["rows", "BLOCKS"]
# sums = ["rows", "2 * BLOCKS"]
# codes = ["2 * N", "32 * BLOCKS"]
# scales = ["2 * N", "2 * BLOCKS"]
# offsets = ["2 * N", "2 * BLOCKS"]
# out = ["rows", "N"]
# ///
@triton.jit
def linear_int_glu(hi, lo, scale, sums, rows, codes, scales, offsets, out, BLOCKS, N, HALVES, OFFSETS, WIDE, ACT,
                   BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    gate = product(hi, lo, scale, sums, codes, scales, offsets, m, row, col, BLOCKS, N, HALVES, OFFSETS, WIDE, BM, BN)
    halves = N.to(tl.int64) * (BLOCKS * 2)
    up = product(hi, lo, scale, sums, codes + halves * 16, scales + halves, offsets + halves, m, row, col, BLOCKS, N, HALVES,
                 OFFSETS, WIDE, BM, BN)
    z = gate
    if ACT == 1:
        z = 1.5957691216057308 * (gate + 0.044715 * (gate * gate * gate))
    y = gate / (1.0 + tl.exp(-z)) * up
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, y, boundary_check=(0, 1))
