"""Writes random kernels and their TTIR: loops and branches that other rows decide, bits and integers that loops carry, products
over masked K, gathered rows, tokens, cache slots, pages. They may be right or wrong; one that is proved must run invariant.

    python filetests/random_kernels.py FIRST COUNT FOLDER [FRAME]
    cargo run -p vosti-verify --example case -- FOLDER/*.py    a line with both `proved` and `Different` is a wrong proof

Kernel number i is the same each time; its frame is one of `FRAMES`, in turn. Most of its operations stay within a row, and about one
in ten does not. A kernel that Triton's front end refuses (a loop changes a type) is left out.
"""
import os
import random
import re
import sys

import make

# `t` is a tile, `v` a number for each row, `s` a number, `r` an integer for each row, `i` an integer, `b` a bit. `R` and `I` are `r` and
# `i` limited to small values, so that sums and products do not wrap.
WITHIN = {
    "t": ["{t} + {t}", "{t} * {t}", "{t} - {v}[:, None]", "{t} * {v}[:, None]", "tl.where({t} > {t}, {t}, {t})",
          "tl.where((row < m)[:, None], {t}, 0.0)", "tl.maximum({t}, {t})", "tl.abs({t})", "{t} + {s}", "{t} * {i}",
          "tl.reshape(tl.reshape({t}, (BM * N,)), (BM, N))", "tl.trans(tl.trans({t}))", "tl.where(live, {t}, {t})",
          "{t} + FLAG", "{t} * C", "tl.where({b}, {t}, {t})", "tl.where((lane < {i})[None, :], {t}, {t})", "tl.exp2({t})",
          "tl.where(({r} > {i})[:, None], {t}, {t})", "tl.load(vec + (lane + 0) % 4)[None, :] * {t}"],
    "v": ["tl.max({t}, 1)", "tl.sum({t}, 1)", "tl.min({t}, 1)", "{v} + {v}", "{v} * {s}", "tl.where({v} > {v}, {v}, {v})",
          "tl.sum(tl.trans({t}), 0)", "tl.maximum({v}, {v})", "{v} + FLAG", "tl.sum(tl.reshape({t}, (BM, 2, N // 2)), 2).sum(1)",
          "tl.where({b}, {v}, {v})", "{v} + {r}", "tl.load(vec + ({r} & 3)) * {v}", "tl.load(vec + tl.minimum(tl.maximum({r}, 0), 3))",
          "tl.load(vec + tl.where({r} > 0, 1, 2))", "tl.where({r} == {r}, {v}, {v})"],
    "s": ["{s} + 1.0", "{s} * {s}", "{s} + FLAG", "tl.where(FLAG > 0, {s}, {s})", "{s} - C", "tl.where({b}, {s}, {s})", "{s} + {i}",
          "tl.load(vec + tl.minimum(tl.maximum({i}, 0), 3))"],
    "r": ["tl.sum(({t} > 0.5).to(tl.int32), 1)", "tl.max(({t} > 1.0).to(tl.int32), 1)", "{R} + {R}", "{r} // 2", "{r} % 3", "{r} & 1",
          "tl.where({b}, {r}, {r})", "tl.minimum({r}, {i})", "{R} - {I}", "({v} > 0.5).to(tl.int32)", "tl.where({v} > 0.0, {r}, {r})",
          "({r} > {r}).to(tl.int32)"],
    "i": ["{i} + 1", "{I} + 1", "{I} - 2", "-{I}", "{i} // 2", "{i} % 3", "{i} & 1", "tl.minimum({i}, 3)", "tl.maximum({i}, {i})", "C - {I}",
          "tl.where({b}, {i}, {i})", "({i} > 1).to(tl.int32)", "{b}.to(tl.int32)", "{I} * 2", "(C + {I}) // 2", "{I} * {I}", "FLAG * 3"],
    "b": ["{i} > 0", "{i} == {i}", "{b} & {b}", "{b} | {b}", "{b} ^ {b}", "{b} + {b}", "{b} + bit", "{b} + bit", "{b} != {b}", "{s} > 0.5", "FLAG > 0",
          "{i} < {i}", "({i} % 2) == 1", "tl.where({b}, {b}, {b})", "{b} == (C > 2)"],
}
ACROSS = {
    "t": ["{t} + tl.max({v}, 0)", "{t} * m", "{t} + row[:, None]", "{t} + tl.max({t}, 0)[None, :]",
          "tl.reshape(tl.trans(tl.reshape({t}, (2, BM * N // 2))), (BM, N))", "tl.where(({r} > tl.max({r}, 0))[:, None], {t}, {t})"],
    "v": ["tl.sum({v}, 0) + {v}", "{v} + tl.max({v}, 0)", "{v} + m", "tl.where(row > 3, {v}, {v})", "{v} * tl.num_programs(0)"],
    "s": ["tl.max({v}, 0)", "tl.sum({v}, 0)", "tl.sum(tl.sum({t}, 1), 0)", "m * 1.0", "tl.program_id(0) * 1.0"],
    "r": ["row", "row % 4", "{R} + m % 2", "{R} + tl.max({R}, 0)", "row & 1", "(row + 1 < m).to(tl.int32)", "{R} * 0 + tl.program_id(0)"],
    "i": ["m", "m % 4", "tl.program_id(0)", "tl.max({r}, 0)", "tl.sum((row < m).to(tl.int32), 0)", "tl.max((row + 1 < m).to(tl.int32), 0)",
          "tl.num_programs(0)"],
    "b": ["m > 6", "tl.max({v}, 0) > 1.0", "tl.max((row + 1 < m).to(tl.int32), 0) > 0", "tl.program_id(0) > 0", "tl.max({r}, 0) > 1"],
}
CONDITIONS = ["{s} > 0.5", "tl.max({v}, 0) > 1.0", "FLAG > 0", "m > 6", "C > 2", "tl.max((row + 1 < m).to(tl.int32), 0) > 0",
              "tl.program_id(0) > 0", "{s} < {s}", "{b}", "{b}", "{i} > 1"]
