"""Renders the TTIR of kernels in a file that Vosti does not know, with Triton's front end: no GPU, no torch.

Reads {"path", "compile", "launches": [{"function", "constants", "types", "words", "rows", "divisible"}]} from standard input and
writes JSON to standard output: the kernels of the file, for each launch an error or a text for each choice of the decorators, and
the statements that could not be executed. With "compile" the text is PTX for `ARCH`, and no decorator is asked.

The file stays as it is. What it imports and is not installed is a `Stub`; a statement that fails (a benchmark, a look at a
device) is left out, and the names that it would bind are stubs. A stub has no truth value, so no branch is taken because of
one, but for questions about devices of other makers: kernels are lowered for CUDA. `triton.jit` is watched, so decorators above it do not hide a kernel. What Triton refuses is an error with its line.
"""
import ast
import contextlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import re
import signal
import sys
import time
import types

os.environ["TRITON_FRONT_END_DEBUGGING"] = "0"
sys.dont_write_bytecode = True


VERSIONS = {"Version", "parse_version"}
OTHER_MAKERS = {"npu", "xpu", "hip", "rocm", "mps", "musa", "mlu", "ascend", "hpu"}


class Stub:
    """Stands for something that is not there. It can be called, indexed, inherited from and passed on, and nothing else."""

    def __init__(self, name):
        self.__dict__["_name"] = name

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Stub(f"{self._name}.{name}")

    def __call__(self, *args, **kwargs):
        # As a decorator it gives the function back.
        if len(args) == 1 and not kwargs and (callable(args[0]) and not isinstance(args[0], Stub)):
            return args[0]
        if len(args) == 1 and not kwargs and isinstance(args[0], str) and self._name.split(".")[-1] in VERSIONS:
            # Files compare versions by a `Version` of a module that is not there.
            return importlib.import_module("packaging.version").Version(args[0])
        return Stub(f"{self._name}()")

    def __mro_entries__(self, bases):
        return ()

    def __getitem__(self, key):
        return Stub(f"{self._name}[]")

    def __bool__(self):
        if OTHER_MAKERS.intersection(self._name.replace("()", "").replace(".", "_").split("_")):
            return False
        raise RuntimeError(f"`{self._name}` is not installed here, so its truth is not known")

    def __iter__(self):
        raise RuntimeError(f"`{self._name}` is not installed here, so its items are not known")

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False


