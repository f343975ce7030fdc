"""Runs whole models on the evaluator of `eval.py`: every launch of every step, from the weights and the steps' metadata alone.

    python whole.py FOLDER...

FOLDER holds model.json: {"kernels": [{"ttir": file, "params": [{"name", "elem"}]}],
"buffers": [{"elem", "len", "file": file or null for zeros}], "meta": the number of the buffer of a step's integers,
"launches": [{"kernel", "params": [[buffer, first, last]]}], "logits": the number of their buffer,
"steps": [{"meta": file, "grids": [[x, y, z] for each launch], "logits": file}]}. Files are raw little-endian elements.

Nothing of the engine's arithmetic is read: each number is computed here. Compares each step's logits bit for bit; exits with 1
and the first difference otherwise.
"""
import json
import os
import sys

import numpy as np

import eval as ttir


class Kernel(ttir.Case):
    """One kernel, run without a trace."""

    def __init__(self, path, params):
        self.functions = ttir.parse(path)
        self.elems = {p["name"]: p["elem"] for p in params}
        self.names = [p["name"] for p in params]
        self.lanes = 0

    def follow(self, op, arguments, extra=None):
        value = self.own(op, arguments, extra)
        if value is None:
            raise ttir.Wrong(f"{op} has no definition here")
        self.lanes += value.size
        return value

    def launch(self, memory, grid):
        self.memory, self.case = memory, {"grid": grid}
        self.programs()


def run(folder):
    path = lambda name: os.path.join(folder, name)
    model = json.load(open(path("model.json")))
    kernels = [Kernel(path(k["ttir"]), k["params"]) for k in model["kernels"]]
    stored = lambda b: ttir.STORED[b["elem"]]
    buffers = [np.fromfile(path(b["file"]), stored(b)) if b["file"] else np.zeros(b["len"], stored(b))
               for b in model["buffers"]]
    compared = 0
    for number, step in enumerate(model["steps"]):
        buffers[model["meta"]][:] = np.fromfile(path(step["meta"]), np.int32)
        for launch, grid in zip(model["launches"], step["grids"]):
            kernel = kernels[launch["kernel"]]
            memory = {name: buffers[b][first:last] for name, (b, first, last) in zip(kernel.names, launch["params"])}
            if 0 not in grid:
                kernel.launch(memory, grid)
        want = np.fromfile(path(step["logits"]), np.uint32)
        got = buffers[model["logits"]][:want.size]
        if not np.array_equal(want, got):
            at = int(np.flatnonzero(want != got)[0])
            raise ttir.Wrong(f"step {number}: logit {at} is {want[at]:#x}, should be {got[at]:#x}")
        # A step in the middle of a prompt has no logits.
        if want.size and (not np.all(np.isfinite(want.view(np.float32))) or np.unique(want).size < 2):
            raise ttir.Wrong(f"step {number}: logits that say nothing")
        compared += want.size
    print(f"{folder}: {compared} logits of {len(model['steps'])} steps equal bit for bit, "
          f"{sum(k.lanes for k in kernels)} lanes of dots, reductions and exponentials computed")


def main():
    for folder in sys.argv[1:]:
        try:
            run(folder)
        except ttir.Wrong as error:
            print(f"{folder}: {error}")
            sys.exit(1)


if __name__ == "__main__":
    main()
