"""An independent evaluator of TTIR: NumPy only, its own parser, nothing shared with the Rust code.

    python eval.py FOLDER

FOLDER holds kernel.ttir, case.json ({"grid": [x, y, z], "params": [{"name", "elem"}], "trace": [[op, lanes], ..]}),
and for each parameter NAME.before and NAME.after (raw little-endian elements), and trace.bin (FP32).

Everything must agree with the interpreter bit for bit. An operation in LOOSE (dot, float reduction, exponentials, rsqrt,
fma) is compared twice: with what it means, computed in FP64 from the same operands, within its error bound; and, where its
order and rounding are Vosti's own (`exact.py`), bit for bit. The others go on from the traced result.
Prints a summary; exits with 1 and the first difference otherwise. `whole.py` runs models without a trace.
"""
import json
import os
import re
import sys

import numpy as np

import exact
from exact import TINY, flush

LOOSE = {"tt.dot", "tt.reduce", "math.exp", "math.exp2", "math.rsqrt", "math.fma", "math.log", "math.log2",
         "math.sin", "math.cos"}
DTYPES = {"i1": np.bool_, "i8": np.int8, "i32": np.int32, "i64": np.int64, "f32": np.float32, "bf16": np.float32}
STORED = {"i1": np.uint8, "i8": np.int8, "i32": np.int32, "i64": np.int64, "f32": np.uint32, "bf16": np.uint16}
EPS = 2.0**-24
# Products of a case's dots that are computed in Vosti's own order.
OWN_MAX = 1 << 24


class Wrong(Exception):
    pass


# ---- text ------------------------------------------------------------------------------------------

TOKEN = re.compile(r'"[^"]*"|%[\w$.\-]+(?:[#:]\d+)?|@"[^"]*"|@[\w.$]+|!tt\.ptr|\^bb\d+|->|0x[0-9A-Fa-f]+|'
                   r'-?\d+\.\d+(?:[eE][+-]?\d+)?|-?\d+|[A-Za-z_][\w.$]*|[<>{}()\[\],:=*]')


def type_of(text):
    """('tile' | 'ptr' | 'block', shape, elem)"""
    text = text.strip()
    if m := re.fullmatch(r"!tt\.ptr<tensor<(.*)>>", text):
        *shape, elem = m[1].split("x")
        return "block", tuple(map(int, shape)), elem
    if m := re.fullmatch(r"!tt\.ptr<(\w+)>", text):
        return "ptr", (), m[1]
    if m := re.fullmatch(r"tensor<((?:\d+x)*)!tt\.ptr<(\w+)>>", text):
        return "ptr", tuple(int(n) for n in m[1].split("x") if n), m[2]
    if m := re.fullmatch(r"tensor<((?:\d+x)*)(\w+)>", text):
        return "tile", tuple(int(n) for n in m[1].split("x") if n), m[2]
    return "tile", (), text


class Op:
    def __init__(self, line, number):
        self.text, self.number, self.body, self.other = line, number, [], []
        left, right = (line.split(" = ", 1) + [None])[:2] if re.match(r"%[\w.\-]+(:\d+)?(, %[\w.\-]+)* = ", line) else (None, line)
        self.results = []
        if left and "," in left:
            self.results = left.split(", ")
        elif left:
            name, _, count = left.partition(":")
            self.results = [f"{name}#{i}" for i in range(int(count))] if count else [name]
            if count:
                self.results_base = name
        self.name, self.rest = (right.split(" ", 1) + [""])[:2]
        if right.startswith('"tt.reduce"'):
            self.name, self.rest = "tt.reduce", right[len('"tt.reduce"'):]
        self.operands = [v if v.find("#") >= 0 else v for v in re.findall(r"%[\w.$\-]+(?:#\d+)?", self.rest)]
        self.signature = self.rest.rsplit(" : ", 1)[-1] if " : " in self.rest else ""


