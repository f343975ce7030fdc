"""Compares what each kernel gave in the launches that `vosti probe --dump FOLDER` wrote with what it should give, in FP64.

    python3 bench/gpu/fp64.py FOLDER > fp64.json

Needs numpy. Each kernel is written again here from what it promises, not from its text: sums in FP64, no tiles, no online softmax,
nothing rounded in between. An error is measured in units of what rounding can do at most: FP32 sums of K products, the roundings
that the kernel's contract names (weights of attention to BF16, the result to its type), some units in the last place for exp
and rsqrt. More than 1 means that a kernel computes something else. Only rows that the probe chose count: the others hold NaN,
infinities and huge numbers on purpose. A launch may have no such row that its kernel writes, and is then not compared. The exit code
is 1 if an error is more than 1, or if no launch of some specialisation was compared.
"""
import json
import pathlib
import sys

import numpy as np

from draws import draw_combine, draw_part
from gates import (F32, delta_inputs, gate_heads, gate_rows, mamba_inputs, norm_gated, normed, per_layer_gate, relu_squared,
                   rmsnorm_groups, silu, skip_gated, spread)

BF16 = 2.0 ** -8  # half a unit in the last place, relative, as F32 is
TINY = 2.0 ** -126  # smaller numbers are subnormal, and count as zero


def read(path):
    """Tensors by name in FP64 or as integers, and the metadata, of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    about = header.pop("__metadata__")
    tensors, kinds = {}, {}
    for name, entry in header.items():
        start, end = (8 + size + at for at in entry["data_offsets"])
        kinds[name] = entry["dtype"]
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(data[start:end], "<u2").astype(np.uint32) << 16
            tensors[name] = bits.view(np.float32).astype(np.float64)
        elif entry["dtype"] == "F32":
            tensors[name] = np.frombuffer(data[start:end], "<f4").astype(np.float64)
        else:
            tensors[name] = np.frombuffer(data[start:end], "<i4" if entry["dtype"] == "I32" else "i1")
    return tensors, kinds, about


class Launch:
    first = {}  # of each specialisation: it has the weights

    def __init__(self, path):
        tensors, self.kinds, about = read(path)
        self.name, self.kernel = about["specialisation"], about["kernel"]
        self.tensors = {**Launch.first.setdefault(self.name, tensors), **tensors}
        self.constants = {key: float(value) for key, value in json.loads(about["constants"]).items()}
        self.rows = self.tensors["chosen"]

    def __getitem__(self, name):
        return self.tensors[name]

    def int(self, name):
        return int(self.constants[name])

    def place(self, row):
        """Where a row's page table begins, and its position."""
        tiles = zip(self["tile_table"] if "tile_table" in self.tensors else self["tile_row"], self["tile_row"], self["tile_rows"],
                    self["tile_pos"])
        table, first, _, start = next(t for t in tiles if t[1] <= row < t[1] + t[2])
        return table, start + row - first

    def inputs(self, name, width):
        """The chosen rows of an input."""
        return self[name].reshape(-1, width)[self.rows]

    def rounding(self, name):
        return BF16 if self.kinds["written." + name] == "BF16" else F32


def product(x, w):
    """x w^T, and how far off its sum in FP32 may be."""
    return x @ w.T, x.shape[1] * (F32 * (np.abs(x) @ np.abs(w).T) + TINY)


def linear(l):
    x, w = l.inputs("x", l.int("K")), l["w"].reshape(l.int("N"), l.int("K"))
    return {"out": product(x, w)}


def added(l, value, off):
    residual, scale = l.inputs("residual", l.int("N")), l.constants["SCALE"]
    return {"out": (residual + value * scale, off * abs(scale) + F32 * np.abs(value * scale))}


def biased(l, value, off):
    total = value + l["bias"][:l.int("N")]
    return {"out": (total, off + F32 * np.abs(total))}


def capped(l, value, off):
    cap = l.constants["CAP"]
    return (cap * np.tanh(value / cap), off + 16 * F32 * cap) if cap else (value, off)


def linear_add(l):
    return added(l, *linear(l)["out"])


def linear_bias(l):
    return biased(l, *linear(l)["out"])


def linear_logits(l):
    return {"out": capped(l, *linear(l)["out"])}


