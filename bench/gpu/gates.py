"""Formulas of `fp64.py`: norms, gates, and the row-wise kernels around layers with a state."""
import numpy as np

F32 = 2.0 ** -24  # half a unit in the last place, relative


def normed(x, eps):
    """x over its root mean square, and how far off that may be relatively."""
    n = x.shape[-1]
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps), (n + 8) * F32


def silu(x, off=0.0):
    """x times its sigmoid, whose slope is at most 1.1."""
    value = x / (1 + np.exp(-x))
    return value, 1.1 * off + 8 * F32 * np.abs(value)


def gate_heads(l):
    """Results times the sigmoids of their gates."""
    heads, d, packed, first = (l.int(n) for n in ("HEADS", "D", "PACKED", "FIRST"))
    gates = l.inputs("fused", packed * d)[:, first * d:(first + heads) * d]
    value = l.inputs("x", heads * d) / (1 + np.exp(-gates))
    return {"out": (value, 8 * F32 * np.abs(value))}


def gate_rows(l):
    """Rows times the sigmoids of their gates."""
    value = l.inputs("x", l.int("N")) / (1 + np.exp(-l.inputs("gate", 1)))
    return {"out": (value, 8 * F32 * np.abs(value))}


def relu_squared(l):
    """Squares of positive numbers."""
    value = np.maximum(l.inputs("x", l.int("N")), 0) ** 2
    return {"out": (value, 2 * F32 * value)}


def spread(l):
    """Rows, each as often as it has experts."""
    return {"out": (np.tile(l.inputs("x", l.int("N")), (1, l.int("TOPK"))), 0)}


def norm_gated(l):
    """Heads normed, times a weight and the SiLU of a gate, in the gates' order: the first heads of all key heads first."""
    keys, group, d = (l.int(n) for n in ("KEY_HEADS", "GROUP", "D"))
    x = l.inputs("x", keys * group * d).reshape(-1, keys, group, d).swapaxes(1, 2)
    value, more = normed(x, l.constants["EPS"])
    gate, off = silu(l.inputs("z", keys * group * d).reshape(-1, group, keys, d))
    value = value * l["norm_w"][:d]
    return {"out": ((value * gate).reshape(len(x), -1), (np.abs(value) * (off + np.abs(gate) * more)).reshape(len(x), -1))}


def delta_inputs(l):
    """Queries and keys of length one, values, log-decays and strengths."""
    keys, group, d, parts, copies = (l.int(n) for n in ("KEY_HEADS", "GROUP", "D", "PARTS", "COPIES"))
    x = l.inputs("qkv", parts * keys * d).reshape(-1, parts, keys, d)
    ba = l.inputs("ba", 2 * group * keys).reshape(-1, 2, group, keys)
    rate, bias = (l[name].reshape(group, keys) for name in ("rate", "dt_bias"))
    size = 1 / np.sqrt((x[:, :2] * x[:, :2]).sum(-1, keepdims=True) + 1e-6)
    unit = x[:, :2] * size * np.array([l.constants["SCALE"], 1.0])[:, None, None]
    total = ba[:, 1] + bias
    decay = rate * np.logaddexp(0, total)
    strength = 1 / (1 + np.exp(-ba[:, 0]))
    # A logarithm near 1 is off by what its argument is.
    decay_off = 16 * F32 * (np.abs(decay) + np.abs(rate) * (1 + np.abs(total)))
    decay, decay_off, strength = (each.swapaxes(1, 2).repeat(copies, -1) for each in (decay, decay_off, strength))
    rows = [unit[:, 0], unit[:, 1], x[:, 2:2 + group].swapaxes(1, 2), decay, strength]
    offs = [(d + 16) * F32 * np.abs(unit[:, 0]), (d + 16) * F32 * np.abs(unit[:, 1]), 0 * rows[2], decay_off, 16 * F32 * strength]
    names = ("q", "k", "v", "g", "beta")
    return {name: (value.reshape(len(x), -1), off.reshape(len(x), -1)) for name, value, off in zip(names, rows, offs)}


def mamba_inputs(l):
    """Queries, keys, values, log-decays and steps."""
    heads, inner, keys, width = (l.int(n) for n in ("HEADS", "INNER", "KEYS", "WIDTH"))
    x = l.inputs("xbc", width)
    rate, bias = l["rate"][:heads], l["dt_bias"][:heads]
    total = l.inputs("steps", heads) + bias
    step = np.logaddexp(0, total)
    # A logarithm near 1 is off by what its argument is.
    off = 16 * F32 * (np.abs(step) + 1 + np.abs(total))
    return {"q": (x[:, inner + keys:inner + 2 * keys], 0), "k": (x[:, inner:inner + keys], 0), "x": (x[:, :inner], 0),
            "g": (rate * step, np.abs(rate) * off), "dt": (step, off)}


def skip_gated(l):
    """Results and weighted values of each head, times the SiLU of a gate."""
    heads, d = l.int("HEADS"), l.int("D")
    y, x, z = (l.inputs(name, heads * d) for name in ("y", "x", "z"))
    skipped = np.repeat(l["skip"][:heads], d) * x
    gate, off = silu(z)
    total = y + skipped
    return {"out": (total * gate, np.abs(total) * off + 2 * F32 * (np.abs(y) + np.abs(skipped)) * np.abs(gate))}


def per_layer_gate(l):
    """A layer's own input, times the GELU of a gate."""
    layers, layer, h = (l.int(n) for n in ("LAYERS", "LAYER", "H"))
    own = lambda name: l.inputs(name, layers * h)[:, layer * h:(layer + 1) * h]
    value, more = normed(own("projected"), l.constants["EPS"])
    value = value * l["w"][:h]
    g = l.inputs("gate", h)
    cubed = 0.044715 * g * g * g
    gelu = g / (1 + np.exp(-1.5957691216057308 * (g + cubed)))
    total = own("embedded") + value
    # The exponent is off by what its terms are; the sigmoid's slope is at most a quarter.
    off = (8 + 4 * (np.abs(g) + np.abs(cubed))) * F32 * np.abs(g)
    return {"out": (gelu * total, off * np.abs(total) + np.abs(gelu) * (more * np.abs(value) + F32 * np.abs(total)))}


def rmsnorm_groups(l):
    """A norm of each group of a row, times its weights."""
    groups, h = l.int("GROUPS"), l.int("H")
    value, more = normed(l.inputs("x", groups * h).reshape(-1, groups, h), l.constants["EPS"])
    value = (value * l["w"][:groups * h].reshape(groups, h)).reshape(len(value), -1)
    return {"out": (value, more * np.abs(value))}
