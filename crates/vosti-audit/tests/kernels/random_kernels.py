"""Writes Triton kernels at random, as others write them, with contracts: `python random_kernels.py SEED COUNT FILE` writes FILE and the
`.toml` beside it.

A kernel is made of what `src/normal` and `render.py` bring to the verifier's form: numbered tiles, with and without a loop that takes them in
turn, early returns, strides, a row count as an integer, loads that leave lanes open, scans, reductions of several tiles, functions of
libdevice, hints, remainders of lanes, FP16. Six in ten then get one or two random changes: another name, another number, another operator. What is proved must run
the same, as `examples/random.rs` and the test `random_kernels` say."""
import random
import re
import sys

HEAD = '''import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def both(a, b, c, d):
    return a + c * 0.5, tl.maximum(b, d) + a * c


'''

NUMBERINGS = [
    "m = t // Q\nn = t % Q",
    "m = t % P\nn = t // P",
    "width = G * Q\nfirst = t // width * G\nsize = min(P - first, G)\nm = first + (t % width) % size\nn = (t % width) // size",
    "width = G * Q\nfirst = t // width * G\nsize = min(P - first, G)\nm = first + t % size\nn = (t % width) // size",
    "width = G * P\nfirst = t // width * G\nsize = min(Q - first, G)\nm = (t % width) // size\nn = first + (t % width) % size",
]
# Functions of a tile, element by element.
MAPS = ["v * 2 + 1", "tl.exp(v)", "tl.abs(v) - v", "tl.math.erf(v)", "libdevice.tanh(v)", "libdevice.pow(tl.abs(v) + 1, v)", "tl.where(v > 0, v, v * 0.25)", "tl.clamp(v, -1.0, 1.0)"]
# Functions of a row: all of it has a part in each result.
FOLDS = [
    "v * tl.sum(v, axis=0)",
    "tl.cumsum(v, axis=0)",
    "v - tl.max(v, axis=0)",
    "v / (1 + tl.sum(tl.abs(v), axis=0))",
    "v + fold(v)",
    "tl.cumsum(v * v, axis=0) * tl.sum(v, axis=0)",
    "v * tl.argmax(v, axis=0)",
    "v + first(v)",
]
# Types of the input and the output: of FP16 and FP8 a proof knows no cast.
TYPES = ["", "", " f32", " f16"]


def buffers(rng):
    return f'x = "in 0{rng.choice(TYPES)}", y = "out 0{rng.choice(TYPES)}"'


def indented(text, by):
    return "\n".join("    " * by + line for line in text.split("\n") if line)


def tiled(name, rng):
    """Tiles of rows and columns, numbered on one axis."""
    numbering, f = rng.choice(NUMBERINGS), rng.choice(MAPS)
    turn = rng.choice(["", " in turn by 3", " in turn"])
    bm, bn, g = rng.choice([1, 2, 4]), rng.choice([8, 16]), rng.choice([1, 2, 3])
    other = rng.choice([", other=0.0", ""])
    wrapped = rng.choice(["rows", "rows", "(rows % n_rows)"])
    read = "mask" if wrapped == "rows" else rng.choice(["mask", "(cols < n_cols)[None, :]"])
    body = f"""{numbering}
rows = m * {bm} + tl.arange(0, {bm})
cols = n * {bn} + tl.arange(0, {bn})
mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
at = rows[:, None] * n_cols + cols[None, :]
v = tl.load(x + {wrapped}[:, None] * n_cols + cols[None, :], mask={read}{other}).to(tl.float32)
tl.store(y + at, {f}, mask=mask)"""
    counts = f"P = tl.cdiv(n_rows, {bm})\nQ = tl.cdiv(n_cols, {bn})\nG = {g}"
    carried = turn and rng.random() < 0.4
    step = "tl.num_programs(0)" if turn == " in turn" else "3"
    if not turn:
        text = f"{counts}\nt = tl.program_id(0)\n{body}"
    elif carried:
        text = f"{counts}\nt = tl.program_id(0) - {step}\nfor u in range(tl.program_id(0), P * Q, {step}):\n    t += {step}\n{indented(body, 1)}"
    else:
        text = f"{counts}\nfor t in range(tl.program_id(0), P * Q, {step}):\n{indented(body, 1)}"
    source = f"@triton.jit\ndef {name}(x, y, n_rows, n_cols):\n{indented(text, 1)}\n"
    grid = f"cdiv(rows, {bm}) * cdiv(n_cols, {bn}){turn}"
    return source, grid, f'{buffers(rng)}, n_rows = "rows", n_cols = "dim 1..40"', ""