RANGES = ["range(0, FLAG)", "range(0, FLAG)", "range(0, 1)", "range(FLAG, FLAG + 1)", "range(0, C)", "range(0, 3)",
          "range(0, tl.minimum(m, 1))", "range(FLAG, 3)", "range(0, tl.minimum(tl.maximum({i}, 0), 3))", "range(0, C, 2)",
          "range(tl.minimum(m, 2), 3)"]
START = '''    m = tl.load(rows)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    lane = tl.arange(0, N)
'''
NAMES = '''    v0 = tl.max(t0, 1)
    s0 = tl.load(vec)
    r0 = tl.sum((t0 > 0.0).to(tl.int32), 1)
    i0 = C + FLAG
    b0 = FLAG > 0
    bit = tl.full((), 1, tl.int1)
    b1 = bit
'''


def choose(of, right, *wrong, often=0.95):
    """`right` in most cases, otherwise one of `wrong`."""
    return right if of.random() < often else of.choice(wrong)


class Frame:
    """The parts around the random one: the contract, the loads and the stores."""

    shape, grid, constants = "rowwise", '"cdiv(rows, BM)"', {"BM": 4, "N": 4}
    params, shapes, text = {}, {}, []
    within, across = {}, {}

    def head(self):
        params = {**self.params, "vec": "weight 7 f32", "FLAG": "dim 0..1", "C": "dim 1..5"}
        shapes = {**self.shapes, "vec": '["4"]'}
        lines = ['"""Made at random."""', "import triton", "import triton.language as tl", "", "", "# /// contract",
                 f'# shape = "{self.shape}"', f"# grid = [{self.grid}]"]
        lines += [f"# text = {self.text}".replace("'", '"')] if self.text else []
        lines += ["# [params]"] + [f'# {name} = "{role}"' for name, role in params.items()]
        lines += ["# [constants]"] + [f"# {name} = {value}" for name, value in self.constants.items()]
        lines += ["# [shapes]"] + [f"# {name} = {extents}" for name, extents in shapes.items()] + ["# ///", "@triton.jit"]
        signature = list(params) + [f"{name}: tl.constexpr" for name in self.constants]
        return "\n".join(lines + [f"def kernel({', '.join(signature)}):"]) + "\n"


