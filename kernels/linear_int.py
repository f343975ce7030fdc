"""A linear layer in integers: rows that `quantise` made times codes, `out[t, n] = sum_k x[t, k] * w[n, k]` (`integers.py`)."""
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
# out = "out 0"
# BLOCKS = "dim 1..4096"
# N = "dim 1..1048576"
# HALVES = "dim 0..1"
# OFFSETS = "dim 0..1"
# WIDE = "dim 0..1"
# [shapes]
# hi = ["rows", "32 * BLOCKS"]
# lo = ["rows", "32 * BLOCKS"]
# scale = ["rows", "BLOCKS"]
# sums = ["rows", "2 * BLOCKS"]
# codes = ["N", "32 * BLOCKS"]
# scales = ["N", "2 * BLOCKS"]
# offsets = ["N", "2 * BLOCKS"]
# out = ["rows", "N"]
# ///
@triton.jit
def linear_int(hi, lo, scale, sums, rows, codes, scales, offsets, out, BLOCKS, N, HALVES, OFFSETS, WIDE, BM: tl.constexpr,
               BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    acc = product(hi, lo, scale, sums, codes, scales, offsets, m, row, col, BLOCKS, N, HALVES, OFFSETS, WIDE, BM, BN)
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, acc.to(out.dtype.element_ty), boundary_check=(0, 1))
