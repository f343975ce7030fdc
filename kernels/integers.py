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