def by_row(name, rng):
    """One program a row, or rows in turn; all of a row in one tile."""
    f = rng.choice(FOLDS + MAPS)
    other = rng.choice([", other=0.0", ", other=0.0", ""])
    hint = rng.choice(["", "cols = tl.max_contiguous(tl.multiple_of(cols, 16), 16)\n"])
    fold = "a, b = tl.reduce((v, v * v), 0, both)\n" if "fold(v)" in f else ""
    fold += "best, first = tl.max(v, axis=0, return_indices=True)\n" if "first(v)" in f else ""
    f = f.replace("fold(v)", "a * 0.5 - b").replace("first(v)", "best * first")
    body = f"""cols = tl.arange(0, 64)
{hint}v = tl.load(x + row * stride + cols, mask=cols < n_cols{other}).to(tl.float32)
{fold}tl.store(y + row * stride + cols, {f}, mask=cols < n_cols)"""
    kind = rng.choice(["plain", "return", "turn"])
    if kind == "turn":
        text, grid = f"for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):\n{indented(body, 1)}", "rows in turn"
    elif kind == "return":
        text, grid = f"row = tl.program_id(0)\nif row >= n_rows:\n    return\n{body}", "cdiv(rows, 4) * 4"
    else:
        text, grid = f"row = tl.program_id(0)\n{body}", "rows"
    source = f"@triton.jit\ndef {name}(x, y, stride, n_rows, n_cols):\n{indented(text, 1)}\n"
    return source, grid, f'{buffers(rng)}, stride = "= n_cols", n_rows = "rows", n_cols = "dim 1..40"', 'where = ["n_cols <= 64"]\n'


SWAPS = [["+", "-", "*"], ["//", "%"], ["<", "<=", ">="], ["n_rows", "n_cols", "P", "Q", "G"], ["m", "n", "t", "first", "size", "width"], ["rows", "cols"], ["x", "y"], ["0", "1", "2", "3"], ["8", "16"], ["min", "max"]]


def changed(source, rng):
    """The kernel with one token of its body changed for another of its kind."""
    head, body = source.split("\n", 2)[0:2], source.split("\n", 2)[2]
    tokens = [(found, kind) for found in re.finditer(r"//|<=|>=|[A-Za-z_][\w.]*|\d+|[-+*%<]", body) for kind in SWAPS if found.group() in kind]
    if not tokens:
        return source
    found, kind = rng.choice(tokens)
    # A name that the kernel does not have would only be refused.
    known = [token for token in kind if token != found.group() and (not token.isidentifier() or token in ("min", "max") or re.search(rf"\b{token}\b", source))]
    return "\n".join(head) + "\n" + body[: found.start()] + rng.choice(known or [found.group()]) + body[found.end():]


def main(seed, count, path):
    sources, contracts = [HEAD], []
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        name = f"kernel_{seed}_{number}"
        source, grid, params, where = rng.choice([tiled, tiled, by_row])(name, rng)
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            source = changed(source, rng)
        sources.append(source + "\n\n")
        contracts.append(f'[{name}]\nshape = "rowwise"\ngrid = ["{grid}"]\n{where}params = {{ {params} }}\nshapes = {{ x = ["rows", "n_cols"], y = ["rows", "n_cols"] }}\n')
    with open(path, "w") as file:
        file.write("".join(sources))
    with open(re.sub(r"\.py$", ".toml", path), "w") as file:
        file.write("\n".join(contracts))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