class Rows(Frame):
    """Row-wise kernels: each row of the output is made from a row of N numbers."""

    params = {"x": "in 0 f32", "rows": "rows", "w": "weight 0 f32", "out": "out 0 f32"}
    shapes = {"x": '["rows", "N"]', "w": '["N"]', "out": '["rows", "N"]'}
    # Loads of other cells of the row itself.
    within = {"v": ["tl.load(x + row * N + tl.minimum(tl.maximum({i}, 0), N - 1), mask=row < m, other=0.0)",
                    "tl.load(x + row * N + tl.minimum(tl.maximum({r}, 0), N - 1), mask=row < m, other=0.0)"],
              "t": ["tl.load(w + tl.minimum(tl.maximum({i}, 0), N - 1)) + {t}"]}
    # The same through blocks.
    within["t"] += ["tl.load(tl.make_block_ptr(x, (m, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, N), (1, 0)), boundary_check=(0, 1),"
                    " padding_option='zero')"] * 2
    within["v"] += ["tl.load(tl.make_block_ptr(x, (m,), (N,), (tl.program_id(0) * BM,), (BM,), (0,)), boundary_check=(0,),"
                    " padding_option='zero')"] * 2
    across = {"v": ["tl.load(x + (row ^ 1) * N, mask=(row ^ 1) < m, other=0.0)", "tl.max({t}, 0)", "tl.sum(tl.trans({t}), 1)",
                    "tl.load(x + (row + i0 % 4) * N, mask=(row + i0 % 4 < m) & (row + i0 % 4 >= 0), other=0.0)"],
              "t": ["{t} + {v}[None, :]", "tl.trans({t})"]}

    def start(self, of):
        return START + '''    live = (row < m)[:, None] & (lane < N)[None, :]
    at = row[:, None] * N + lane[None, :]
    t0 = tl.load(x + at, mask=live, other=0.0)
    t1 = tl.load(w + lane)[None, :] + tl.zeros((BM, N), tl.float32)
''' + NAMES

    def end(self, text, names):
        return stores(text, names, "out + at", "live")


class Wide(Rows):
    """As `Rows`, with rows as wide as a dimension K; lanes behind K are masked."""

    constants, text = {"BM": 4, "N": 8}, ["N"]
    params = {**Rows.params, "K": "dim 1..8"}
    shapes = {"x": '["rows", "K"]', "w": '["K"]', "out": '["rows", "K"]'}
    within = {"v": ["tl.load(x + row * K + tl.minimum(tl.maximum({i}, 0), K - 1), mask=row < m, other=0.0)",
                    "tl.load(x + row * K + i0, mask=(row < m) & (i0 >= 0) & (i0 < K), other=1.0)"],
              "t": ["tl.where((lane < K)[None, :], {t}, {s})"]}
    across = {"v": ["tl.load(x + (row ^ 1) * K, mask=(row ^ 1) < m, other=0.0)",
                    "tl.load(x + row * K + K, mask=row + 1 < m, other=0.0)"]}

    def start(self, of):
        mask = choose(of, "(row < m)[:, None] & (lane < K)[None, :]", "(row < m)[:, None] & (lane <= K)[None, :]", "at < m * K")
        at = choose(of, "row[:, None] * K + lane[None, :]", "row[:, None] * N + lane[None, :]")
        other = choose(of, "other=0.0", "other=1.0")
        return START + f'''    at = {at}
    live = {mask}
    t0 = tl.load(x + at, mask=live, {other})
    t1 = tl.load(w + lane, mask=lane < K, other=0.0)[None, :] + tl.zeros((BM, N), tl.float32)
''' + NAMES