def parse(path):
    """{function name: (parameter names, [Op])}; regions nested in Op.body."""
    functions, stack, current = {}, [], None
    for number, line in enumerate(open(path), 1):
        line = line.rstrip()
        text = line.strip()
        if not text or text.startswith("//") or text.startswith("module"):
            continue
        if text.startswith("tt.func"):
            name = re.search(r'@("[^"]*"|[\w.$]+)', text)[1].strip('"')
            head = text.split("(", 1)[1] if '@"' not in text else text.split('"(', 1)[1]
            current = functions[name] = (re.findall(r"(%[\w.$\-]+):", head), [], "public" in text)
            stack = [current[1]]
            # Binding puts its constants into the line of the signature.
            stack[0].extend(Op(bound.strip(), number) for bound in re.findall(r"%\w+ = arith\.constant [^%]+", head))
            dead = False
        elif re.match(r"\^bb\d+:", text):
            dead = True  # a block that nothing jumps to
        elif text.startswith("^bb0("):
            stack[-1].append(re.findall(r"(%[\w.$\-]+):", text))
        elif text.startswith("}") and "else {" in text:
            stack.pop()
            stack.append(stack[-1][-1].other)
        elif text.startswith("}"):
            if stack:
                stack.pop()
            if stack and text != "}":
                stack[-1][-1].signature = text
        elif dead:
            continue
        else:
            op = Op(text, number)
            stack[-1].append(op)
            if text.endswith("{"):
                stack.append(op.body)
    return functions


# ---- numbers ---------------------------------------------------------------------------------------

def to_bf16(x):
    bits = flush(x).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return np.where(np.isnan(x), np.uint32(0x7FC00000), rounded).astype(np.uint32).view(np.float32)


def binary(op, a, b):
    kind = op.split(".")[1]
    if kind in ("addf", "subf", "mulf", "divf"):
        a, b = flush(a), flush(b)
        if kind == "mulf":
            return exact.times(a, b)
        return flush({"addf": np.add, "subf": np.subtract, "divf": np.divide}[kind](a, b))
    if kind in ("maxnumf", "minnumf"):
        a, b = flush(a), flush(b)
        first = a > b if kind == "maxnumf" else a < b
        return np.where(np.isnan(b), a, np.where(first, a, b))
    if kind in ("maximumf", "minimumf"):
        a, b = flush(a), flush(b)
        first = a > b if kind == "maximumf" else a < b
        return np.where(np.isnan(a), a, np.where(first, a, b))
    if kind in ("addi", "subi", "muli") and a.dtype == np.bool_:
        return (a & b) if kind == "muli" else (a ^ b)
    if kind in ("divsi", "remsi"):
        wide_a, wide_b = a.astype(object), b.astype(object)
        q = np.frompyfunc(lambda x, y: (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1), 2, 1)(wide_a, wide_b)
        return np.asarray(q if kind == "divsi" else wide_a - q * wide_b).astype(a.dtype)
    unsigned = {np.dtype(np.int8): np.uint8, np.dtype(np.int32): np.uint32, np.dtype(np.int64): np.uint64, np.dtype(np.bool_): np.uint8}[a.dtype]
    table = {"addi": np.add, "subi": np.subtract, "muli": np.multiply, "andi": np.bitwise_and, "ori": np.bitwise_or,
             "xori": np.bitwise_xor, "shli": np.left_shift, "shrsi": np.right_shift, "maxsi": np.maximum,
             "minsi": np.minimum}
    if kind in table:
        return table[kind](a, b)
    table = {"divui": np.floor_divide, "remui": np.remainder, "shrui": np.right_shift, "maxui": np.maximum,
             "minui": np.minimum}
    return table[kind](a.view(unsigned), b.view(unsigned)).view(a.dtype)


