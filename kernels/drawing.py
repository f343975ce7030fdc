"""A column drawn by weight: the inverse of the cumulative distribution at a number in [0, 1). `draw_part` and `draw_combine` use it.

Sums along a row are one tree, and rounding keeps order, so that the sum of the first columns never falls as columns are added.
"""
import triton
import triton.language as tl


@triton.constexpr_function
def halvings(columns):
    return columns.bit_length() - 1


@triton.jit
def weigh(v, scale):
    """The largest value of each row, NaN ignored, and each column's weight, `2 ** ((v - largest) * scale)`. NaN weighs nothing."""
    largest = tl.maximum(tl.max(v, 1), float("-inf"))
    # The difference of infinities is NaN.
    weight = tl.where(v >= largest[:, None], 1.0, tl.exp2((v - largest[:, None]) * scale[:, None]))
    return largest, tl.where(weight >= 0.0, weight, 0.0)


@triton.jit
def draw_column(weight, number, COLUMNS: tl.constexpr, BM: tl.constexpr):
    """The sum of each row's weights, and the first column at which their running sum exceeds `number` times that, as an FP32
    number. The column has a weight: a number below 1 times a sum of 1 or more is below the sum, and where a compiler adds the loop's
    sums in another order than the first one, so that rounding could pass all of them, the last column with a weight is taken. It
    is 0 if no column has one."""
    column = tl.arange(0, COLUMNS).to(tl.float32)[None, :]
    total = tl.sum(weight, 1)
    target = number * total
    last = tl.max(tl.where(weight > 0.0, column, 0.0), 1)
    # The columns before `at` weigh at most `target`, and those before `at + 2 * half` more.
    at = tl.zeros((BM,), tl.float32)
    half = COLUMNS / 2
    for _ in range(0, halvings(COLUMNS)):
        middle = at + half
        before = tl.sum(tl.where(column < middle[:, None], weight, 0.0), 1)
        at = tl.where(before <= target, middle, at)
        half *= 0.5
    return total, tl.minimum(at, last)