def unit(l, x, w):
    """The gated unit of rows x, and how far off it may be."""
    n = l.int("N")
    return gated(l, product(x, w[:n]), product(x, w[n:]))


def gated(l, gate, up):
    (gate, gate_off), (up, up_off) = gate, up
    z = gate if l.int("ACT") == 0 else np.sqrt(8 / np.pi) * (gate + 0.044715 * gate ** 3)
    with np.errstate(over="ignore"):
        act = gate / (1 + np.exp(-z))
    # The steepest slope of either function is below 1.2; an exponential is off by its argument's last place.
    off = 1.2 * gate_off * np.abs(up) + np.abs(act) * up_off + np.abs(act * up) * (16 + 4 * np.abs(z)) * F32
    return act * up, off


def quantise(l):
    x = l.inputs("x", 32 * l.int("BLOCKS")).reshape(len(l.rows), -1, 32)
    top = 32639 if l.int("WIDE") else 127
    absmax = np.abs(x).max(-1, keepdims=True)
    q = np.where(absmax <= 1e-30, 0, np.rint(x * (top / np.maximum(absmax, 1e-30))))
    # The product with TOP / absmax may round to the other side of a half.
    high = np.floor((q + 128) / 256) if l.int("WIDE") else q
    flat = lambda y: y.reshape(len(l.rows), -1)
    return {"scale": (flat(absmax / top), flat(F32 * absmax / top + TINY)), "hi": (flat(high), flat(high * 0 + 1))}


def integers(l, height, left=1):
    """Rows of integers, `left` for each row of the step, times rows of a weight's blocks, and how far off the sum in FP32 may be."""
    blocks, n, wide, halves = l.int("BLOCKS"), l.int("N"), l.int("WIDE"), l.int("HALVES")
    rows = lambda name, width: l.inputs(name, left * width).reshape(-1, width)
    q = rows("hi", 32 * blocks).astype(np.float64)
    q = 256 * q + rows("lo", 32 * blocks) if wide else q
    each = lambda y: y.reshape(len(y), 2 * blocks, -1)
    scale = np.repeat(rows("scale", blocks), 2, 1)
    group = lambda y: y if halves else np.repeat(y[:, ::2], 2, 1)
    scales, offsets = (group(l[name].reshape(height, 2 * blocks)) for name in ("scales", "offsets"))
    x = each(q) * scale[:, :, None]
    right = each(l["codes"].astype(np.float64).reshape(height, -1)) * scales[:, :, None]
    flat = lambda y: y.reshape(len(y), -1)
    value, size = flat(x) @ flat(right).T, np.abs(flat(x)) @ np.abs(flat(right)).T
    if l.int("OFFSETS"):
        sums = rows("sums", 2 * blocks) * scale
        value, size = value + sums @ offsets.T, size + np.abs(sums) @ np.abs(offsets).T
    return value, 4 * (blocks + 2) * (F32 * size + TINY)


def linear_int(l):
    return {"out": integers(l, l.int("N"))}


def linear_int_add(l):
    return added(l, *integers(l, l.int("N")))


def linear_int_bias(l):
    return biased(l, *integers(l, l.int("N")))


def linear_int_logits(l):
    return {"out": capped(l, *integers(l, l.int("N")))}


def linear_int_glu(l):
    value, off = integers(l, 2 * l.int("N"))
    n = l.int("N")
    return {"out": gated(l, (value[:, :n], off[:, :n]), (value[:, n:], off[:, n:]))}


def experts_in_integers(l, left, n):
    """The products of each row, or of each choice of it, with `n` columns of its own experts, and how far off each may be."""
    value, off = integers(l, l.int("E") * n, left)
    own = chosen(l).ravel()
    rows = np.arange(len(own)) * len(value) // len(own)
    pick = lambda y: y.reshape(len(y), -1, n)[rows, own]
    return pick(value), pick(off)


def expert_int_glu(l):
    n, topk = l.int("N"), l.int("TOPK")
    value, off = experts_in_integers(l, 1, 2 * n)
    flat = lambda y: y.reshape(-1, topk * n)
    value, off = expert_unit(l, (value[:, :n], off[:, :n]), (value[:, n:], off[:, n:]), chosen(l).ravel())
    return {"out": (flat(value), flat(off))}