def compare(predicate, a, b):
    if a.dtype == np.float32:
        a, b = flush(a), flush(b)
        nan = np.isnan(a) | np.isnan(b)
        base = {"eq": a == b, "gt": a > b, "ge": a >= b, "lt": a < b, "le": a <= b, "ne": a != b}
        if predicate == "ord":
            return ~nan
        if predicate == "uno":
            return nan
        value = base[predicate[1:]]
        return value & ~nan if predicate[0] == "o" else value | nan
    if a.dtype == np.bool_:
        signed, unsigned = -a.astype(np.int32), a.astype(np.uint32)
        sb, ub = -b.astype(np.int32), b.astype(np.uint32)
    else:
        signed, sb = a, b
        view = {1: np.uint8, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
        unsigned, ub = np.ascontiguousarray(a).view(view), np.ascontiguousarray(b).view(view)
    x, y = (unsigned, ub) if predicate[0] == "u" else (signed, sb)
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[
        predicate if predicate in ("eq", "ne") else predicate[1:]]


def cast(op, x, source, target):
    kind = op.split(".")[1]
    if kind == "extf":
        return x
    if kind == "truncf":
        return to_bf16(x)
    if kind == "extsi":
        return (-x.astype(DTYPES[target])) if source == "i1" else x.astype(DTYPES[target])
    if kind == "extui":
        unsigned = {"i8": np.uint8, "i32": np.uint32}
        return (x.view(unsigned[source]) if source in unsigned else x).astype(DTYPES[target])
    if kind == "trunci":
        return (x & 1).astype(np.bool_) if target == "i1" else x.astype(DTYPES[target])
    if kind in ("sitofp", "uitofp"):
        if kind == "uitofp" and source != "i1":
            x = x.view({"i8": np.uint8, "i32": np.uint32, "i64": np.uint64}[source])
        value = (-x.astype(np.float32) if kind == "sitofp" else x.astype(np.float32)) if source == "i1" else x.astype(np.float32)
        return to_bf16(value) if target == "bf16" else value
    if kind == "fptosi":
        info = np.iinfo(DTYPES[target])
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=1e30, neginf=-1e30))
        clipped = np.frompyfunc(lambda v: max(info.min, min(info.max, int(v))), 1, 1)(wide)
        return np.asarray(clipped).astype(DTYPES[target])
    if kind == "bitcast":
        if source == target:
            return x
        if target == "i32":
            return np.where(np.isnan(x), np.uint32(0x7FC00000), x.view(np.uint32)).astype(np.uint32).view(np.int32)
        return x.view(np.float32)
    raise Wrong(f"cast {op}")


def loose(op, arguments, extra):
    """(value in FP64, allowed absolute error), from operands in FP32."""
    with np.errstate(all="ignore"):
        wide = [flush(a).astype(np.float64) for a in arguments]
        if op == "tt.dot":
            a, b, c = wide
            value, size = a @ b + c, np.abs(a) @ np.abs(b) + np.abs(c)
            return value, 2 * (a.shape[1] + 1) * EPS * size + 2.0**-126 * (a.shape[1] + 1)
        if op == "tt.reduce":
            combine, axis = extra
            if combine == "arith.addf":
                x = wide[0]
                return x.sum(axis), 2 * x.shape[axis] * EPS * np.abs(x).sum(axis) + 2.0**-126 * x.shape[axis]
            table = {"arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "arith.maximumf": np.maximum,
                     "arith.minimumf": np.minimum}
            value = table[combine].reduce(wide[0], axis)
            return value, np.zeros_like(value)
        if op == "math.fma":
            value = wide[0] * wide[1] + wide[2]
            return value, 2 * EPS * np.abs(value) + 2.0**-126
        table = {"math.exp": np.exp, "math.exp2": np.exp2, "math.rsqrt": lambda x: 1 / np.sqrt(x), "math.log": np.log,
                 "math.log2": np.log2, "math.sin": np.sin, "math.cos": np.cos}
        value = table[op](wide[0])
        return value, 3 * 2 * EPS * np.abs(value) + 2.0**-126


# ---- execution -------------------------------------------------------------------------------------

class Pointers:
    def __init__(self, param, offsets):
        self.param, self.offsets = param, offsets


class Block:
    def __init__(self, param, base, shape, strides, offsets, block):
        self.param, self.base, self.shape, self.strides, self.offsets, self.block = param, base, shape, strides, offsets, block

    def addresses(self, check):
        address, inside = np.full(self.block, self.base, np.int64), np.ones(self.block, np.bool_)
        for axis in range(len(self.block)):
            at = self.offsets[axis] + np.arange(self.block[axis], dtype=np.int64)
            at = at.reshape([-1 if i == axis else 1 for i in range(len(self.block))])
            address = address + at * self.strides[axis]
            if axis in check:
                inside = inside & (0 <= at) & (at < self.shape[axis])
        return address, inside