class StubModule(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Stub(f"{self.__name__}.{name}")


class StubLoader(importlib.abc.Loader):
    def create_module(self, spec):
        return StubModule(spec.name)

    def exec_module(self, module):
        pass


class Same(importlib.abc.Loader):
    """A module under another name."""

    def __init__(self, module):
        self.module = module

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__dict__.update({name: value for name, value in vars(self.module).items() if not name.startswith("__")})


SKIPPED = []
# What a launch gives to the compiler and not to the kernel: no TTIR depends on it.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
# Those that a configuration of `triton.autotune` chooses, and what it chooses if it says nothing.
USUAL = {"num_warps": 4, "num_stages": 3}


def bound(node):
    """The names that a statement would bind."""
    for part in ast.walk(node):
        if isinstance(part, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            yield part.name
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
        elif isinstance(part, (ast.Import, ast.ImportFrom)):
            for alias in part.names:
                if alias.name != "*":
                    yield alias.asname or alias.name.split(".")[0]


TRITON = {"triton": "triton", "tl": "triton.language"}

# Seconds after which a statement of the file is left out, if it waits for something or has computed as long.
PATIENCE = 20
BEGUN = 0.0


def too_long(*_):
    # A busy machine gives a statement less.
    if 0.2 < time.process_time() - BEGUN < PATIENCE / 2:
        signal.alarm(PATIENCE)
    else:
        raise TimeoutError(f"it did not end within {PATIENCE} s")


def execute(source, path, names, report):
    """Executes a module statement by statement."""
    global BEGUN
    flags = 0
    signal.signal(signal.SIGALRM, too_long)
    for node in ast.parse(source, path).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            import __future__
            for alias in node.names:
                flags |= getattr(__future__, alias.name).compiler_flag
            continue
        try:
            if report:
                BEGUN = time.process_time()
                signal.alarm(PATIENCE)
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(ast.Module([node], []), path, "exec", flags=flags, dont_inherit=True), names)
        except (Exception, SystemExit) as error:
            if report:
                SKIPPED.append({"line": node.lineno, "why": f"{type(error).__name__}: {error}".splitlines()[0][:300]})
            for name in bound(node):
                names.setdefault(name, Stub(name))
        finally:
            if report:
                signal.alarm(0)
        if isinstance(node, ast.ImportFrom):
            # Packages import Triton by a module of their own, which gives another thing where there is no GPU.
            for alias in node.names:
                if alias.name in ("triton", "tl"):
                    names[alias.asname or alias.name] = importlib.import_module(TRITON[alias.name])


class Beside(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of the package that the file belongs to, executed as the file is."""

    def __init__(self, root):
        self.root = root

    def find_spec(self, name, path=None, target=None):
        base = os.path.join(self.root, *name.split("."))
        for file, package in ((os.path.join(base, "__init__.py"), True), (base + ".py", False)):
            if os.path.isfile(file):
                spec = importlib.machinery.ModuleSpec(name, self, origin=file, is_package=package)
                spec.has_location = True
                if package:
                    spec.submodule_search_locations = [base]
                return spec
        return None

    def exec_module(self, module):
        path = module.__spec__.origin
        module.__file__ = path
        with open(path) as file:
            execute(file.read(), path, module.__dict__, False)


class Missing(importlib.abc.MetaPathFinder):
    """The last finder: a module that nobody has is a stub. Triton's own optional modules stay missing."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("triton", "__main__") or not ACTIVE:
            return None
        if name.split(".")[0] == "packaging":
            # Files compare versions with it, and pip brings it.
            with contextlib.suppress(ImportError):
                module = importlib.import_module("pip._vendor." + name)
                return importlib.machinery.ModuleSpec(name, Same(module), is_package=hasattr(module, "__path__"))
        return importlib.machinery.ModuleSpec(name, StubLoader(), is_package=True)


ACTIVE = False


def place(path):
    """The folder that imports of the file's package start from, and the module's name."""
    folder, name = os.path.dirname(path), os.path.splitext(os.path.basename(path))[0]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.dirname(folder), f"{os.path.basename(folder)}.{name}"
    return folder, name


# The decorators of a kernel that choose constants, by the kernel's id, the outermost last.
RULES = {}


def kernels(path, source):
    """Every function of the file that `triton.jit` was asked to compile, by name."""
    global ACTIVE
    import triton
    from triton.runtime import autotuner
    from triton.runtime import jit as runtime

    def kernel_of(fn):
        while fn is not None and not isinstance(fn, runtime.JITFunction):
            fn = getattr(fn, "fn", None)
        return fn

    def tuned(self, fn, arg_names, configs, key, *args, **kwargs):
        RULES.setdefault(id(kernel_of(fn)), []).append(("autotune", configs, key))
        tune(self, fn, arg_names, configs, key, *args, **kwargs)

    def guessed(self, fn, arg_names, values, *args, **kwargs):
        RULES.setdefault(id(kernel_of(fn)), []).append(("heuristics", values, None))
        guess(self, fn, arg_names, values, *args, **kwargs)

    tune, guess = autotuner.Autotuner.__init__, autotuner.Heuristics.__init__
    autotuner.Autotuner.__init__, autotuner.Heuristics.__init__ = tuned, guessed
    found, original = {}, runtime.JITFunction.__init__

    def noted(self, fn, *args, **kwargs):
        original(self, fn, *args, **kwargs)
        code = getattr(fn, "__code__", None)
        if code and os.path.realpath(code.co_filename) == path:
            found.setdefault(fn.__name__, []).append(self)

    runtime.JITFunction.__init__ = noted
    root, name = place(path)
    sys.meta_path.insert(0, Beside(root))
    sys.meta_path.append(Missing())
    ACTIVE = True
    module = types.ModuleType(name)
    module.__file__ = path
    module.__package__ = name.rpartition(".")[0]
    if module.__package__:
        with contextlib.suppress(Exception):
            importlib.import_module(module.__package__)
    sys.modules[name] = module
    found.clear()
    execute(source, path, module.__dict__, True)
    ACTIVE = False
    # Packages choose a library of device functions for the GPU that is there: for CUDA it is this one.
    libdevice = importlib.import_module("triton.language.extra.libdevice")
    for name, value in list(module.__dict__.items()):
        if isinstance(value, Stub) and isinstance(getattr(libdevice, value._name.split(".")[-1], None), types.FunctionType):
            module.__dict__[name] = getattr(libdevice, value._name.split(".")[-1])
    return found


def line_of(fn):
    return fn.fn.__code__.co_firstlineno


def failure(error, fn):
    """What Triton says of a kernel, and the line of the kernel's own file."""
    from triton.compiler.errors import CompilationError

    line, inner = line_of(fn), error
    if isinstance(error, CompilationError) and getattr(error, "node", None) is not None:
        # Triton counts from `def`, which stands below the decorators.
        above = next((i for i, text in enumerate(fn.raw_src) if text.lstrip().startswith("def ")), 0)
        line = fn.starting_line_number + above + getattr(error.node, "lineno", 1) - 1
    while isinstance(inner.__cause__, Exception):
        inner = inner.__cause__
    said = getattr(inner, "error_message", None) or str(inner) or type(inner).__name__
    said = said.strip().splitlines()[0]
    name = re.search(r"Cannot access global variable (\w+)", said)
    if name and isinstance(fn.fn.__globals__.get(name[1]), Stub):
        said = f"`{name[1]}` comes from what is not installed here"
    return {"error": said[:400], "line": line, "refused": True}


def nowhere(source, function):
    """Why there is no kernel of this name, and the line of a function that has it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            why = next((own["why"] for own in SKIPPED if own["line"] in range(node.lineno, node.end_lineno + 1)), None)
            if why:
                return {"error": f"`{function}` cannot be defined here: {why}", "line": node.lineno}
            return {"error": f"`{function}` is no kernel: no `triton.jit` compiles it", "line": node.lineno}
    return {"error": f"there is no kernel `{function}`", "line": 1}


class NoChoice(Exception):
    """Why a decorator's choice is not known."""


# The most choices of decorators for one kernel.
CHOICES = 24


def sampled_rows():
    """Numbers of rows at which a heuristic is asked."""
    near = {n + by for n in (1 << i for i in range(21)) for by in (-1, 0, 1)}
    return sorted(n for n in near if 1 <= n <= 1 << 20)


def guesses(values, names, constants, fn, launch):
    """What heuristics choose for `names`, for each number of rows: distinct choices, the first first."""
    rows, choices = launch["rows"], []
    for count in sampled_rows() if rows else [1]:
        arguments = {name: Stub(name) for name in fn.arg_names} | constants
        if rows:
            arguments[rows] = count
        choice = {}
        for name in names:
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    value = values[name](arguments)
            except Exception as error:
                said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                raise NoChoice(f"the heuristic of `{name}` cannot be asked here ({said}): give `{name}` in `[constants]` or --launch")
            if not isinstance(value, (bool, int, float, str)):
                raise NoChoice(f"the heuristic of `{name}` gives no constant: give `{name}` in `[constants]` or --launch")
            choice[name] = arguments[name] = value
        if choice not in choices:
            choices.append(choice)
    return choices


def launches(fn, launch):
    """The launches that decorators choose for constants that the contract leaves open: (group, constants). One of a group may be
    taken for one batch and another for another batch."""
    given = dict(launch["constants"])
    open_names = [name for name in fn.arg_names if name not in given and name not in launch["types"]]
    groups = [[given]]
    # The outermost decorator is asked first, and an inner one sees its choice.
    for kind, rule, key in reversed(RULES.get(id(fn), [])):
        if isinstance(rule, Stub) or isinstance(key, Stub):
            needed = [name for name in open_names if (own := fn.params[fn.arg_names.index(name)]).default is own._param.empty]
            if needed:
                what = "a decorator's rule comes from what is not installed here, so its choice is not known"
                raise NoChoice(f"{what}: give `{'`, `'.join(needed)}` in `[constants]` or --launch")
        elif kind == "autotune":
            chosen = []
            for config in rule or []:
                names = [name for name in config.kwargs if name in open_names]
                if names:
                    values = {name: getattr(config, name, None) for name in USUAL if name not in given}
                    options = {name: value for name, value in values.items() if value not in (None, USUAL[name])}
                    chosen.append({name: config.kwargs[name] for name in names} | options)
            if chosen:
                every = [[made | config for made in group] for group in groups for config in chosen]
                # A key with the number of rows makes the choice depend on the batch.
                groups = [sum(every, [])] if launch["rows"] in (key or []) else every
        else:
            names = [name for name in rule if name in open_names]
            if names:
                groups = [[made | choice for made in group for choice in guesses(rule, names, made, fn, launch)] for group in groups]
    unique = [[made for at, made in enumerate(group) if made not in group[:at]] for group in groups]
    total = sum(len(group) for group in unique)
    if total > CHOICES:
        raise NoChoice(f"the decorators have {total} choices for it, and at most {CHOICES} are verified: list launches in the contract or with --launch")
    return [(at, made) for at, group in enumerate(unique) for made in group]


def signature_of(fn, launch):
    """Types, constants and nothing, or an error."""
    signature, constants = {}, {}
    for index, name in enumerate(fn.arg_names):
        if name in launch["constants"]:
            value = launch["constants"][name]
            if isinstance(value, str) and value.startswith("tl."):
                import triton.language as tl
                value = getattr(tl, value[3:], None)
                if not isinstance(value, tl.dtype):
                    what = f"`{launch['constants'][name]}` is no type of triton.language"
                    return None, None, {"error": what, "line": line_of(fn)}
            signature[name], constants[(index,)] = "constexpr", value
        elif name in launch["types"]:
            signature[name] = launch["types"][name]
        else:
            default = fn.params[index].default
            if default is not fn.params[index]._param.empty:
                signature[name], constants[(index,)] = "constexpr", default
                continue
            what = "no value: add it to `[constants]` or --launch" if fn.params[index].is_constexpr else "no role"
            return None, None, {"error": f"parameter `{name}` of `{launch['function']}` has {what}", "line": line_of(fn)}
    for name in [*launch["constants"], *launch["types"]]:
        if name not in fn.arg_names and name not in OPTIONS and name not in launch["words"]:
            return None, None, {"error": f"`{launch['function']}` has no parameter `{name}`", "line": line_of(fn)}
    return signature, constants, None


def lower(fn, launch):
    """The lines of the TTIR module and the Python line of each."""
    import ttir

    signature, constants, wrong = signature_of(fn, launch)
    if wrong:
        return wrong
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            text = ttir.module(fn, signature, constants, {})
    except Exception as error:
        return failure(error, fn)
    lines, python = ttir.split_locations(text, os.path.basename(fn.fn.__code__.co_filename))
    return {"lines": lines, "python": python}


def lowered(fn, launch):
    """The text of each launch that the decorators choose; an error if there is none."""
    try:
        chosen = launches(fn, launch)
    except NoChoice as error:
        return {"error": str(error), "line": line_of(fn)}
    made = []
    for group, constants in chosen:
        own = {name: value for name, value in constants.items() if name not in launch["constants"]}
        text = lower(fn, launch | {"constants": constants})
        made.append({"group": group, "chosen": own, "text": text})
    return {"launches": made}


# The GPU that kernels are compiled for.
ARCH = 90


def compiled(fn, launch):
    """PTX of a launch, as Triton makes it where pointers are aligned to 16 bytes, with products and sums apart: PTX of
    fused ones has several meanings."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    signature, constants, wrong = signature_of(fn, launch)
    if wrong:
        return wrong
    aligned = [name for name, ty in signature.items() if ty.startswith("*") or name in launch["divisible"]]
    attributes = {(fn.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            target = GPUTarget("cuda", ARCH, 32)
            backend = make_backend(target)
            options = {name: launch["constants"][name] for name in OPTIONS if name in launch["constants"]}
            options = backend.parse_options(options | {"enable_fp_fusion": False, "sanitize_overflow": False})
            context = ir.context()
            ir.load_dialects(context)
            backend.load_dialects(context)
            source = ASTSource(fn=fn, signature=signature, constexprs=constants, attrs=attributes)
            module = source.make_ir(target, options, backend.get_codegen_implementation(options),
                                    backend.get_module_map(), context)
            stages, metadata = {}, {}
            backend.add_stages(stages, options, source.language)
            for name in ("ttir", "ttgir", "llir", "ptx"):
                module = stages[name](module, metadata)
    except Exception as error:
        return failure(error, fn)
    parameters = [[name, ty] for name, ty in signature.items() if ty != "constexpr"]
    return {"ptx": module, "shared": metadata["shared"], "threads": 32 * metadata.get("num_warps", options.num_warps),
            "parameters": parameters}


def main():
    request = json.load(sys.stdin)
    # Before Triton is imported, which reads it once.
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1" if request["compile"] else "0"
    import ttir

    if ttir.triton.__version__ != ttir.VERSION:
        return {"error": f"needs Triton {ttir.VERSION}, found {ttir.triton.__version__}"}
    path = os.path.realpath(request["path"])
    with open(path) as file:
        source = file.read()
    try:
        found = kernels(path, source)
    except SyntaxError as error:
        return {"error": f"no Python: {error.msg}", "line": error.lineno or 1}
    except (MemoryError, RecursionError):
        return {"error": "no Python that its parser reads: it is nested too deeply", "line": 1}
    listed = [{"name": name, "line": line_of(fn)} for name, all in found.items() for fn in all]
    texts = []
    for launch in request["launches"]:
        same = found.get(launch["function"], [])
        if len(same) == 1:
            texts.append((compiled if request["compile"] else lowered)(same[0], launch))
        elif same:
            lines = " and ".join(str(line_of(fn)) for fn in same)
            texts.append({"error": f"lines {lines} both define `{launch['function']}`", "line": line_of(same[0])})
        else:
            texts.append(nowhere(source, launch["function"]))
    return {"kernels": listed, "texts": texts, "skipped": SKIPPED}


if __name__ == "__main__":
    # What the file and the programs that it starts print is no part of the answer.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    json.dump(main(), answer)
    answer.close()