def expert_int_down(l):
    n, topk = l.int("N"), l.int("TOPK")
    return {"out": tuple(y.reshape(-1, topk * n) for y in experts_in_integers(l, topk, n))}


def linear_glu(l):
    k, n = l.int("K"), l.int("N")
    return {"out": unit(l, l.inputs("x", k), l["w"].reshape(2 * n, k))}


def route(l):
    e, topk = l.int("E"), l.int("TOPK")
    x = l.inputs("x", e)
    sigmoid = l.int("SIGMOID")
    with np.errstate(over="ignore"):
        score = 1 / (1 + np.exp(-x)) if sigmoid else np.exp(x - x.max(1, keepdims=True))
    key = score + l["bias"][:e] if sigmoid else x.copy()
    if l.int("GROUPS"):
        groups = key.reshape(len(key), l.int("GROUPS"), l.int("MEMBERS"))
        worth = np.sort(groups, axis=2)[:, :, -2:].sum(2)
        for row, left_out in enumerate(np.argsort(-worth, axis=1, kind="stable")[:, l.int("KEPT"):]):
            groups[row, left_out] = -np.inf
    order = np.argsort(-key, axis=1, kind="stable")[:, :topk]
    share = np.take_along_axis(score, order, 1)
    total = share.sum(1, keepdims=True) if l.int("NORMED") else 1.0 if sigmoid else score.sum(1, keepdims=True)
    share = share / total * l.constants["SCALE"]
    return {"ids": (order.astype(np.float64), 0.5 + 0 * share), "shares": (share, np.abs(share) * (e + 64) * F32)}


def chosen(l):
    """The expert of each choice of the chosen rows."""
    return np.clip(l.inputs("ids", l.int("TOPK")), 0, l.int("E") - 1)


def expert_unit(l, gate, up, experts):
    """The units of these experts; if ACT is 2, gpt-oss's, with biases and clamped."""
    if l.int("ACT") < 2:
        return gated(l, gate, up)
    n = l.int("N")
    bias = l["bias"].reshape(l.int("E"), 2, n)[experts]
    # Bounds and sums keep what either side is off by.
    gate = (np.minimum(gate[0] + bias[:, 0], 7), gate[1] + 2 * F32 * np.abs(gate[0] + bias[:, 0]))
    up = (np.clip(up[0] + bias[:, 1], -7, 7) + 1, up[1] + 2 * F32 * (8 + np.abs(up[0] + bias[:, 1])))
    with np.errstate(over="ignore"):
        act = gate[0] / (1 + np.exp(-1.702 * gate[0]))
    off = 1.2 * gate[1] * np.abs(up[0]) + np.abs(act) * up[1] + np.abs(act * up[0]) * (16 + 8 * np.abs(gate[0])) * F32
    return act * up[0], off


def expert_glu(l):
    e, k, n = l.int("E"), l.int("K"), l.int("N")
    x, w = l.inputs("x", k), l["w"].reshape(e, 2 * n, k)
    one = lambda row, expert: expert_unit(l, product(row, w[expert][:n]), product(row, w[expert][n:]), [expert])
    value, off = zip(*(one(row[None], expert) for row, own in zip(x, chosen(l)) for expert in own))
    return {"out": (np.concatenate(value).reshape(len(x), -1), np.concatenate(off).reshape(len(x), -1))}


def expert_down(l):
    e, k, n = l.int("E"), l.int("K"), l.int("N")
    x, w = l.inputs("x", l.int("TOPK") * k), l["w"].reshape(e, n, k)
    # Whole tiles read one choice of a row for each expert: the last one of equal ones.
    last = lambda own, j: max(i for i, other in enumerate(own) if other == own[j]) if l.int("WHOLE") else j
    pairs = [(rows.reshape(-1, k)[last(own, j)], own[j]) for rows, own in zip(x, chosen(l)) for j in range(len(own))]
    value, off = zip(*(product(row[None], w[expert]) for row, expert in pairs))
    return {"out": (np.concatenate(value).reshape(len(x), -1), np.concatenate(off).reshape(len(x), -1))}


def combine_bias(l):
    return combine(l, l["bias"].reshape(-1, l.int("H"))[chosen(l)])


