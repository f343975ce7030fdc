"""A linear layer in integers whose output, times SCALE, is added to the residual stream (`integers.py`, `linear_add.py`)."""
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
# residual = "in 4 f32"
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
# SCALE = "number"
# [shapes]
# hi = ["rows", "32 * BLOCKS"]
# lo = ["rows", "32 * BLOCKS"]
# scale = ["rows", "BLOCKS"]
# sums = ["rows", "2 * BLOCKS"]
# residual = ["rows", "N"]
# codes = ["N", "32 * BLOCKS"]
# scales = ["N", "2 * BLOCKS"]
# offsets = ["N", "2 * BLOCKS"]
# out = ["rows", "N"]
# ///
@triton.jit
def linear_int_add(hi, lo, scale, sums, residual, rows, codes, scales, offsets, out, BLOCKS, N, HALVES, OFFSETS, WIDE,
                   SCALE, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    acc = product(hi, lo, scale, sums, codes, scales, offsets, m, row, col, BLOCKS, N, HALVES, OFFSETS, WIDE, BM, BN)
    residual_tile = tl.make_block_ptr(residual, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    r = tl.load(residual_tile, boundary_check=(0, 1), padding_option="zero")
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, r + acc * SCALE, boundary_check=(0, 1))