class Products(Frame):
    """Products over a masked K."""

    grid = '"cdiv(rows, BM)", "cdiv(COLS, N)"'
    constants, text = {"BM": 16, "N": 16, "BK": 16}, ["BK"]
    params = {"x": "in 0 f32", "rows": "rows", "w": "weight 0 f32", "out": "out 0 f32", "K": "dim 1..40", "COLS": "dim 1..40"}
    shapes = {"x": '["rows", "K"]', "w": '["COLS", "K"]', "out": '["rows", "COLS"]'}
    within = {"v": ["tl.load(x + row * K + tl.minimum(tl.maximum({i}, 0), K - 1), mask=row < m, other=0.0)"],
              "t": ["{t} + 0.0", "tl.where((col < COLS)[None, :], {t}, 0.0)", "{t} * col[None, :]"]}
    across = {"t": ["tl.trans({t})", "{t} + {v}[None, :]"]}

    def start(self, of):
        return START + '''    col = tl.program_id(1) * N + lane
    live = (row < m)[:, None] & (col < COLS)[None, :]
    t0 = tl.zeros((BM, N), tl.float32) + tl.load(x + row * K, mask=row < m, other=0.0)[:, None]
    t1 = tl.load(w + col * K, mask=col < COLS, other=0.0)[None, :] + tl.zeros((BM, N), tl.float32)
''' + NAMES

    def part(self, text, names, depth):
        """A loop of products that may scale its factors, add in between, or keep only some iterations of a row."""
        of = text.random
        acc = of.choice(names["t"])
        text.line(depth, f"for k in {choose(of, 'range(0, K, BK)', 'range(0, K - FLAG, BK)', 'range(0, tl.minimum(K, m), BK)')}:")
        text.line(depth + 1, "at_k = k + tl.arange(0, BK)")
        row = choose(of, "row", "row", "(row ^ 1)")
        seen = choose(of, "(row < m)[:, None] & (at_k < K)[None, :]", "(row < m)[:, None]", "(row[:, None] * K + at_k[None, :]) < m * K")
        text.line(depth + 1, f"f0 = tl.load(x + {row}[:, None] * K + at_k[None, :], mask={seen}, other={choose(of, '0.0', '1.0')})")
        weight = choose(of, "(col < COLS)[None, :] & (at_k < K)[:, None]", "(col < COLS)[None, :]")
        text.line(depth + 1, f"f1 = tl.load(w + col[None, :] * K + at_k[:, None], mask={weight}, other=0.0)")
        if of.random() < 0.4:
            text.line(depth + 1, text.filled(names, of.choice(["f0 = f0 * {v}[:, None]", "f0 = tl.where({b}, f0, 0.0)", "f1 = f1 * {s}",
                                                               "f0 = tl.where(({v} > 0.5)[:, None], f0, 0.0)", "f1 = f1 + {s}",
                                                               "f0 = f0 * tl.max(tl.max(tl.abs(f0), 1), 0)"])))
        start = choose(of, acc, acc, "tl.zeros((BM, N), tl.float32)")
        text.line(depth + 1, f"t9 = tl.dot(f0, f1, {start}, input_precision='ieee')")
        turn = of.choice(["t9"] * 3 + ["tl.where({b}, t9, " + acc + ")", "tl.where(({r} > 0)[:, None], t9, " + acc + ")", "t9 + " + acc,
                          "tl.where((k < m), t9, " + acc + ")"])
        text.line(depth + 1, f"{acc} = {text.filled(names, turn)}")
        if of.random() < 0.3:
            text.assign(names, depth + 1, of.choice("tvsib"))

    def end(self, text, names):
        return stores(text, names, "out + row[:, None] * COLS + col[None, :]", "live")


class Gathered(Frame):
    """Kernels that gather the rows that an index names."""

    params = {"x": "in 0 f32", "index": "row_index", "rows": "rows", "out": "out 0 f32"}
    shapes = {"x": '["packed", "N"]', "out": '["rows", "N"]'}
    within = {"v": ["tl.load(x + source * N + tl.minimum(tl.maximum({i}, 0), N - 1), mask=row < m, other=0.0)"]}
    across = {"v": ["source * 1.0", "tl.load(x + tl.load(index + (row ^ 1), mask=(row ^ 1) < m, other=0) * N)",
                    "tl.load(x + row * 0, mask=row < m, other=0.0)"], "r": ["source"]}

    def start(self, of):
        source = choose(of, "tl.load(index + row, mask=row < m, other=0)", "tl.load(index + (m - 1 - row), mask=row < m, other=0)",
                        "tl.maximum(tl.load(index + row, mask=row < m, other=0) - 1, 0)")
        return START + f'''    source = {source}
    live = (row < m)[:, None] & (lane < N)[None, :]
    t0 = tl.load(x + source[:, None] * N + lane[None, :], mask=live, other=0.0)
    t1 = t0 * 2.0
''' + NAMES

    def end(self, text, names):
        return stores(text, names, "out + row[:, None] * N + lane[None, :]", "live")