def combine(l, bias=0):
    h, topk = l.int("H"), l.int("TOPK")
    y, share = l.inputs("y", topk * h).reshape(-1, topk, h) + bias, l.inputs("shares", topk)[:, :, None]
    value = (y * share).sum(1) * l.constants["SCALE"]
    size = (np.abs(y * share)).sum(1) * abs(l.constants["SCALE"])
    return {"out": (l.inputs("residual", h) + value, (topk + 4) * F32 * size)}


def combine_scaled(l):
    h, topk = l.int("H"), l.int("TOPK")
    y, share = l.inputs("y", topk * h).reshape(-1, topk, h), l.inputs("shares", topk) * l["factor"][chosen(l)]
    value = (y * share[:, :, None]).sum(1)
    return {"out": (value, (topk + 4) * F32 * np.abs(y * share[:, :, None]).sum(1))}


def add_bias(l):
    n = l.int("N")
    value = l.inputs("x", n) + l["bias"][:n]
    return {"out": (value, F32 * np.abs(value))}


def embed(l):
    h = l.int("H")
    value = l["w"].reshape(-1, h)[l["tokens"][l.rows]] * l.constants["SCALE"]
    return {"out": (value, 2 * F32 * np.abs(value))}


def round_stream(l):
    x = l.inputs("x", l.int("H"))
    return {"out": (x, 0 * x)}


def norm_qk(l):
    q, kv, eps = l.int("Q"), l.int("KV"), l.constants["EPS"]
    x = l.inputs("x", q + 2 * kv)
    queries, q_off = normed(x[:, :q], eps)
    keys, k_off = normed(x[:, q:q + kv], eps)
    queries, keys, values = queries * l["q_w"][:q], keys * l["k_w"][:kv], x[:, q + kv:]
    off = [np.abs(queries) * q_off, np.abs(keys) * k_off, 0 * values]
    return {"out": (np.concatenate([queries, keys, values], axis=1), np.concatenate(off, axis=1))}


def rmsnorm(l):
    h = l.int("H")
    value, off = normed(l.inputs("x", h), l.constants["EPS"])
    value = value * l["w"][:h]
    return {"out": (value, np.abs(value) * off)}


def gather(l):
    rows = l["row_index"][l.rows]
    x, residual = l["x"].reshape(-1, l.int("K"))[rows], l["residual"].reshape(-1, l.int("H"))[rows]
    return {"out": (x, 0 * x), "stream": (residual, 0 * residual)}


def rmsnorm_add(l):
    value, off = rmsnorm(l)["out"]
    residual = l.inputs("residual", l.int("H"))
    return {"out": (residual + value, off + F32 * np.abs(residual + value))}


def rmsnorm_add_scaled(l):
    value, off = rmsnorm_add(l)["out"]
    factor = l["factor"][:l.int("H")]
    return {"out": (value * factor, (off + 2 * F32 * np.abs(value)) * np.abs(factor))}


def heads(l, first, count):
    d, packed = 2 * l.int("HALF"), l.int("PACKED")
    return l.inputs("qkv", packed * d).reshape(-1, packed, d)[:, first:first + count]


def turned(l, x, side=""):
    """Normed if the kernel does, and turned by its position. `side`: how the names of norm and tables begin."""
    half, off = l.int("HALF"), 4 * F32
    if l.int("NORM"):
        x, more = normed(x, l.constants["EPS"])
        x, off = x * l[side + "norm_w"], off + more
    position = l["positions"][l.rows]
    cos, sin = (l[table].reshape(-1, half)[position][:, None, :] for table in (side + "cos", side + "sin"))
    a, b = x[..., :half], x[..., half:]
    value = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    size = np.concatenate([np.abs(a * cos) + np.abs(b * sin), np.abs(b * cos) + np.abs(a * sin)], -1)
    return value, size * off


def rope_q(l):
    value, off = turned(l, heads(l, l.int("FIRST"), l.int("HEADS")))
    return {"out": (value.reshape(len(l.rows), -1), off.reshape(len(l.rows), -1))}


def rope_store(l):
    kv = l.int("KV_HEADS")
    values = heads(l, l.int("V_FIRST"), kv)
    off = 0.0 * values
    if l.int("V_NORM"):
        values, more = normed(values, l.constants["EPS"])
        off = np.abs(values) * more
    keys = turned(l, heads(l, l.int("K_FIRST"), kv), "k_")
    return rope_q(l) | {"cache_k": keys, "cache_v": (values, off)}


