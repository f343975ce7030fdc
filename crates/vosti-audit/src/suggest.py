"""Drafts a contract for each kernel of a Triton file, from its text alone: nothing of the file is executed, and Triton is not needed.

Reads {"source", "functions"} from standard input and writes {"contracts"} or {"error", "line"} to standard output.

What it looks at: a pointer is what an access begins with; it is an output if something is stored there. A buffer whose offset depends on
the program has a row for each row, another one is a weight. An integer that bounds a program's rows is the number of rows, one that
bounds columns is a dimension, and one that multiplies a row is a stride. All of it is a guess, and the draft says so.
"""
import ast
import json
import re
import sys

LOADS, STORES = ("load",), ("store", "atomic_add", "atomic_max")
# Ways in which an access of a name with this end is of columns.
LAST = re.compile(r"(col|_k|_n|_d|_1|inner|dim)$")
TILES = {"M": 4, "ROWS": 4, "T": 4}


def called(node):
    """The last part of a call's name."""
    if isinstance(node, ast.Call):
        return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return ""


def names(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def addends(node):
    """The terms of a sum, through casts and indices."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return addends(node.left) + (addends(node.right) if isinstance(node.op, ast.Add) else [])
    if isinstance(node, ast.Subscript):
        return addends(node.value)
    if called(node) in ("to", "cast", "advance", "multiple_of", "max_contiguous"):
        return addends(node.func.value if called(node) == "to" else node.args[0])
    return [node]


class Kernel:
    def __init__(self, node):
        self.name, self.line = node.name, node.lineno
        arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        defaults = dict(zip([a.arg for a in node.args.args][::-1], node.args.defaults[::-1]))
        self.parameters = [a.arg for a in arguments]
        self.constants = [a.arg for a in arguments if a.annotation is not None and "constexpr" in ast.unparse(a.annotation)]
        self.defaults = {name: ast.unparse(value) for name, value in defaults.items()}
        self.body = node.body
        # What a name is made of: names of its assignments.
        self.made = {}
        for part in ast.walk(node):
            if isinstance(part, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and part.value is not None:
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                for target in targets:
                    for name in names(target):
                        self.made.setdefault(name, []).append(part.value)
            elif isinstance(part, ast.For) and isinstance(part.target, ast.Name):
                self.made.setdefault(part.target.id, []).append(part.iter)
        self.programs = self.reached(lambda value: called(value) == "program_id" and self.axis(value) == 0)
        self.lanes = self.reached(lambda value: called(value) in ("arange", "range", "static_range"))
        self.accesses()

    @staticmethod
    def axis(call):
        given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "axis"), None)
        return given.value if isinstance(given, ast.Constant) else None

    def reached(self, begins):
        """Names that something of this kind has a part in."""
        found, size = set(), -1
        while len(found) != size:
            size = len(found)
            for name, values in self.made.items():
                if any(begins(part) or isinstance(part, ast.Name) and part.id in found for value in values for part in ast.walk(value)):
                    found.add(name)
        return found

    def touched(self, node, found, begins=lambda part: False):
        return any(begins(part) or isinstance(part, ast.Name) and part.id in found for part in ast.walk(node))

    def bases(self, node, seen=()):
        """The parameters that an address may begin with."""
        found = set()
        for term in addends(node):
            if called(term) == "make_block_ptr":
                base = term.args[0] if term.args else next((k.value for k in term.keywords if k.arg == "base"), None)
                found |= self.bases(base, seen) if base is not None else set()
            elif isinstance(term, ast.Name):
                if term.id in self.parameters:
                    found.add(term.id)
                if term.id in self.made and term.id not in seen:
                    for value in self.made[term.id]:
                        found |= self.bases(value, (*seen, term.id))
        return found

    def accesses(self):
        self.loaded, self.stored, self.rowed, self.wide = set(), set(), set(), set()
        self.counts, self.bounds, self.strides, self.looped, self.turned = [], [], {}, set(), False
        plain = set()
        for statement in self.body:
            for part in ast.walk(statement):
                if isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Mult, ast.FloorDiv, ast.Mod, ast.Div)):
                    for side, other in ((part.left, part.right), (part.right, part.left)):
                        if isinstance(side, ast.Name) and side.id in self.parameters:
                            plain.add(side.id)
                            if isinstance(part.op, ast.Mult):
                                self.strides.setdefault(side.id, []).append(other)
                elif isinstance(part, ast.Compare) and len(part.ops) == 1:
                    left, right = part.left, part.comparators[0]
                    if isinstance(part.ops[0], (ast.Gt, ast.GtE)) and isinstance(left, ast.Name) and left.id in self.parameters:
                        left, right = right, left
                    if isinstance(right, ast.Name) and right.id in self.parameters:
                        plain.add(right.id)
                        rows = self.touched(left, self.programs, lambda p: called(p) == "program_id")
                        (self.counts if rows else self.bounds).append((right.id, left))
                elif called(part) in ("range", "static_range", "cdiv"):
                    in_turn = any(called(p) == "num_programs" for p in ast.walk(part)) or self.touched(part, self.turns())
                    self.turned |= in_turn and called(part) != "cdiv"
                    for argument in part.args:
                        if isinstance(argument, ast.Name) and argument.id in self.parameters:
                            plain.add(argument.id)
                            if called(part) != "cdiv":
                                (self.counts if in_turn else self.bounds).append((argument.id, part))
                                self.looped.add(argument.id)
        for part in (part for statement in self.body for part in ast.walk(statement)):
            if called(part) in LOADS + STORES and isinstance(part, ast.Call) and part.args:
                address = part.args[0]
                whole = ast.Tuple([address], ast.Load())
                pointers = {name for name in self.bases(address) if name not in plain and name not in self.constants}
                (self.stored if called(part) in STORES else self.loaded).update(pointers)
                if self.touched(whole, self.programs, lambda p: called(p) == "program_id"):
                    self.rowed |= pointers
                if self.touched(whole, self.lanes, lambda p: called(p) == "arange"):
                    self.wide |= pointers
        self.plain = plain

    def turns(self):
        return self.reached(lambda value: called(value) == "num_programs")

    def rows(self):
        """The parameter with the number of rows, and the constant that a program takes."""
        pointers = self.loaded | self.stored
        for name, left in self.counts:
            if name in pointers or name in self.constants:
                continue
            return name
        # One that the kernel does not use, by its name.
        used = {name for statement in self.body for name in names(statement)}
        idle = [name for name in self.parameters if name not in used and name not in self.constants]
        return next((name for name in idle if re.search(r"^(M|T|n_?rows|num_rows|rows)$", name)), None)

    def tile(self):
        """The constant of a tile's rows: `program_id(0) * BM + arange(0, BM)`."""
        for values in self.made.values():
            for value in values:
                for part in ast.walk(value):
                    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
                        for side, other in ((part.left, part.right), (part.right, part.left)):
                            if isinstance(side, ast.Name) and side.id in self.constants and self.touched(
                                other, self.programs & self.direct(), lambda p: called(p) == "program_id" and self.axis(p) == 0
                            ):
                                return side.id
        return None

    def direct(self):
        """Names that are the program itself."""
        plain = lambda value: called(value) == "program_id" or called(value) == "to" and called(value.func.value) == "program_id"
        return {name for name, values in self.made.items() if any(plain(value) for value in values)}

    def draft(self):
        out, params = [f"[{self.name}]", 'shape = "rowwise"'], {}
        rows, tile = self.rows(), self.tile()
        axes = {self.axis(part) for s in self.body for part in ast.walk(s) if called(part) == "program_id"}
        pointers = [name for name in self.parameters if name in self.loaded | self.stored]
        dims = []
        for name, _ in self.bounds:
            if name not in dims and name not in self.constants and name not in pointers and name != rows:
                dims.append(name)
        width = dims[0] if dims else None
        fixed = {}
        kinds = {"in": 0, "out": 0, "weight": 0}
        notes, shapes = [], {}
        for name in self.parameters:
            if name in self.constants:
                continue
            if name in pointers:
                kind = "out" if name in self.stored else "in" if name in self.rowed else "weight"
                if name in self.stored and name in self.loaded:
                    notes.append(f"# `{name}` is read and written: a contract cannot say yet that a kernel works in place.")
                params[name] = f"{kind} {kinds[kind]}"
                kinds[kind] += 1
                inner = [width or "WIDTH"] if name in self.wide else []
                shapes[name] = (["rows"] if kind != "weight" else []) + inner or ["1"]
            elif name == rows:
                params[name] = "rows"
            elif name in dims:
                params[name] = "dim 1..65536"
            elif name in self.strides:
                of_rows = any(self.touched(other, self.programs, lambda p: called(p) == "program_id") for other in self.strides[name])
                if of_rows and not (LAST.search(name) and "row" not in name):
                    params[name] = f"= {width or 'WIDTH'}"
                else:
                    fixed[name] = 1
            elif "stride" in name:
                fixed[name] = 1
            elif name in self.plain or any(name == used for used, _ in self.counts):
                params[name] = "dim 1..65536"
            else:
                params[name] = "number"
        bound, where = {}, []
        for name, left in self.bounds:
            size = next((constant for constant in self.constants for lane in self.ranges(left) if constant in names(lane)), None)
            if name in dims and name not in self.looped and size and not self.touched(left, self.programs):
                bound[name] = size
        where = [f"{name} <= {size}" for name, size in bound.items()]
        for name in bound:
            params[name] = "dim 1..4096"
        for name in self.constants:
            if name in self.defaults:
                continue
            upper = name.upper()
            if re.match(r"(HAS|IS|USE|STORE|WITH|ENABLE|NEED|APPLY)_", upper) or upper in ("LOG", "CASTING"):
                fixed[name] = False
            elif name == tile or re.search(r"(_M|ROWS)$|ROWS_PER|^BM$", upper):
                fixed[name] = 4
            elif "STAGES" in upper:
                fixed[name] = 2
            elif "WARPS" in upper:
                fixed[name] = 4
            elif re.search(r"BLOCK|TILE|^B[A-Z]$|SIZE", upper):
                fixed[name] = 1024
            else:
                fixed[name] = "?"
                notes.append(f"# `{name}`: put the launcher's value in the place of the question mark.")
        grid = "rows in turn" if self.turned else f"cdiv(rows, {tile})" if tile and self.guarded(tile) else "rows"
        axes = max([axis for axis in axes if isinstance(axis, int)], default=0)
        out.append("grid = [" + ", ".join([f'"{grid}"'] + ['"?"'] * axes) + "]")
        if axes:
            notes.append("# Each question mark of the grid is an axis: what does the launcher ask for?")
        if not self.turned and tile and not self.guarded(tile):
            notes.append(f"# A program takes {tile} numbers from its own on: if these are of one row, say so in the grid.")
        if "WIDTH" in json.dumps(shapes) + json.dumps(params):
            notes.append("# WIDTH stands for the numbers of a row: a constant, or a product of those.")
        if where:
            out.append("where = " + json.dumps(where))
        if fixed:
            out.append("constants = { " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in fixed.items()) + " }")
        out += ["", f"[{self.name}.params]"] + [f'{name} = "{role}"' for name, role in params.items()]
        out += ["", f"[{self.name}.shapes]"] + [f"{name} = {json.dumps(extents)}" for name, extents in shapes.items()]
        return "\n".join(notes + out) + "\n"

    def ranges(self, node, seen=()):
        """The `arange` calls that a value is made of."""
        found = []
        for part in ast.walk(node):
            if called(part) == "arange":
                found.append(part)
            elif isinstance(part, ast.Name) and part.id in self.made and part.id not in seen:
                for value in self.made[part.id]:
                    found += self.ranges(value, (*seen, part.id))
        return found

    def guarded(self, tile):
        """Whether the tile's lanes are rows: a tile of two axes, or no columns beside them."""
        return any(tile in names(call) for name, left in self.counts for call in self.ranges(left)) or not self.counts and self.both(tile)

    def both(self, tile):
        return sum("None" in ast.unparse(part) for s in self.body for part in ast.walk(s) if isinstance(part, ast.Subscript)) > 0


HEAD = """# A draft: each role is guessed from the kernel's text. Read it as you would read a theorem, because a proof is of what it says.
# `in` and `out` have an entry for each row, a `weight` is the same for all batches, and `dim` is a range of an integer.
"""


def main():
    request = json.load(sys.stdin)
    try:
        tree = ast.parse(request["source"])
    except SyntaxError as error:
        return {"error": f"no Python: {error.msg}", "line": error.lineno or 1}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
             and any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)]
    wanted = request["functions"]
    for name in wanted:
        if name not in [node.name for node in found]:
            return {"error": f"there is no kernel `{name}`", "line": 1}
    kernels = [Kernel(node) for node in found if not wanted or node.name in wanted]
    # A helper stores nothing, or is called by another kernel.
    drafts = [kernel.draft() for kernel in kernels if kernel.name in wanted or kernel.stored and kernel.loaded]
    if not drafts:
        return {"error": "no kernel of it loads and stores by itself: name one with --function", "line": 1}
    return {"contracts": HEAD + "\n" + "\n".join(drafts)}


if __name__ == "__main__":
    json.dump(main(), sys.stdout)