class Tokens(Frame):
    """Kernels that read the rows of tables that a token and a position select."""

    params = {"tokens": "tokens", "positions": "positions", "rows": "rows", "table": "weight 0 f32", "rope": "weight 1 f32",
              "out": "out 0 f32", "V": "dim 1..60"}
    shapes = {"table": '["V", "N"]', "rope": '["context", "N"]', "out": '["rows", "N"]'}
    within = {"r": ["token", "position", "position // 3", "token % 5", "tl.minimum(position, {i})", "position - token"],
              "v": ["tl.load(rope + position * N, mask=row < m, other=0.0)", "position * 0.5",
                    "tl.load(rope + (position // 2) * N + 1, mask=row < m, other=0.0)",
                    "tl.load(table + tl.minimum(tl.maximum({r}, 0), V - 1) * N)", "tl.load(table + (token - token) * N + 3)"]}
    across = {"v": ["tl.load(rope + row * 0 + tl.program_id(0) * 0)",
                    "tl.load(rope + tl.max(position, 0) * N)"],
              "r": ["tl.load(tokens + (row ^ 1), mask=(row ^ 1) < m, other=0)", "tl.load(positions + m - 1) - position"]}

    def start(self, of):
        return START + f'''    token = tl.load(tokens + row, mask=row < m, other=0)
    position = tl.load(positions + row, mask=row < m, other=0)
    live = (row < m)[:, None] & (lane < N)[None, :]
    t0 = tl.load(table + {choose(of, "token", "position", "tl.minimum(token + 1, V - 1)")}[:, None] * N + lane[None, :])
    t1 = tl.load(rope + position[:, None] * N + lane[None, :], mask=live, other=0.0)
''' + NAMES

    def end(self, text, names):
        return stores(text, names, "out + row[:, None] * N + lane[None, :]", "live")


class Slots(Frame):
    """Kernels that store to the cells of cache slots."""

    shape, grid = "store_kv", '"cdiv(rows, BM)", "KV_HEADS"'
    constants = {"BM": 4, "N": 4, "PAGE": 4, "D": 4}
    text = ["N"]
    params = {"x": "in 0 f32", "positions": "positions", "rows": "rows", "slots": "slots", "cache_k": "cache_k", "cache_v": "cache_v",
              "KV_HEADS": "dim 1..6"}
    shapes = {"x": '["rows", "KV_HEADS", "D"]'}
    within = {"r": ["position // 2", "position % 4"], "v": ["position * 0.5"]}
    across = {"r": ["slot", "slot % PAGE"], "v": ["slot * 1.0"]}

    def start(self, of):
        return START + f'''    head = tl.program_id(1)
    position = tl.load(positions + row, mask=row < m, other=0)
    slot = tl.load(slots + row, mask=row < m, other=0)
    live = (row < m)[:, None] & (lane < D)[None, :]
    t0 = tl.load(x + (row[:, None] * KV_HEADS + head) * D + lane[None, :], mask=live, other=0.0)
    t1 = t0 * 0.5
''' + NAMES

    def end(self, text, names):
        of = text.random
        for cache in ("cache_k", "cache_v"):
            slot = choose(of, "slot", "slot", "(slot ^ 1)", "tl.where(row > 0, slot, slot)", "position")
            text.line(0, f"cell = (({slot} // PAGE).to(tl.int64) * KV_HEADS + {choose(of, 'head', '0')}) * PAGE"
                      f" + {choose(of, slot, slot, 'slot')} % PAGE")
            text.line(0, text.filled(names, "y = {t} + {v}[:, None]"))
            small = choose(of, "tl.where(tl.abs(y) <= 3.0e38, y, 0.0)", "tl.where(tl.abs(y) <= 3.4e38, y, 0.0)", "y")
            text.line(0, f"y = {small}.to(cache_k.dtype.element_ty)")
            mask = choose(of, "live", "live", "((row <= m)[:, None] & (lane < D)[None, :])")
            if of.random() < 0.2:
                text.line(0, text.filled(names, "if {b}:"))
                text.line(1, f"tl.store({cache} + cell[:, None] * D + lane[None, :], y, mask={mask})")
                text.line(0, "else:")
                text.line(1, f"tl.store({cache} + cell[:, None] * D + lane[None, :], {choose(of, 'y', 'y * 0.5')}, mask={mask})")
            else:
                text.line(0, f"tl.store({cache} + cell[:, None] * D + lane[None, :], y, mask={mask})")


