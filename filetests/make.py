"""Writes the TTIR of kernels beside their sources, with Triton's front end: no GPU, no torch.

    python filetests/make.py FILE.py ...

The kernels of this folder get theirs from `cargo xtask filetests`, which runs this script and keeps all texts in `texts.ttir`;
docs/add-a-kernel.md says how to add one, right or broken.

A file has its constants and the role of each parameter in its contract comment. A line `#: types: x = i64` makes the
TTIR with another element type than the contract's, which is then the test's mistake. The TTIR's header has the hashes of the
files that it was made from (all that were executed or read, other than installed packages) and of its own text; the verifier
refuses a TTIR beside other files.
"""
import hashlib
import importlib.util
import os
import sys
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "kernels"))
import ttir  # noqa: E402


def contract(path):
    lines = open(path).read().split("# /// contract\n")[1].split("# ///\n")[0].splitlines()
    return tomllib.loads("\n".join(line.removeprefix("#").strip() for line in lines))


def element(role, act):
    types = {"f32": "fp32", "i8": "i8", "i32": "i32"}
    if role.split()[-1] in types:
        return types[role.split()[-1]]
    word = role.split()[0]
    if word in ("entry", "state"):
        return "fp32"
    return act if word in ("in", "out", "weight", "cache_k", "cache_v") else "i32"


def types(path):
    """Element types of the TTIR that differ from the contract's."""
    notes = [line.removeprefix("#: types: ") for line in open(path) if line.startswith("#: types: ")]
    return dict(tuple(part.strip().split(" = ")) for note in notes for part in note.split(","))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def render(path):
    name = os.path.basename(path)
    spec = importlib.util.spec_from_file_location("case", path)
    module = importlib.util.module_from_spec(spec)
    written = contract(path)
    kinds = {"dim": "i32", "number": "fp32"}
    scalars = {param: kinds[role.split()[0]] for param, role in written["params"].items() if role.split()[0] in kinds}
    scalars |= {param: kind for param, kind in types(path).items() if param in scalars}
    pointers = {param: element(role, "bf16") for param, role in written["params"].items()} | types(path)
    constants = written.get("constants", {})
    with ttir.reading() as files:
        spec.loader.exec_module(module)
        text = ttir.lower(module.kernel, constants, pointers, scalars)
    lines, python = ttir.split_locations(text, name)
    table, previous = [], None
    for number, line in enumerate(python, 1):
        if line != previous:
            table.append(f"{number}={line or '-'}")
            previous = line
    header = ["// made by `python filetests/make.py`; do not edit"]
    header += [f"// made-from sha256 {sha256(open(file, 'rb').read())} {os.path.relpath(os.path.realpath(file), os.path.realpath(os.path.dirname(path) or '.'))}"
               for file in [path] + sorted(files - {os.path.realpath(path)})]
    header.append("// module sha256 " + sha256("".join(line + "\n" for line in lines).encode()))
    footer = ["// python lines, `module line=python line` from there on: " + " ".join(table)]
    with open(os.path.splitext(path)[0] + ".ttir", "w") as file:
        file.write("\n".join(header + lines + footer) + "\n")


if __name__ == "__main__":
    for path in sys.argv[1:]:
        render(path)