def scores(l, window=0):
    """For each chosen row: the row, its position, and of the keys that it sees the scores, how far off they may be, and the values."""
    kv, group, d, page = (l.int(n) for n in ("KV_HEADS", "GROUP", "D", "PAGE"))
    # SLOPE holds the factor 1/ln 2, for exponentials to base 2, and with a cap the factor 2/cap.
    count, cap = kv * group, l.constants["CAP"]
    scale = l.constants["SLOPE"] * np.log(2) * (cap / 2 if cap else 1)
    keys, values = (l[name].reshape(-1, kv, page, d) for name in ("cache_k", "cache_v"))
    queries = l.inputs("q", count * d).reshape(-1, kv, group, d)
    for i, row in enumerate(l.rows):
        table, p = l.place(row)
        seen = np.arange(max(p - window + 1, 0) if window else 0, p + 1)
        pages = l["page_table"][table + seen // page]
        k, v = (cache[pages, :, seen % page, :] for cache in (keys, values))  # [seen, kv, d]
        score = scale * np.einsum("hgd,jhd->hgj", queries[i], k)
        off = d * F32 * scale * np.einsum("hgd,jhd->hgj", np.abs(queries[i]), np.abs(k)) + 8 * F32 * np.abs(score)
        if cap:
            score, off = cap * np.tanh(score / cap), off + 16 * F32 * cap
        yield row, p, score, off, v


def weighed(score, off, v):
    """Largest score, sum of weights, weighted sum of values of each head, and how far off the sums may be relatively."""
    top = score.max(-1)
    weight = np.exp(score - top[..., None])
    # Weights are rounded to BF16 before they meet values, and are as far off as scores are.
    each = 2 * off.max(-1) + 2 * (score.shape[-1] + 16) * F32
    sums = [np.einsum("hgj,jhd->hgd", weight, x) for x in (v, np.abs(v))]
    return top, weight.sum(-1), sums[0], sums[1], each


def sunk(l, top, total):
    """The sum of weights with that of each head's sink, which is a score times log2(e)."""
    if not l.int("SINKS"):
        return total
    return total + np.exp2(l["sinks"][:top.size].reshape(top.shape) - top / np.log(2))


def whole(l):
    """Attention in one launch, over a window or all keys: all outputs."""
    rows, result, bound = len(l.rows), [], []
    for _, _, *seen in scores(l, l.int("WINDOW") if l.int("USE") == 1 else 0):
        top, total, acc, size, each = weighed(*seen)
        total = sunk(l, top, total)
        result.append(acc / total[..., None])
        bound.append(size / total[..., None] * (BF16 + each[..., None]))
    return {"out": (np.array(result).reshape(rows, -1), np.array(bound).reshape(rows, -1))}


def attend(l):
    """Outputs of rows before the first split's end, and the partial results of other rows' splits. In one launch, all outputs."""
    if l.int("USE"):
        return whole(l)
    heads, split, d, height = l.int("KV_HEADS") * l.int("GROUP"), l.int("SPLIT"), l.int("D"), l.int("ROWS")
    cells = {name: ([], [], []) for name in ("out", "tops", "totals", "accs")}

    def cell(name, at, value, off):
        for part, more in zip(cells[name], (at + np.arange(value.size), value.ravel(), np.broadcast_to(off, value.shape).ravel())):
            part.append(more)

    for row, p, score, off, v in scores(l):
        if p < split:
            top, total, acc, size, each = weighed(score, off, v)
            total = sunk(l, top, total)
            cell("out", row * heads * d, acc / total[..., None], size / total[..., None] * (BF16 + each[..., None]))
            continue
        for s in range(p // split + 1):
            part = slice(s * split, (s + 1) * split)
            top, total, acc, size, each = weighed(score[..., part], off[..., part], v[part])
            at = (s * height + row) * heads
            cell("tops", at, top / np.log(2), (off[..., part].max(-1) + 4 * F32 * np.abs(top)) / np.log(2))
            cell("totals", at, total, total * each)
            cell("accs", at * d, acc, size * (BF16 + each[..., None]))
    return {name: [np.concatenate(part) for part in (value, off, at)] for name, (at, value, off) in cells.items() if at}


def halves(l, value):
    """Heads with even numbers go to the keys, the others to the values."""
    value = value.reshape(-1, l.int("KV_HEADS"), 2, l.int("D"))
    return {name: (value[:, :, half], 2 * F32 * np.abs(value[:, :, half])) for half, name in enumerate(("cache_k", "cache_v"))}


def store_gated(l):
    """Products of the first and the last part of a row."""
    x = l.inputs("fused", 6 * l.int("KV_HEADS") * l.int("D")).reshape(len(l.rows), 3, -1)
    return halves(l, x[:, 0] * x[:, 2])


def store_conv(l):
    return halves(l, l.inputs("x", 2 * l.int("KV_HEADS") * l.int("D")))


def convolved(l):
    """Each channel's last inputs, weighed and summed."""
    kv, group, d, page, width = (l.int(n) for n in ("KV_HEADS", "GROUP", "D", "PAGE", "WINDOW"))
    taps = l["taps"].reshape(kv, group, d, width)
    both = np.stack([l[name].reshape(-1, kv, page, d) for name in ("cache_k", "cache_v")[:group]], axis=2)  # [pages, kv, group, page, d]
    value, off = [], []
    for row in l.rows:
        table, p = l.place(row)
        seen = np.arange(max(p - width + 1, 0), p + 1)
        x = both[l["page_table"][table + seen // page], :, :, seen % page, :]  # [seen, kv, group, d]
        terms = np.moveaxis(x, 0, -1) * taps[..., width - len(seen):]
        value.append(terms.sum(-1).ravel())
        off.append((width + 2) * F32 * np.abs(terms).sum(-1).ravel())
    return np.array(value), np.array(off)


def short_conv(l):
    """The sums times the middle part of the row."""
    value, off = convolved(l)
    gates = l.inputs("fused", 3 * value.shape[1]).reshape(len(l.rows), 3, -1)[:, 1]
    return {"out": (value * gates, off * np.abs(gates))}


def conv_silu(l):
    return {"out": silu(*convolved(l))}


def conv_silu_bias(l):
    value, off = convolved(l)
    total = value + l["bias"][:value.shape[1]]
    return {"out": silu(total, off + F32 * np.abs(total))}


def attend_combine(l):
    """Outputs of rows after the first split's end."""
    heads, split, d, height = l.int("KV_HEADS") * l.int("GROUP"), l.int("SPLIT"), l.int("D"), l.int("ROWS")
    tops, totals = (l[name].reshape(-1, height, heads) for name in ("tops", "totals"))
    accs = l["accs"].reshape(-1, height, heads, d)
    places, results, bounds = [], [], []
    for row in l.rows:
        seen = l.place(row)[1] // split + 1
        if seen > 1:
            top, total, acc = tops[:seen, row], totals[:seen, row], accs[:seen, row]
            weight = np.exp2(top - top.max(0))
            whole = sunk(l, top.max(0) * np.log(2), (total * weight).sum(0))[:, None]
            # Here `totals` are random and may be near 0; real sums of weights, of which the largest is 1, are not.
            sane = np.repeat(whole[:, 0] > 2.0 ** -20, d)
            each = (16 + 8 * seen + 4 * np.abs(top - top.max(0)).max(0) + np.abs(top).max(0))[:, None] * F32
            results.append(((acc * weight[..., None]).sum(0) / whole).ravel()[sane])
            bounds.append(((np.abs(acc) * weight[..., None]).sum(0) / whole * each).ravel()[sane])
            places.append((row * heads * d + np.arange(heads * d))[sane])
    return {"out": [np.concatenate(part) for part in (results, bounds, places)]} if places else {}


def flushed(x):
    """Subnormal numbers are zeros to a kernel that compares."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, 0, x)


def argmax(l):
    x = flushed(l.inputs("x", l.int("V")))
    x = np.where(np.isnan(x), -np.inf, x)
    value = np.argmax(x, axis=1).astype(np.float64)[:, None]
    return {"out": (value, 0 * value)}


def largest(x, at, k):
    """The k largest of each row in order, of equal ones that with the lowest `at`, and where they stand."""
    values, columns = np.full((len(x), k), -np.inf), np.full((len(x), k), 2.0 ** 24)
    for row, (v, c) in enumerate(zip(x.copy(), at)):
        for place in range(k):
            if np.isnan(v).all():
                break
            values[row, place] = np.nanmax(v)
            columns[row, place] = c[v == values[row, place]].min()
            v[c == columns[row, place]] = np.nan
    return values, columns


def topk_part(l):
    x, part, k = flushed(l.inputs("x", l.int("V"))), l.int("PART"), l.int("K")
    columns = np.broadcast_to(np.arange(l.int("V"), dtype=np.float64), x.shape)
    parts = [largest(x[:, at:at + part], columns[:, at:at + part], k) for at in range(0, l.int("PARTS") * part, part)]
    values, columns = (np.concatenate(each, axis=1) for each in zip(*parts))
    return {"values": (values, 0), "columns": (columns, 0)}


def topk_combine(l):
    values, columns = largest(*(flushed(l.inputs(name, l.int("N"))) for name in ("x", "at")), l.int("K"))
    return {"values": (values, 0), "columns": (columns, 0)}


KERNELS = [argmax, topk_part, topk_combine, draw_part, draw_combine, linear, linear_bias, linear_add, linear_logits, linear_glu, quantise,
           linear_int, linear_int_bias, linear_int_add, linear_int_logits, linear_int_glu, route, expert_glu, expert_down,
           expert_int_glu, expert_int_down, combine, combine_bias, combine_scaled, add_bias, embed, gather, round_stream, norm_qk, rmsnorm,
           rmsnorm_add, rmsnorm_add_scaled, rope_q, rope_store, attend, attend_combine, store_gated, store_conv, short_conv, conv_silu, conv_silu_bias,
           gate_heads, gate_rows, norm_gated, delta_inputs, mamba_inputs, skip_gated, rmsnorm_groups, relu_squared, spread,
           per_layer_gate]


def found(l, name, like):
    written = l["written." + name]
    if name in ("out", "stream", "values", "columns", "hi", "scale", "ids", "shares", "q", "k", "v", "g", "beta", "x", "dt", "largest",
                "sums", "tokens"):
        return written.reshape(-1, like.shape[1])[l.rows]
    page = l.int("PAGE")
    cache = written.reshape(-1, l.int("KV_HEADS"), page, like.shape[-1])
    slots = l["slots"][l.rows]
    return cache[slots // page, :, slots % page, :]


def judge(path):
    l = Launch(path)
    compute = next((k for k in KERNELS if k.__name__ == l.kernel), None)
    if compute is None:
        sys.exit(f"{path.name}: `{l.kernel}` is not written here: add it")
    worst, middle, cells = 0.0, [], 0
    for name, (value, off, *at) in compute(l).items():
        off = off + l.rounding(name) * (np.abs(value) + off) + 16 * TINY
        given = l["written." + name][at[0]] if at else found(l, name, value)
        # Equal infinities are no error.
        with np.errstate(invalid="ignore"):
            ratio = np.where(given == value, 0, np.abs(given - value) / off)
        # NaN counts as the largest error.
        worst = max(worst, float(np.nan_to_num(ratio, nan=np.inf).max()))
        middle.append(np.median(ratio))
        cells += ratio.size
    # A launch without a chosen row that the kernel writes gives nothing to compare.
    return {"kernel": l.name, "cells": cells, "worst": worst, "median": float(np.median(middle)) if middle else None}


def main():
    paths = sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")) if len(sys.argv) == 2 else []
    if not paths:
        sys.exit("usage: fp64.py FOLDER, with what `vosti probe --dump FOLDER` wrote")
    launches = [judge(path) for path in paths]
    compared = [launch for launch in launches if launch["cells"]]
    untried = sorted({launch["kernel"] for launch in launches} - {launch["kernel"] for launch in compared})
    passed = all(launch["worst"] <= 1 for launch in compared) and not untried
    json.dump({"unit": "what rounding can do at most", "passed": passed, "launches_not_compared": len(launches) - len(compared),
               "kernels_not_compared": untried, "launches": launches}, sys.stdout, indent=1)
    print()
    sys.exit(0 if passed else 1)


main()