class Pages(Frame):
    """Attention over keys and values of a request's pages, up to a row's position or within its window."""

    shape, grid = "attend", '"tiles", "HEADS"'
    constants = {"BM": 4, "N": 4, "PAGE": 4, "D": 4, "BQ": 4}
    text = ["BM", "N"]
    params = {"q": "in 0 f32", "tile_table": "tile_table", "tile_row": "tile_row", "tile_rows": "tile_rows", "tile_pos": "tile_pos",
              "page_table": "page_table", "cache_k": "cache_k", "cache_v": "cache_v", "out": "out 0 f32", "HEADS": "dim 1..5",
              "KV_HEADS": "dim 1..5"}
    shapes = {"q": '["rows", "HEADS", "D"]', "out": '["rows", "HEADS", "D"]'}
    within = {"r": ["p", "p // 2", "p % PAGE", "tl.minimum(p, {i})"], "v": ["p * 0.5"]}
    across = {"r": ["t", "t + 1"], "i": ["count", "start", "table", "start + count", "tl.max(p, 0)"], "b": ["count > 2", "start > 3"]}

    def __init__(self, window=0):
        self.constants = {**self.constants, "WINDOW": window}

    def start(self, of):
        window = self.constants["WINDOW"]
        low = f"tl.maximum(start - {window - 1}, 0) // PAGE" if window else "0"
        return f'''    table = tl.load(tile_table + tl.program_id(0))
    first = tl.load(tile_row + tl.program_id(0))
    count = tl.load(tile_rows + tl.program_id(0))
    start = tl.load(tile_pos + tl.program_id(0))
    head = tl.program_id(1)
    m = first + count
    t = tl.arange(0, BQ)
    row = first + t
    p = start + t
    lane = tl.arange(0, N)
    live = (t < count)[:, None] & (lane < D)[None, :]
    low = {choose(of, low, low, "0", "start // PAGE")}
    high = tl.where(count > 0, (start + count + PAGE - 1) // PAGE, 0)
    t0 = tl.load(q + (row[:, None] * HEADS + head) * D + lane[None, :], mask=live, other=0.0)
    t1 = t0 * 0.0
''' + NAMES

    def part(self, text, names, depth):
        of, window = text.random, self.constants["WINDOW"]
        acc, top = of.choice(names["t"]), of.choice(names["v"])
        text.line(depth, f"for j in range({choose(of, 'low', 'low', '0')}, {choose(of, 'high', 'high', 'start // PAGE + 1')}):")
        text.line(depth + 1, f"page = tl.load(page_table + table + {choose(of, 'j', 'j', 'low')}).to(tl.int64)")
        text.line(depth + 1, f"base = (page * KV_HEADS + {choose(of, 'tl.minimum(head, KV_HEADS - 1)', '0', 'head')}) * (PAGE * D)")
        for key in range(of.choice([1, 2, 4])):
            at = f"j * PAGE + {key}"
            text.line(depth + 1, f"k0 = tl.load(cache_k + base + {key} * D + lane)")
            text.line(depth + 1, f"k1 = tl.load(cache_v + base + {choose(of, key, key, 0)} * D + lane)")
            seen = f"(p >= {at})" + (f" & (p < {at} + {window})" if window else "")
            seen = choose(of, seen, f"(p + 1 >= {at})", f"(start + count > {at})", f"(p >= {at})", f"(p < {at} + 3)")
            text.line(depth + 1, f"score = tl.sum({of.choice(names['t'])} * k0[None, :], 1)")
            text.line(depth + 1, f"seen = {seen}")
            tile = of.choice(["{t} + score[:, None] * k1[None, :]", "{t} * 0.5 + k1[None, :]", "{t} + k1[None, :]"]).replace("{t}", acc)
            form = choose(of, f"tl.where(seen[:, None], {tile}, {acc})",
                          f"{acc} + tl.where(seen, score, 0.0)[:, None] * k1[None, :]", tile)
            text.line(depth + 1, f"{acc} = {form}")
            if of.random() < 0.5:
                text.line(depth + 1, f"{top} = {choose(of, 'tl.where(seen, tl.maximum(' + top + ', score), ' + top + ')', top + ' + 0.0')}")

    def end(self, text, names):
        return stores(text, names, "out + (row[:, None] * HEADS + head) * D + lane[None, :]", "live")


