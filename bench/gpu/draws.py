"""The two launches of a draw for `fp64.py`. Where rounding decides between tokens, any of them is right."""
import numpy as np

from gates import F32


def weights(v, scale):
    """A row's largest number, NaN ignored, each column's weight, and how far off the weights may be."""
    top = np.max(v, where=~np.isnan(v), initial=-np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        power = np.where(v >= top, 0, (v - top) * scale)
        weight = np.exp2(power)
    weight = np.where(np.isnan(weight), 0, np.where(weight > np.finfo(np.float32).max, np.inf, weight))
    return top, weight, weight * (8 + 2 * np.abs(np.where(weight > 0, power, 0))) * F32


def drawn(weight, off, number, columns):
    """The sum of a row's weights, how far off it may be, and the columns at which halving may end; all, if the sum is infinite. No
    column is behind the last with a weight."""
    total, off = weight.sum(), off.sum() + len(weight) * F32 * np.abs(weight).sum()
    if not np.isfinite(total):
        return total, 0, range(columns)
    target = number * total
    slack = off * (1 + abs(number)) + F32 * abs(target)
    ends, half = {0}, columns // 2
    while half > 0:
        further = {at + half for at in ends if weight[:at + half].sum() <= target + slack}
        ends = further | {at for at in ends if weight[:at + half].sum() > target - slack}
        half //= 2
    # A weight that is subnormal may count as zero.
    lasts = [np.flatnonzero(weight >= least).max(initial=0) for least in (np.finfo(np.float32).tiny, 1e-300)]
    return total, off, {min(at, last) for at in ends for last in lasts}


def nearest(given, right):
    return min(right, key=lambda token: abs(token - given))


def draw_part(l):
    v, parts, part = l.inputs("x", l.int("V")), l.int("PARTS"), l.int("PART")
    given = l["written.tokens"].reshape(-1, parts)[l.rows]
    largest, sums, offs, tokens = np.zeros((4,) + given.shape)
    for row, (scale, number) in enumerate(zip(l.inputs("scale", 1)[:, 0], l.inputs("within", 1)[:, 0])):
        for i in range(parts):
            largest[row, i], weight, off = weights(v[row, i * part:(i + 1) * part], scale)
            sums[row, i], offs[row, i], ends = drawn(weight, off, number, part)
            tokens[row, i] = nearest(given[row, i], [i * part + end for end in ends])
    return {"largest": (largest, 0), "sums": (sums, offs), "tokens": (tokens, 0)}


def draw_combine(l):
    parts, width = l.int("PARTS"), l.int("WIDTH")
    tops, sums, tokens = (l.inputs(name, parts) for name in ("largest", "sums", "tokens"))
    given, out = l["written.out"].reshape(-1, 1)[l.rows], np.zeros((len(tops), 1))
    for row, (scale, number) in enumerate(zip(l.inputs("scale", 1)[:, 0], l.inputs("pick", 1)[:, 0])):
        _, weight, off = weights(tops[row], scale)
        with np.errstate(invalid="ignore"):
            weight, off = weight * sums[row], off * np.abs(sums[row]) + F32 * np.abs(weight * sums[row])
        _, _, ends = drawn(weight, off, number, width)
        # Lanes behind the last part have the token 0.
        out[row, 0] = nearest(given[row, 0], [tokens[row, end] if end < parts else 0.0 for end in ends])
    return {"out": (out, 0)}
