"""Writes the TTIR of every file test beside its source, with Triton's front end: no GPU, no torch.

    python filetests/make.py [pass/linear.py ...]

A file test carries its constants and the role of each parameter in its contract comment; `[lowered]` there
has constants of the TTIR that are not the contract's: a mistake of its own.
"""
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
    if role.endswith(" f32"):
        return "fp32"
    word = role.split()[0]
    return act if word in ("in", "out", "weight", "cache_k", "cache_v") else "i32"


def render(path):
    name = os.path.basename(path)
    spec = importlib.util.spec_from_file_location("case", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = contract(path)
    pointers = {param: element(role, "bf16") for param, role in written["params"].items()}
    constants = written["constants"] | written.get("lowered", {})
    lines, python = ttir.split_locations(ttir.lower(module.kernel, constants, pointers), name)
    table, previous = [], None
    for number, line in enumerate(python, 1):
        if line != previous:
            table.append(f"{number}={line or '-'}")
            previous = line
    header = ["// made by `python filetests/make.py`; do not edit"]
    footer = ["// python lines, `module line=python line` from there on: " + " ".join(table)]
    with open(os.path.splitext(path)[0] + ".ttir", "w") as file:
        file.write("\n".join(header + lines + footer) + "\n")


def main():
    paths = sys.argv[1:]
    for folder in ("pass", "broken", "pairs"):
        if not sys.argv[1:]:
            paths += sorted(os.path.join(HERE, folder, f) for f in os.listdir(os.path.join(HERE, folder)) if f.endswith(".py"))
    for path in paths:
        render(path)


if __name__ == "__main__":
    main()
