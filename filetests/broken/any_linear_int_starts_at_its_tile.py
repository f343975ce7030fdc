#: sibling: any_linear_int
#: mistake: a tile begins at the block of its number
#: fails: dependency
#: replay: differs
"""A linear layer in integers: the rows of `quantise` times a weight of codes, scales and offsets by group.

A group is a block of 32 codes if HALVES is 0, half a block if it is 1; scales and offsets stand at every half. Blocks ascend.
"""
import triton
import triton.language as tl
from integers import plus


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
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
# [constants]
# BM = 16
# BN = 16
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
def kernel(hi, lo, scale, sums, rows, codes, scales, offsets, out, BLOCKS, N, HALVES, OFFSETS, WIDE, BM: tl.constexpr,
           BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    first = (tl.arange(0, 32) < 16)[:, None]
    hi_tile = tl.make_block_ptr(hi, (m, BLOCKS * 32), (BLOCKS * 32, 1), (row, 0), (BM, 32), (1, 0))
    lo_tile = tl.make_block_ptr(lo, (m, BLOCKS * 32), (BLOCKS * 32, 1), (row, 0), (BM, 32), (1, 0))
    scale_tile = tl.make_block_ptr(scale, (m, BLOCKS), (BLOCKS, 1), (row, 0), (BM, 1), (1, 0))
    sums_tile = tl.make_block_ptr(sums, (m, BLOCKS * 2), (BLOCKS * 2, 1), (row, 0), (BM, 1), (1, 0))
    codes_tile = tl.make_block_ptr(codes, (BLOCKS * 32, N), (1, BLOCKS * 32), (0, col), (32, BN), (0, 1))
    scales_tile = tl.make_block_ptr(scales, (BLOCKS * 2, N), (1, BLOCKS * 2), (0, col), (1, BN), (0, 1))
    offsets_tile = tl.make_block_ptr(offsets, (BLOCKS * 2, N), (1, BLOCKS * 2), (0, col), (1, BN), (0, 1))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.program_id(0), BLOCKS):
        h = tl.load(hi_tile, boundary_check=(0, 1), padding_option="zero")
        l = tl.load(lo_tile, boundary_check=(0, 1), padding_option="zero")
        x = tl.load(scale_tile, boundary_check=(0, 1), padding_option="zero")
        q0 = tl.load(sums_tile, boundary_check=(0, 1), padding_option="zero")
        q1 = tl.load(tl.advance(sums_tile, (0, 1)), boundary_check=(0, 1), padding_option="zero")
        c = tl.load(codes_tile, boundary_check=(0, 1), padding_option="zero")
        s0 = tl.load(scales_tile, boundary_check=(0, 1), padding_option="zero")
        o0 = tl.load(offsets_tile, boundary_check=(0, 1), padding_option="zero")
        if HALVES == 1:
            s1 = tl.load(tl.advance(scales_tile, (1, 0)), boundary_check=(0, 1), padding_option="zero")
            o1 = tl.load(tl.advance(offsets_tile, (1, 0)), boundary_check=(0, 1), padding_option="zero")
            acc = plus(acc, h, l, tl.where(first, c, 0), x, q0, s0, o0, OFFSETS, WIDE)
            acc = plus(acc, h, l, tl.where(first, 0, c), x, q1, s1, o1, OFFSETS, WIDE)
        else:
            acc = plus(acc, h, l, c, x, q0 + q1, s0, o0, OFFSETS, WIDE)
        hi_tile = tl.advance(hi_tile, (0, 32))
        lo_tile = tl.advance(lo_tile, (0, 32))
        scale_tile = tl.advance(scale_tile, (0, 1))
        sums_tile = tl.advance(sums_tile, (0, 2))
        codes_tile = tl.advance(codes_tile, (32, 0))
        scales_tile = tl.advance(scales_tile, (2, 0))
        offsets_tile = tl.advance(offsets_tile, (2, 0))
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, acc.to(out.dtype.element_ty), boundary_check=(0, 1))