def stores(text, names, at, live):
    """Stores the tile at once, in two parts, or on both sides of a branch."""
    of = text.random
    value = text.filled(names, "t0 + {t} + {v}[:, None]")
    which = of.random()
    if which < 0.7:
        text.line(0, f"tl.store({at}, {value}, mask={live})")
    elif which < 0.85:
        cut = text.filled(names, of.choice(["(lane < {i})[None, :]", "(lane < 2)[None, :]", "{b}", "({r} > 0)[:, None]"]))
        text.line(0, f"cut = {cut} & {live}")
        text.line(0, f"tl.store({at}, {value}, mask=cut)")
        text.line(0, f"tl.store({at}, {value}, mask={live} & (cut == 0))")
    else:
        text.line(0, text.filled(names, f"if {of.choice(CONDITIONS)}:"))
        text.line(1, f"tl.store({at}, {value}, mask={live})")
        text.line(0, "else:")
        text.line(1, f"tl.store({at}, {value if of.random() < 0.8 else text.filled(names, 't0 + {t}')}, mask={live})")


class Text:
    def __init__(self, seed, frame):
        self.random, self.frame, self.lines, self.made = random.Random(seed), frame, [], 0

    def line(self, depth, text):
        self.lines.append("    " * (depth + 1) + text)

    def filled(self, names, text):
        def one(kind):
            name = self.random.choice(names[kind[1].lower()])
            return name if kind[1].islower() else f"tl.minimum(tl.maximum({name}, -9), 9)"

        return re.sub(r"\{(.)\}", one, text)

    def expression(self, names, kind):
        across = self.random.random() < (0.2 if kind in "sib" else 0.08)
        common, own = (ACROSS, self.frame.across) if across else (WITHIN, self.frame.within)
        own = own.get(kind, [])
        return self.filled(names, self.random.choice(own if own and self.random.random() < 0.3 else common[kind]))

    def assign(self, names, depth, kind):
        """Assigns a new value of the same type to an earlier name."""
        name = self.random.choice([name for name in names[kind] if name[1:].isdigit()])
        self.line(depth, f"{name} = {self.expression(names, kind)}")
        return name

    def branch(self, depth, condition, name, values):
        """In most cases the branch chooses between numbers computed before it, because sums at two places do not count as equal."""
        if self.random.random() < 0.7:
            self.line(depth, f"{name[0]}_ = {values[0]}")
            values = [f"{name[0]}_", f"{name[0]}_" if values[0] == values[1] else values[1]]
        self.line(depth, f"if {condition}:")
        self.line(depth + 1, f"{name} = {values[0]}")
        self.line(depth, "else:")
        self.line(depth + 1, f"{name} = {values[1]}")

    def looked_at(self, names, depth, carried):
        """A loop's result decides a branch with equal sides, and is used after it."""
        tile, value = self.random.choice(names["t"]), self.expression(names, "t")
        largest = {"t": f"tl.max(tl.max({carried}, 1), 0) > 0.5", "v": f"tl.max({carried}, 0) > 0.5", "s": f"{carried} > 0.5",
                   "r": f"tl.max({carried}, 0) > 1", "i": f"{carried} > 1", "b": carried}[carried[0]]
        self.branch(depth, largest, tile, [value, value])
        used = {"v": f"{tile} + {carried}[:, None]", "r": f"{tile} + {carried}[:, None]", "b": f"tl.where({carried}, {tile}, t0)"}
        self.line(depth, f"t0 = {used.get(carried[0], f'{tile} + {carried}')}")

    def two_ways(self, names, depth):
        """Two loops compute the same values, in tiles of one rank or of two; other rows may decide which one is used."""
        turns, value = self.filled(names, self.random.choice(RANGES)), self.expression(names, "v")
        self.made += 1
        tile, other = f"t{9 + self.made}", f"{self.random.choice('tv')}{200 + self.made}"
        for name, start in ((tile, "tl.zeros((BM, N), tl.float32)"),
                            (other, "tl.zeros((BM, N), tl.float32)" if other[0] == "t" else "tl.zeros((BM,), tl.float32)")):
            add = choose(self.random, value, "v0", self.expression(names, "v"))
            if name[0] == "t":
                add = choose(self.random, f"({add})[:, None]", self.expression(names, "t"))
            self.line(depth, f"{name} = {start}")
            self.line(depth, f"for n{depth} in {turns}:")
            self.line(depth + 1, f"{name} = {name} + {add}")
        wide = f"tl.broadcast_to({other}[:, None], (BM, N))" if other[0] == "v" else choose(self.random, other, f"{other} + 0.0")
        self.branch(depth, self.filled(names, self.random.choice(CONDITIONS)), tile, [tile, wide])
        names["t"].append(tile)

    def block(self, names, depth, count):
        for _ in range(count):
            which = self.random.random()
            if hasattr(self.frame, "part") and depth < 2 and self.random.random() < 0.3:
                self.frame.part(self, names, depth)
            elif self.random.random() < 0.12:
                self.two_ways(names, depth)
            elif which < 0.5 or depth >= 3:
                kind = self.random.choice("tttvvvsrib")
                if depth > 0 and self.random.random() < 0.6:
                    self.assign(names, depth, kind)
                    continue
                self.made += 1
                name = f"{kind}{9 + self.made}"
                self.line(depth, f"{name} = {self.expression(names, kind)}")
                names[kind].append(name)
            elif which < 0.75:
                self.line(depth, f"for n{depth} in {self.filled(names, self.random.choice(RANGES))}:")
                inside = {kind: list(of) for kind, of in names.items()}
                inside["i"].append(f"n{depth}_")
                self.line(depth + 1, f"n{depth}_ = n{depth} + 0")
                carried = [self.assign(inside, depth + 1, self.random.choice("tvvssibr")) for _ in range(self.random.randint(1, 3))]
                if self.random.random() < 0.4:
                    self.block(inside, depth + 1, self.random.randint(1, 2))
                if self.random.random() < 0.5:
                    self.looked_at(names, depth, self.random.choice(carried))
            else:
                kind = self.random.choice("ttvvsib")
                name, value = self.random.choice([name for name in names[kind] if name[1:].isdigit()]), self.expression(names, kind)
                other = value if self.random.random() < 0.8 else self.expression(names, kind)
                self.branch(depth, self.filled(names, self.random.choice(CONDITIONS)), name, [value, other])


