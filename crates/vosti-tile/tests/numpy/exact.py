"""The operations whose order or rounding is Vosti's own, bit for bit, in NumPy: dot, reductions, fma, exponentials.

Written after ARCHITECTURE.md, "Numbers"; the coefficients are those of crates/vosti-tile/src/numerics/math.rs. Arrays are FP32;
a BF16 number is the FP32 number that it stands for. Everything is computed in FP64 and rounded once, with denormals as zeros.
"""
import numpy as np

TINY = np.float32(2.0**-126)
# A number nearer to zero than this, rounded to 24 bits, is below the smallest normal number.
ZERO_BELOW = 2.0**-126 - 2.0**-151


def flush(x):
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x).astype(np.float32)


def rounded(x):
    """FP64 to FP32. What FP64 cannot hold must be rounded to odd, so that it is rounded once."""
    small = np.abs(x) < ZERO_BELOW
    if np.any(small):
        x = np.where(small, np.copysign(0.0, x), x)
    return x.astype(np.float32)


def plus_odd(p, c):
    """p + c in FP64, rounded to odd."""
    s = p + c
    back = s - p
    rest = (p - (s - back)) + (c - back)
    if np.any(rest):
        bits = np.ascontiguousarray(s).view(np.int64)
        wrong = np.isfinite(s) & (rest != 0) & (bits & 1 == 0)
        s = np.where(wrong, bits + np.where((rest > 0) == (s > 0), 1, -1), bits).view(np.float64)
    return s


def fma(a, b, c):
    """a * b + c; operands are flushed. A product of two FP32 numbers is exact in FP64."""
    return rounded(plus_odd(np.float64(a) * np.float64(b), np.float64(c)))


def dot(a, b, c, pairs):
    """c + a b: k ascends; of BF16 by pairs, of which the odd one is added first."""
    # Lanes with equal operands have equal sums, so one row stands for all padding rows.
    last = np.flatnonzero(np.any(a.view(np.uint32), 1) | np.any(c.view(np.uint32), 1))
    rows = min(int(last[-1]) + 2 if last.size else 1, a.shape[0])
    a, b, acc = np.float64(flush(a[:rows])), np.float64(flush(b)), flush(c[:rows])
    order = range(a.shape[1])
    if pairs:
        order = [k ^ 1 for k in order]
    for k in order:
        acc = rounded(plus_odd(a[:, k:k + 1] * b[k], np.float64(acc)))
    return np.concatenate([acc, np.repeat(acc[-1:], c.shape[0] - rows, 0)])


def reduce(x, axis, combine):
    """Sixteen strided lanes, then eight, four, two, one."""
    x = np.moveaxis(x, axis, 0)
    live = min(x.shape[0], 16)
    lanes = x[:live].copy()
    for first in range(16, x.shape[0], 16):
        part = x[first:first + 16]
        lanes[:len(part)] = combine(lanes[:len(part)], part)
    for step in (8, 4, 2, 1):
        count = min(step, max(live - step, 0))
        lanes[:count] = combine(lanes[:count], lanes[step:step + count])
    return lanes[0]


def bits(*numbers):
    return [np.array(n, np.uint32).view(np.float32) for n in numbers]


EXP2 = bits(0x3F317218, 0x3E75FDEE, 0x3D635774, 0x3C1D96A6, 0x3AAF9F29, 0x3920FDDE)
EXP = bits(0x3F800000, 0x3EFFFFFE, 0x3E2AAA0C, 0x3D2AAC12, 0x3C0933F9, 0x3AB57363)
LOG2_E, LN_2_HIGH, LN_2_LOW = bits(0x3FB8AA3B, 0x3F318000, 0xB95E8083)
ROUND = np.float32(12582912.0)


def times(a, b):
    return rounded(np.float64(a) * np.float64(b))


def add(a, b):
    return flush(a + b)


def exponential(x, low, high, reduced, polynomial):
    x = np.where(np.float32(high) < x, np.float32(high), x)
    x = np.where(x < np.float32(low), np.float32(low), x)
    base, r = reduced(x)
    p = polynomial[5]
    for c in polynomial[4::-1]:
        p = fma(flush(p), r, c)
    one_plus = fma(flush(p), r, np.float32(1))
    n = (base.view(np.int32) - ROUND.view(np.int32)).astype(np.int32)
    half = n >> 1
    power = lambda n: ((n + 127) << 23).astype(np.int32).view(np.float32)
    return times(times(one_plus, power(half)), power(n - half))


def exp2(x):
    def reduced(x):
        base = add(x, ROUND)
        return base, flush(add(x, -add(base, -ROUND)))
    return exponential(flush(x), -128.0, 129.0, reduced, EXP2)


def exp(x):
    def reduced(x):
        base = add(times(x, LOG2_E), ROUND)
        whole = add(base, -ROUND)
        return base, flush(fma(whole, -LN_2_LOW, flush(fma(whole, -LN_2_HIGH, x))))
    return exponential(flush(x), -89.0, 90.0, reduced, EXP)


def rsqrt(x):
    return flush(np.float32(1) / flush(np.sqrt(flush(x))))


def compute(op, arguments, extra):
    """The value of an operation; None for those that are not Vosti's own. `extra` is the combiner and axis of a reduction, and
    of a dot whether its operands are BF16."""
    with np.errstate(all="ignore"):
        x = [np.asarray(a, np.float32) for a in arguments]
        if op == "tt.dot":
            return dot(*x, extra)
        if op == "tt.reduce":
            combine, axis = extra
            return reduce(x[0], axis, combine)
        if op == "math.fma":
            return fma(*(flush(a) for a in x))
        one = {"math.exp": exp, "math.exp2": exp2, "math.rsqrt": rsqrt}.get(op)
        return one and one(np.atleast_1d(x[0])).reshape(x[0].shape)
