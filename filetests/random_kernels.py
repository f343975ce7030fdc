"""Writes random row-wise kernels and their TTIR: loops of few turns and of one, branches that other rows decide, tiles as wide as
they are high. No verdict is expected of them; what the verifier proves must run invariant.

    python filetests/random_kernels.py FIRST COUNT FOLDER
    cargo run -p vosti-verify --example case -- FOLDER/*.py    a line with both `proved` and `Different` is a wrong proof

Kernel number i is the same each time. Most of its operations stay within a row, and about one in ten does not.
"""
import os
import random
import re
import sys

import make

HEAD = '''"""Made at random."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# w = "weight 0 f32"
# out = "out 0 f32"
# FLAG = "dim 0..1"
# C = "dim 1..5"
# [constants]
# BM = 4
# N = 4
# [shapes]
# x = ["rows", "N"]
# w = ["N"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, rows, w, out, FLAG, C, BM: tl.constexpr, N: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.arange(0, N)
    live = (row < m)[:, None] & (col < N)[None, :]
    at = row[:, None] * N + col[None, :]
    t0 = tl.load(x + at, mask=live, other=0.0)
    t1 = tl.load(w + col)[None, :] + tl.zeros((BM, N), tl.float32)
    v0 = tl.max(t0, 1)
    s0 = 0.5
'''
# Tiles, a number for each row, and single numbers: `t`, `v`, `s`.
WITHIN = {
    "t": ["{t} + {t}", "{t} * {t}", "{t} - {v}[:, None]", "{t} * {v}[:, None]", "tl.where({t} > {t}, {t}, {t})",
          "tl.where((row < m)[:, None], {t}, 0.0)", "tl.maximum({t}, {t})", "tl.abs({t})", "{t} + {s}",
          "tl.reshape(tl.reshape({t}, (BM * N,)), (BM, N))", "tl.trans(tl.trans({t}))", "tl.where(live, {t}, {t})",
          "{t} + FLAG", "{t} * C"],
    "v": ["tl.max({t}, 1)", "tl.sum({t}, 1)", "tl.min({t}, 1)", "{v} + {v}", "{v} * {s}", "tl.where({v} > {v}, {v}, {v})",
          "tl.sum(tl.trans({t}), 0)", "tl.maximum({v}, {v})", "{v} + FLAG", "tl.sum(tl.reshape({t}, (BM, 2, 2)), 2).sum(1)"],
    "s": ["{s} + 1.0", "{s} * {s}", "{s} + FLAG", "tl.where(FLAG > 0, {s}, {s})", "{s} - C"],
}
ACROSS = {
    "t": ["{t} + {v}[None, :]", "tl.trans({t})", "{t} + tl.max({v}, 0)", "{t} * m", "{t} + row[:, None]",
          "tl.reshape(tl.trans(tl.reshape({t}, (2, 8))), (BM, N))"],
    "v": ["tl.max({t}, 0)", "tl.sum({t}, 0)", "{v} + tl.max({v}, 0)", "{v} + m", "tl.sum(tl.trans({t}), 1)"],
    "s": ["tl.max({v}, 0)", "tl.sum({v}, 0)", "tl.sum(tl.sum({t}, 1), 0)", "m * 1.0", "tl.program_id(0) * 1.0"],
}
CONDITIONS = ["{s} > 0.5", "tl.max({v}, 0) > 1.0", "FLAG > 0", "m > 6", "C > 2", "tl.max((row + 1 < m).to(tl.int32), 0) > 0",
              "tl.program_id(0) > 0", "{s} < {s}"]
RANGES = ["range(0, FLAG)", "range(0, FLAG)", "range(0, 1)", "range(FLAG, FLAG + 1)", "range(0, C)", "range(0, 3)",
          "range(0, tl.minimum(m, 1))"]


class Text:
    def __init__(self, seed):
        self.random, self.lines, self.made = random.Random(seed), [], 0

    def line(self, depth, text):
        self.lines.append("    " * (depth + 1) + text)

    def filled(self, names, text):
        return re.sub(r"\{(.)\}", lambda kind: self.random.choice(names[kind[1]]), text)

    def expression(self, names, kind):
        across = self.random.random() < (0.3 if kind == "s" else 0.1)
        return self.filled(names, self.random.choice((ACROSS if across else WITHIN)[kind]))

    def assign(self, names, depth, kind):
        """To a name of before, whose type stays."""
        name = self.random.choice(names[kind])
        self.line(depth, f"{name} = {self.expression(names, kind)}")
        return name

    def branch(self, depth, condition, name, values):
        self.line(depth, f"if {condition}:")
        self.line(depth + 1, f"{name} = {values[0]}")
        self.line(depth, "else:")
        self.line(depth + 1, f"{name} = {values[1]}")

    def looked_at(self, names, depth, carried):
        """What a loop gave decides a branch that gives the same either way, and is used after."""
        tile, value = self.random.choice(names["t"]), self.expression(names, "t")
        largest = {"t": f"tl.max(tl.max({carried}, 1), 0)", "v": f"tl.max({carried}, 0)", "s": carried}[carried[0]]
        self.branch(depth, f"{largest} > 0.5", tile, [value, value])
        self.line(depth, f"t0 = {tile} + {carried}{'[:, None]' if carried[0] == 'v' else ''}")

    def block(self, names, depth, count):
        for _ in range(count):
            which = self.random.random()
            if which < 0.5 or depth >= 2:
                kind = self.random.choice("ttvvs")
                if depth > 0 and self.random.random() < 0.6:
                    self.assign(names, depth, kind)
                    continue
                self.made += 1
                name = f"{kind}{9 + self.made}"
                self.line(depth, f"{name} = {self.expression(names, kind)}")
                names[kind].append(name)
            elif which < 0.75:
                self.line(depth, f"for _ in {self.random.choice(RANGES)}:")
                carried = [self.assign(names, depth + 1, self.random.choice("tvvss")) for _ in range(self.random.randint(1, 3))]
                if self.random.random() < 0.4:
                    self.block({kind: list(of) for kind, of in names.items()}, depth + 1, 1)
                if self.random.random() < 0.5:
                    self.looked_at(names, depth, self.random.choice(carried))
            else:
                kind = self.random.choice("tv")
                name, value = self.random.choice(names[kind]), self.expression(names, kind)
                other = value if self.random.random() < 0.8 else self.expression(names, kind)
                self.branch(depth, self.filled(names, self.random.choice(CONDITIONS)), name, [value, other])


def kernel(seed):
    text = Text(seed)
    names = {"t": ["t0", "t1"], "v": ["v0"], "s": ["s0"]}
    text.block(names, 0, text.random.randint(3, 9))
    text.line(0, text.filled(names, "tl.store(out + at, t0 + {t} + {v}[:, None], mask=live)"))
    return HEAD + "\n".join(text.lines) + "\n"


def main():
    first, count, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.makedirs(folder, exist_ok=True)
    for seed in range(first, first + count):
        path = os.path.join(folder, f"random_{seed}.py")
        with open(path, "w") as file:
            file.write(kernel(seed))
        make.render(path)


if __name__ == "__main__":
    main()