FRAMES = {"rows": Rows(), "wide": Wide(), "products": Products(), "gathered": Gathered(), "tokens": Tokens(), "slots": Slots(),
          "pages": Pages(), "window": Pages(3)}


def kernel(seed, frame):
    text = Text(seed, frame)
    names = {"t": ["t0", "t1"], "v": ["v0"], "s": ["s0"], "r": ["r0"], "i": ["i0"], "b": ["b0", "b1"]}
    start = frame.start(text.random)
    if hasattr(frame, "part"):
        frame.part(text, names, 0)
    text.block(names, 0, text.random.randint(2, 7))
    frame.end(text, names)
    return frame.head() + start + "\n".join(text.lines) + "\n"


def main():
    first, count, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    only = sys.argv[4:] or list(FRAMES)
    os.makedirs(folder, exist_ok=True)
    refused = 0
    for seed in range(first, first + count):
        path = os.path.join(folder, f"random_{seed}.py")
        with open(path, "w") as file:
            file.write(kernel(seed, FRAMES[only[seed % len(only)]]))
        try:
            make.render(path)
        except Exception as error:
            refused += 1
            print(f"{path}: {str(error).strip().splitlines()[-1]}")
            os.remove(path)
    print(f"{count - refused} written, {refused} refused by the front end")


if __name__ == "__main__":
    main()
