"""Products of integers, block by block: rows that `quantise` made times the codes of a weight.

The sum over a block is an exact integer, so no order of its terms can change a bit of it.
"""
import triton
import triton.language as tl


@triton.jit
def largest(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def plus(acc, hi, lo, codes, scale, sums, weight_scale, weight_offset, OFFSETS, WIDE):
    """`acc + isum * (weight_scale * scale) + weight_offset * (scale * sums)`, in two multiply-adds; `isum` is the sum over k of
    `q[t, k] * codes[k, n]`, with `q = 256 * hi + lo` if WIDE is 1, else `q = hi`. `sums[t]` is the sum of the same q."""
    isum = tl.dot(hi, codes, out_dtype=tl.int32, input_precision="ieee")
    if WIDE == 1:
        isum = isum * 256 + tl.dot(lo, codes, out_dtype=tl.int32, input_precision="ieee")
    acc = tl.fma(isum.to(tl.float32), weight_scale * scale, acc)
    if OFFSETS == 1:
        acc = tl.fma(weight_offset, scale * sums, acc)
    return acc


@triton.jit
def product(hi, lo, scale, sums, codes, scales, offsets, m, row, col, BLOCKS, N, HALVES, OFFSETS, WIDE, BM: tl.constexpr,
            BN: tl.constexpr):
    """The tile at (row, col) of `m` rows times a weight of N rows of codes, with a scale and an offset at each half of a block.

    A group is a block of 32 codes if HALVES is 0, and half a block if it is 1. Blocks ascend.
    """
    first = (tl.arange(0, 32) < 16)[:, None]
    hi_tile = tl.make_block_ptr(hi, (m, BLOCKS * 32), (BLOCKS * 32, 1), (row, 0), (BM, 32), (1, 0))
    lo_tile = tl.make_block_ptr(lo, (m, BLOCKS * 32), (BLOCKS * 32, 1), (row, 0), (BM, 32), (1, 0))
    scale_tile = tl.make_block_ptr(scale, (m, BLOCKS), (BLOCKS, 1), (row, 0), (BM, 1), (1, 0))
    sums_tile = tl.make_block_ptr(sums, (m, BLOCKS * 2), (BLOCKS * 2, 1), (row, 0), (BM, 1), (1, 0))
    codes_tile = tl.make_block_ptr(codes, (BLOCKS * 32, N), (1, BLOCKS * 32), (0, col), (32, BN), (0, 1))
    scales_tile = tl.make_block_ptr(scales, (BLOCKS * 2, N), (1, BLOCKS * 2), (0, col), (1, BN), (0, 1))
    offsets_tile = tl.make_block_ptr(offsets, (BLOCKS * 2, N), (1, BLOCKS * 2), (0, col), (1, BN), (0, 1))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, BLOCKS):
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
    return acc
