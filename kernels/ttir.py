"""Writes the TTIR of kernel specialisations with Triton's front end: no GPU, no torch.

    python kernels/ttir.py OUT_DIR < specs.json

Reads a JSON list of {"stem", "kernel", "act", "scalars", "constants", "pointers"}, where scalars and pointers give the
types of parameters, and writes OUT_DIR/<stem>.ttir. `cargo xtask ttir` makes the list from the model families and runs
this script. The texts have no path and no location. A table at the end maps TTIR lines to Python lines, for messages.
The header has the hash of the sources that a text was made from.
"""
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import site
import sys
import sysconfig

os.environ["TRITON_FRONT_END_DEBUGGING"] = "0"
import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

VERSION = "3.6.0"
TARGET = GPUTarget("cuda", 90, 32)
FOLDER = os.path.dirname(os.path.abspath(__file__))


def kernel(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(FOLDER, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def installed(path):
    """Whether a file belongs to Python, to an installed package or to Triton's cache."""
    folders = [sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += site.getsitepackages() + [site.getusersitepackages(), os.path.expanduser("~/.triton")]
    return any(path.startswith(os.path.realpath(folder) + os.sep) for folder in folders) or not os.path.isfile(path)


@contextlib.contextmanager
def reading():
    """Collects the files that are executed or read inside, other than those that are installed: what is lowered may depend on
    each. The modules among them are forgotten at the end, so that a later kernel that imports them reads them too."""
    files, active, known = set(), True, set(sys.modules)

    def hook(event, args):
        if not active:
            return
        if event == "exec":
            path = getattr(args[0], "co_filename", "")
        elif event == "open" and isinstance(args[0], (str, bytes, os.PathLike)) and args[1] in ("r", "rb", None):
            path = os.fsdecode(args[0])
        else:
            return
        path = os.path.realpath(path)
        if not path.endswith(".pyc") and not installed(path):
            files.add(path)

    sys.addaudithook(hook)
    try:
        yield files
    finally:
        active = False
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file and not installed(os.path.realpath(file)):
                files.add(os.path.realpath(file))
                del sys.modules[name]


def stands_below_its_contract(fn):
    """Refuses a function unless the contract stands directly above it: it would be lowered under a contract of another one."""
    code = fn.fn.__code__
    with open(code.co_filename) as file:
        lines = file.read().splitlines()
    if lines[code.co_firstlineno - 2].strip() != "# ///":
        sys.exit(f"{code.co_filename}: `{code.co_name}` of line {code.co_firstlineno} is lowered, and no contract ends above it")


def lower(fn, constants, pointers, scalars={}):
    """The TTIR module of one specialisation. Scalars stay parameters, without attributes, so the text is for all their values."""
    stands_below_its_contract(fn)
    signature, constexprs, attributes = {}, {}, {}
    for index, name in enumerate(fn.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            constexprs[(index,)] = constants[name]
        elif name in scalars:
            signature[name] = scalars[name]
        else:
            signature[name] = "*" + pointers[name]
            attributes[(index,)] = [["tt.divisibility", 16]]
    return module(fn, signature, constexprs, attributes)


def module(fn, signature, constexprs, attributes):
    """The TTIR of a function whose parameters have these types, values and claims."""
    source = ASTSource(fn=fn, signature=signature, constexprs=constexprs, attrs=attributes)
    backend = make_backend(TARGET)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    options = backend.parse_options({"enable_fp_fusion": False, "sanitize_overflow": False})
    module = source.make_ir(TARGET, options, backend.get_codegen_implementation(options), backend.get_module_map(),
                            context)
    module.verify()
    return module.str()


def split_locations(text, file_name):
    """(text without locations, Python line of each line of it or None)."""
    definition = re.compile(r"#(loc\d*) = loc\((.*)\)$")
    defined = {m[1]: m[2] for line in text.splitlines() if (m := definition.match(line))}

    def resolve(body):
        if m := re.match(r'"([^"]*)":(\d+):\d+', body):
            return int(m[2]) if os.path.basename(m[1]) == file_name else None
        if m := re.search(r"#(loc\d*)", body):
            return resolve(defined[m[1]])
        return None

    lines, python, open_lines = [], [], []
    for line in text.splitlines():
        if definition.match(line):
            continue
        last = re.search(r" loc\((#loc\d*|unknown)\)$", line)
        python.append(resolve(last[1]) if last else None)
        # An operation with regions has its location behind its last region.
        opened = len(python) - 1
        if line.lstrip().startswith("}") and open_lines:
            opened = open_lines.pop()
            python[opened] = python[opened] or python[-1]
        if line.endswith("{"):
            open_lines.append(opened)
        lines.append(re.sub(r' loc\((?:#loc\d*|unknown|"[^"]*"\(#loc\d*\))\)', "", line).rstrip())
    while lines and not lines[-1]:
        lines.pop(), python.pop()
    return lines, python


def made_from(name):
    """The names of a kernel and of the modules beside it that it imports, and their sources as one text."""
    with open(os.path.join(FOLDER, name + ".py"), "rb") as file:
        source = file.read()
    names = [name]
    for imported in re.findall(rb"^from (\w+) import ", source, re.MULTILINE):
        more, text = made_from(imported.decode())
        names, source = names + more, source + text
    return names, source


def render(spec):
    with reading() as files:
        module = lower(kernel(spec["kernel"]), spec["constants"], spec["pointers"], spec["scalars"])
    names, source = made_from(spec["kernel"])
    digest = hashlib.sha256(source).hexdigest()
    if unsaid := files - {os.path.join(os.path.realpath(FOLDER), name + ".py") for name in names}:
        sys.exit(f"{spec['kernel']} is made from {', '.join(sorted(unsaid))} too: import it as `from NAME import ...` from kernels/")
    lines, python = split_locations(module, spec["kernel"] + ".py")
    assert not any("loc(" in line or ".py" in line for line in lines), "a location is left in the TTIR"
    table, previous = [], None
    for number, line in enumerate(python, 1):
        if line != previous:
            table.append(f"{number}={line or '-'}")
            previous = line
    header = [
        "// made by `cargo xtask ttir`; do not edit",
        f"// kernel {spec['kernel']} act {spec['act']} triton {VERSION} source-sha256 {digest}",
        "// constants " + " ".join(f"{name}={value!r}" for name, value in sorted(spec["constants"].items())),
    ]
    # Lines are counted from the module's first, below the header.
    footer = ["// python lines, `module line=python line` from there on: " + " ".join(table)]
    return "\n".join(header + lines + footer) + "\n"


def main():
    if triton.__version__ != VERSION:
        sys.exit(f"ttir.py needs Triton {VERSION}, found {triton.__version__}: pip install triton=={VERSION}")
    for spec in json.load(sys.stdin):
        with open(os.path.join(sys.argv[1], spec["stem"] + ".ttir"), "w") as file:
            file.write(render(spec))


if __name__ == "__main__":
    main()