class Case:
    def __init__(self, folder):
        self.folder = folder
        self.functions = parse(os.path.join(folder, "kernel.ttir"))
        self.case = json.load(open(os.path.join(folder, "case.json")))
        self.trace = iter(self.case["trace"])
        self.values = np.fromfile(os.path.join(folder, "trace.bin"), np.float32)
        self.at = 0
        self.memory = {}
        for p in self.case["params"]:
            self.memory[p["name"]] = self.raw(p, "before").copy()
        self.elems = {p["name"]: p["elem"] for p in self.case["params"]}
        self.exact, self.compared, self.own_lanes, self.left = 0, 0, 0, OWN_MAX

    def raw(self, p, when):
        return np.fromfile(os.path.join(self.folder, f"{p['name']}.{when}"), STORED[p["elem"]])

    def read(self, param, index, elem):
        memory = self.memory[param]
        if index.size and not (0 <= index.min() and index.max() < memory.size):
            raise Wrong(f"out of bounds read of {param}")
        bits = memory[index]
        if elem == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32)
        return bits.view(np.float32) if elem == "f32" else bits.astype(DTYPES[elem])

    def write(self, param, index, value, elem):
        memory = self.memory[param]
        if index.size and not (0 <= index.min() and index.max() < memory.size):
            raise Wrong(f"out of bounds write of {param}")
        if elem in ("f32", "bf16"):
            bits = np.where(np.isnan(value), np.uint32(0x7FC00000), value.view(np.uint32)).astype(np.uint32)
            memory[index] = (bits >> 16).astype(np.uint16) if elem == "bf16" else bits
        else:
            memory[index] = value

    def programs(self):
        """Runs every program; gives the kernel's name."""
        name, (params, body, _) = next((n, f) for n, f in self.functions.items() if f[2])
        x, y, z = self.case["grid"]
        for program in range(x * y * z):
            self.program = (program % x, program // x % y, program // x // y)
            self.block(body, {p: Pointers(p[1:], np.array(0, np.int64)) for p in params})
        return name

    def run(self):
        name = self.programs()
        if next(self.trace, None) is not None:
            raise Wrong("the interpreter computed more than the TTIR says")
        for p in self.case["params"]:
            after, got = self.raw(p, "after"), self.memory[p["name"]]
            if not np.array_equal(after, got):
                at = int(np.flatnonzero(after != got)[0])
                raise Wrong(f"{name}: {p['name']}[{at}] is {after[at]:#x}, should be {got[at]:#x}")
            self.exact += after.size

    def block(self, ops, env):
        """Runs operations; gives what the terminator hands on."""
        for op in ops:
            if op.name in ("tt.return", "scf.yield", "tt.reduce.return"):
                return [env[v] for v in op.operands]
            try:
                results = self.step(op, env)
            except (Wrong, KeyError, ValueError, TypeError, IndexError) as error:
                raise Wrong(f"line {op.number} `{op.text[:90]}`: {type(error).__name__} {error}") from error
            for result, value in zip(op.results, results):
                env[result] = value
            if len(op.results) == 1:
                env[op.results[0] + "#0"] = results[0]
        return []

    def follow(self, op, arguments, extra=None):
        """Compares a loose operation with the trace and gives the traced value."""
        value, bound = loose(op, arguments, extra)
        kind, lanes = next(self.trace, ("nothing", 0))
        if kind != op or lanes != value.size:
            raise Wrong(f"the trace has {kind} of {lanes} lanes, the TTIR {op} of {value.size}")
        got = self.values[self.at:self.at + lanes].reshape(value.shape)
        self.at += lanes
        self.compared += lanes
        with np.errstate(all="ignore"):
            wide = got.astype(np.float64)
            overflow = (np.abs(value) + bound > 3.4028234e38) & np.isinf(got) & (np.sign(got) == np.sign(value))
            close = (np.abs(wide - value) <= bound) | (wide == value) | (np.isnan(wide) & np.isnan(value)) | overflow
        if not np.all(close):
            lane = np.unravel_index(int(np.argmin(close)), close.shape) if close.ndim else ()
            raise Wrong(f"{op} lane {lane}: {got[lane]!r}, should be {value[lane]!r} within {bound[lane]!r}")
        # A dot in its own order takes long, so only the first dots of a case are computed so.
        self.left -= lanes * (arguments[0].shape[1] if op == "tt.dot" else 1)
        own = self.own(op, arguments, extra) if self.left > 0 else None
        if own is not None:
            self.own_lanes += lanes
            same = (got.view(np.uint32) == own.view(np.uint32)) | (np.isnan(got) & np.isnan(own))
            if not np.all(same):
                lane = np.unravel_index(int(np.argmin(same)), same.shape) if same.ndim else ()
                raise Wrong(f"{op} lane {lane}: {got[lane]!r}, should be {own[lane]!r} bit for bit")
        return got.copy()

    def own(self, op, arguments, extra):
        """An operation as Vosti defines it, bit for bit; None if it has no order or rounding of its own."""
        if op == "tt.reduce":
            combine, axis = extra
            extra = (lambda a, b: binary(combine, a, b)), axis
        return exact.compute(op, arguments, extra)

    def step(self, op, env):
        get = lambda i: env[op.operands[i]]
        name, rest = op.name, op.rest
        if name == "arith.constant":
            kind, shape, elem = type_of(op.signature) if " : " in rest else ("tile", (), "i1")
            text = re.match(r"(?:dense<)?([^>\s]+)", rest)[1]
            if elem in ("f32", "bf16"):
                if text.startswith("0x"):
                    bits = int(text, 16) << (16 if elem == "bf16" else 0)
                    number = np.array(bits, np.uint32).view(np.float32)
                else:
                    number = to_bf16(np.float32(text)) if elem == "bf16" else np.float32(text)
            else:
                number = {"true": True, "false": False}.get(text) if text in ("true", "false") else int(text)
            return [np.full(shape, number, DTYPES[elem])]
        if name == "ub.poison":
            return [None]
        if name in ("tt.get_program_id", "tt.get_num_programs"):
            axis = "xyz".index(rest[0])
            return [np.array((self.program if name == "tt.get_program_id" else self.case["grid"])[axis], np.int32)]
        if name == "tt.make_range":
            start, end = (int(re.search(rf"{k} = (\d+)", rest)[1]) for k in ("start", "end"))
            return [np.arange(start, end, dtype=np.int32)]
        if name in ("arith.cmpi", "arith.cmpf"):
            return [compare(rest.split(",")[0], get(0), get(1))]
        if name == "arith.select":
            a, b = get(1), get(2)
            if isinstance(a, Pointers):
                return [Pointers(a.param, np.where(get(0), a.offsets, b.offsets))]
            return [np.where(get(0), a, b)]
        if name in ("math.absf", "arith.negf"):
            bits = np.ascontiguousarray(get(0)).view(np.uint32).reshape(np.shape(get(0)))
            return [(bits & np.uint32(0x7FFFFFFF) if name == "math.absf" else bits ^ np.uint32(0x80000000)).view(np.float32)]
        if name in ("math.sqrt", "math.floor", "math.ceil"):
            with np.errstate(all="ignore"):
                return [flush({"math.sqrt": np.sqrt, "math.floor": np.floor, "math.ceil": np.ceil}[name](flush(get(0))))]
        if name == "tt.dot":
            elem = type_of(op.signature.split(" * ")[0])[2]
            if elem == "i8":
                a, b, acc = (get(i).astype(np.int64) for i in range(3))
                return [(acc + a @ b).astype(np.int32)]
            pairs = elem == "bf16"
            return [self.follow(name, [get(0), get(1), get(2)], pairs)]
        if name == "tt.reduce":
            axis = int(re.search(r"axis = (\d+)", rest)[1])
            combine = self.combiner(op.body)
            x = get(0)
            if x.dtype == np.float32:
                return [self.follow(name, [x], (combine, axis))]
            table = {"arith.addi": np.add, "arith.maxsi": np.maximum, "arith.minsi": np.minimum, "arith.ori": np.bitwise_or,
                     "arith.andi": np.bitwise_and, "arith.xori": np.bitwise_xor}
            return [table[combine].reduce(x, axis, dtype=x.dtype)]
        if name in LOOSE:
            value = self.follow(name, [env[v] for v in op.operands])
            return [value]
        if name.startswith("arith.") and " to " in op.signature:
            source, target = (type_of(t)[2] for t in op.signature.split(" to "))
            return [cast(name, np.ascontiguousarray(get(0)) if get(0).ndim else get(0), source, target)]
        if name.startswith("arith."):
            with np.errstate(all="ignore"):
                value = binary(name, np.asarray(get(0)), np.asarray(get(1)))
            return [to_bf16(value) if type_of(op.signature)[2] == "bf16" else value]
        if name in ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"):
            shape = type_of(op.signature.split("->")[1])[1]
            x = get(0)
            move = lambda v: (np.transpose(v, [int(i) for i in re.search(r"array<i32: ([\d, ]+)>", rest)[1].split(",")])
                              if name == "tt.trans" else np.broadcast_to(v, shape) if name in ("tt.splat", "tt.broadcast")
                              else np.reshape(v, shape))
            return [Pointers(x.param, move(x.offsets)) if isinstance(x, Pointers) else np.ascontiguousarray(move(x)).reshape(shape)]
        if name == "tt.split":
            return [np.ascontiguousarray(get(0)[..., half]) for half in (0, 1)]
        if name == "tt.addptr":
            return [Pointers(get(0).param, get(0).offsets + get(1).astype(np.int64))]
        if name == "tt.make_tensor_ptr":
            groups = [re.findall(r"%[\w.$\-]+(?:#\d+)?", g) for g in re.findall(r"\[([^\]]*)\]", rest)]
            shape, strides, offsets = ([int(env[v]) for v in g] for g in groups)
            block = tuple(int(n) for n in re.search(r"<tensor<((?:\d+x)+)", rest)[1].split("x") if n)
            return [Block(get(0).param, int(get(0).offsets), shape, strides, offsets, block)]
        if name == "tt.advance":
            p = get(0)
            offsets = [a + int(env[v]) for a, v in zip(p.offsets, op.operands[1:])]
            return [Block(p.param, p.base, p.shape, p.strides, offsets, p.block)]
        if name in ("tt.load", "tt.store"):
            return self.access(op, env)
        if name == "tt.call":
            callee = re.search(r'@("[^"]*"|[\w.$]+)', rest)[1].strip('"')
            tail = rest.split('"(', 1)[1] if '@"' in rest else rest.split("(", 1)[1]
            arguments = [env[v] for v in re.findall(r"%[\w.$\-]+(?:#\d+)?", tail)]
            params, body, _ = self.functions[callee]
            return self.block(body, dict(zip(params, arguments)))
        if name == "scf.for":
            return self.loop(op, env)
        if name == "scf.if":
            return self.block(op.body if get(0) else op.other, dict(env))
        raise Wrong(f"unknown operation {name}")

    def combiner(self, body):
        for op in body:
            if isinstance(op, list):
                continue
            if op.name == "tt.call":
                callee = re.search(r'@("[^"]*"|[\w.$]+)', op.rest)[1].strip('"')
                return self.functions[callee][1][0].name
            return op.name
        raise Wrong("empty reduction")

    def access(self, op, env):
        pointer = env[op.operands[0]]
        store = op.name == "tt.store"
        more = [env[v] for v in op.operands[(2 if store else 1):]]
        if isinstance(pointer, Block):
            check = re.search(r"boundaryCheck = array<i32: ([\d, ]+)>", op.rest)
            address, inside = pointer.addresses([int(a) for a in check[1].split(",")] if check else [])
            fill = {"1": 0.0, "2": np.nan}.get((re.search(r"padding = (\d)", op.rest) or [0, ""])[1], 0.0)
        else:
            address = np.asarray(pointer.offsets)
            inside = np.broadcast_to(more[0], address.shape) if more else np.ones(address.shape, np.bool_)
            fill = more[1] if len(more) > 1 else 0
        elem = self.elems[pointer.param]
        if store:
            self.write(pointer.param, address[inside], np.broadcast_to(env[op.operands[1]], address.shape)[inside], elem)
            return []
        value = np.array(np.broadcast_to(np.asarray(fill, DTYPES[elem]), address.shape))
        value[inside] = self.read(pointer.param, address[inside], elem)
        return [value]

    def loop(self, op, env):
        head = re.match(r"(%[\w.$\-]+) = (\S+) to (\S+) step (\S+)(?: iter_args\((.*?)\) ->)?", op.rest)
        index, low, high, step = head[1], int(env[head[2]]), int(env[head[3]]), int(env[head[4]])
        pairs = re.findall(r"(%[\w.$\-]+) = (%[\w.$\-]+(?:#\d+)?)", head[5] or "")
        carried = [env[init] for _, init in pairs]
        dtype = env[head[2]].dtype
        for i in range(low, high, step):
            inner = dict(env)
            inner[index] = np.array(i, dtype)
            inner.update((name, value) for (name, _), value in zip(pairs, carried))
            carried = self.block(op.body, inner)
        return carried


def main():
    for folder in sys.argv[1:]:
        case = Case(folder)
        try:
            case.run()
        except Wrong as error:
            print(f"{folder}: {error}")
            sys.exit(1)
        print(f"{os.path.basename(folder)}: {case.exact} elements equal bit for bit, "
              f"{case.compared} lanes within their bounds, {case.own_lanes} of them equal bit for bit")


if __name__ == "__main__":
    main()
