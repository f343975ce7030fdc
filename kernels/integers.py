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
def rows_of(x, m, width, row, BM: tl.constexpr, PLACES: tl.constexpr, COLUMNS: tl.constexpr):
    """The first COLUMNS columns of BM rows, each of which counts PLACES times."""
    if PLACES == 1:
        tile = tl.make_block_ptr(x, (m, width), (width, 1), (row, 0), (BM, COLUMNS), (1, 0))
    else:
        tile = tl.make_block_ptr(x, (m, PLACES, width), (width, 0, 1), (row, 0, 0), (BM, PLACES, COLUMNS), (2, 1, 0))
    return tile


@triton.jit
def loaded(tile, BM: tl.constexpr, PLACES: tl.constexpr, COLUMNS: tl.constexpr):
    if PLACES == 1:
        x = tl.load(tile, boundary_check=(0, 1), padding_option="zero")
    else:
        x = tl.load(tile, boundary_check=(0, 2), padding_option="zero")
        x = tl.reshape(x, (BM * PLACES, COLUMNS))
    return x


@triton.jit
def along(tile, PLACES: tl.constexpr, COLUMNS: tl.constexpr):
    """The window COLUMNS columns further on."""
    if PLACES == 1:
        tile = tl.advance(tile, (0, COLUMNS))
    else:
        tile = tl.advance(tile, (0, 0, COLUMNS))
    return tile


@triton.jit
def product(hi, lo, scale, sums, codes, scales, offsets, m, row, col, BLOCKS, N, HALVES, OFFSETS, WIDE, BM: tl.constexpr,
            BN: tl.constexpr, PLACES: tl.constexpr = 1):
    """The tile at (row, col) of `m` rows times a weight of N rows of codes, with a scale and an offset at each half of a block.

    A group is a block of 32 codes if HALVES is 0, and half a block if it is 1. Blocks ascend. Each row counts PLACES times: the
    result has BM * PLACES rows.
    """
    first = (tl.arange(0, 32) < 16)[:, None]
    hi_tile = rows_of(hi, m, BLOCKS * 32, row, BM, PLACES, 32)
    lo_tile = rows_of(lo, m, BLOCKS * 32, row, BM, PLACES, 32)
    scale_tile = rows_of(scale, m, BLOCKS, row, BM, PLACES, 1)
    sums_tile = rows_of(sums, m, BLOCKS * 2, row, BM, PLACES, 1)
    codes_tile = tl.make_block_ptr(codes, (BLOCKS * 32, N), (1, BLOCKS * 32), (0, col), (32, BN), (0, 1))
    scales_tile = tl.make_block_ptr(scales, (BLOCKS * 2, N), (1, BLOCKS * 2), (0, col), (1, BN), (0, 1))
    offsets_tile = tl.make_block_ptr(offsets, (BLOCKS * 2, N), (1, BLOCKS * 2), (0, col), (1, BN), (0, 1))
    acc = tl.zeros((BM * PLACES, BN), tl.float32)
    for _ in range(0, BLOCKS):
        h = loaded(hi_tile, BM, PLACES, 32)
        l = loaded(lo_tile, BM, PLACES, 32)
        x = loaded(scale_tile, BM, PLACES, 1)
        q0 = loaded(sums_tile, BM, PLACES, 1)
        q1 = loaded(along(sums_tile, PLACES, 1), BM, PLACES, 1)
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
        hi_tile = along(hi_tile, PLACES, 32)
        lo_tile = along(lo_tile, PLACES, 32)
        scale_tile = along(scale_tile, PLACES, 1)
        sums_tile = along(sums_tile, PLACES, 2)
        codes_tile = tl.advance(codes_tile, (32, 0))
        scales_tile = tl.advance(scales_tile, (2, 0))
        offsets_tile = tl.advance(offsets_tile, (2, 0))
    return acc
