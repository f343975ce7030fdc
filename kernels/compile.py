"""Compiles checked-in TTIR to machine code with Triton's backend stages: no GPU, no torch, no driver.

    python kernels/compile.py OUT_DIR < request.json

Reads {"arch": 90, "shared_max", "kernels": [{"stem", "ttir", "num_warps", "num_stages", "start"}]}, where shared_max is the
bytes of shared memory that a block may have, ttir the text and start the PTX that its kernel begins with, and writes
OUT_DIR/<stem>.{ttgir,ptx,cubin,sass,log,json}. The stages start at the backend's own TTIR passes, which
`triton.compile` would skip for a text. This script calls ptxas itself, so that its flags are in one place and its
report is kept. No cache is read.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

VERSION = "3.6.0"


def stages_of(backend, options):
    from triton.backends.compiler import Language
    stages = {}
    backend.add_stages(stages, options, Language.TRITON)
    names = list(stages)
    if names != ["ttir", "ttgir", "llir", "ptx", "cubin"]:
        sys.exit(f"compile.py knows other stages than Triton's {names}")
    return stages


def no_packed_floats():
    """Makes LLVM pack no pairs of floats, as it does from sm100 on: the ptxas of Triton 3.6.0 fuses multiplications and
    additions of pairs even with --fmad=false."""
    from triton._C.libtriton import llvm
    translate = llvm.translate_to_asm

    def without(source, triple, processor, features, flags, *rest):
        return translate(source, triple, processor, features, [*flags, "nvptx-no-f32x2"], *rest)
    llvm.translate_to_asm = without


def tool(name, *arguments):
    from triton import knobs
    done = subprocess.run([getattr(knobs.nvidia, name).path, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def without_locations(text):
    """The text without locations, which name a temporary file and so differ from run to run."""
    lines = [line for line in text.splitlines() if not line.startswith("#loc")]
    place = re.compile(r' loc\((?:[^()"]|"[^"]*"|\([^()]*\))*\)')
    return "\n".join(place.sub("", line) for line in lines) + "\n"


def loads_ahead(text, stages):
    """Marks each loop of a text without matrix products, because Triton pipelines such a loop only if it is marked."""
    if stages == 1 or "tt.dot " in text:
        return text
    lines, open_loops = text.splitlines(), []
    for at, line in enumerate(lines):
        margin = line[:len(line) - len(line.lstrip())]
        if " scf.for " in line:
            open_loops.append(margin)
        elif open_loops and line == open_loops[-1] + "}":
            open_loops.pop()
            lines[at] += f" {{tt.num_stages = {stages} : i32}}"
    if open_loops:
        sys.exit("compile.py did not find where a loop ends")
    return "\n".join(lines) + "\n"


def one_after_the_other(text):
    """GPU IR in which a tile that goes to shared memory ahead of its product goes there after the product before it, and waits
    in registers until then. So keys and values use the same bytes, one after the other. Loads stay where they are."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        stored = re.match(r"( +)(%\w+) = ttg\.local_alloc %", lines[at])
        used = stored and next((n for n in range(at + 1, len(lines)) if re.search(stored[2] + r"\b", lines[n])), None)
        beside = used and lines[used].startswith(stored[1] + "%")
        if beside and any(" = tt.dot " in line for line in lines[at:used]):
            lines.insert(used - 1, lines.pop(at))
        else:
            at += 1
    return "\n".join(lines) + "\n"


def fenced(ptx):
    """The text with each `wgmma.fence` directly in front of its product. LLVM may set accumulators between the two, and the fence
    is for what was set before it."""
    between = r"(\twgmma\.fence\.sync\.aligned;\n)((?:\t(?!bra|@)[^\n]*;\n)+)(?=\t// begin inline asm\n\twgmma\.mma_async)"
    return re.sub(between, r"\2\1", ptx)


def rolled(ptx):
    """The text with every loop marked: the assembler unrolls none of them."""
    lines = ptx.rstrip("\0").splitlines()
    labels = {line.split(":")[0]: at for at, line in enumerate(lines) if re.match(r"\$\w+:", line)}
    back = [(at, re.search(r"\bbra(?:\.uni)?\s+(\$\w+);", line)) for at, line in enumerate(lines)]
    heads = {labels[found[1]] for at, found in back if found and labels[found[1]] <= at}
    return "\n".join(line + ('\n\t.pragma "nounroll";' if at in heads else "") for at, line in enumerate(lines)) + "\n"


def unrolled(ptx, sass):
    """Whether the machine code has more multiply-adds than the text: the assembler copied a loop's body."""
    return len(re.findall(r"\b[FD]FMA2?\b", sass)) > len(re.findall(r"\bfma\.rn\.f32\b", ptx))


def beginning_with(start, text):
    """PTX with instructions in front of the kernel's own."""
    lines = text.splitlines(keepends=True)
    firsts = [at for at, line in enumerate(lines) if line.startswith("// %bb.0:")]
    if len(firsts) != 1:
        sys.exit("compile.py did not find where a kernel begins")
    lines.insert(firsts[0] + 1, start)
    return "".join(lines)


def assemble(arch, path, cubin):
    """Assembles at level 3, or at level 1 if level 3 spills registers, and again without unrolled loops if one has
    multiply-adds. Gives the assembler's report, the level, and the disassembled code."""
    name, target = "ptxas_blackwell" if arch >= 100 else "ptxas", target_of(arch)

    def assembled(level):
        log = tool(name, "-v", "--fmad=false", f"-O{level}", f"--gpu-name={target}", path, "-o", cubin)
        return log, level, tool("nvdisasm", "-c", cubin)

    def spills(log):
        return "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" not in log
    found = assembled(3)
    with open(path) as file:
        ptx = file.read()
    if unrolled(ptx, found[2]):
        with open(path, "w") as file:
            file.write(rolled(ptx))
        found = assembled(3)
    return assembled(1) if spills(found[0]) else found


def target_of(arch):
    return f"sm_{arch}a" if arch >= 90 else f"sm_{arch}"


def compile_one(request, arch, shared_max, folder, out):
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    stem = request["stem"]
    backend = make_backend(GPUTarget("cuda", arch, 32))
    options = backend.parse_options({
        "num_warps": request["num_warps"],
        "num_stages": request["num_stages"],
        "enable_fp_fusion": False,
        "sanitize_overflow": False,
    })
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)

    def parsed(text):
        path = os.path.join(folder, "kernel.mlir")
        with open(path, "w") as file:
            file.write(text)
        module = ir.parse_mlir_module(path, context)
        module.context = context
        return module
    stages, metadata = stages_of(backend, options), {}
    module = parsed(loads_ahead(request["ttir"], request["num_stages"]))
    for name in ("ttir", "ttgir"):
        module = stages[name](module, metadata)
    ttgir = str(module)
    module = stages["llir"](module, metadata)
    if metadata["shared"] > shared_max:
        ttgir = one_after_the_other(ttgir)
        module = stages["llir"](parsed(ttgir), metadata)
    ptx = fenced(beginning_with(request["start"], stages["ptx"](module, metadata)))
    for kind, text in (("ttgir", without_locations(ttgir)), ("ptx", ptx)):
        with open(os.path.join(out, f"{stem}.{kind}"), "w") as file:
            file.write(text)
    cubin = os.path.join(out, f"{stem}.cubin")
    log, level, sass = assemble(arch, os.path.join(out, f"{stem}.ptx"), cubin)
    for kind, text in (("log", log), ("sass", sass)):
        with open(os.path.join(out, f"{stem}.{kind}"), "w") as file:
            file.write(text)
    wanted = ("name", "shared", "num_warps", "global_scratch_size", "global_scratch_align", "profile_scratch_size",
              "profile_scratch_align", "tmem_size")
    record = {name: metadata[name] for name in wanted if name in metadata}
    record.setdefault("num_warps", options.num_warps)
    record.update(num_ctas=options.num_ctas, num_stages=options.num_stages, target=target_of(arch),
                  launch_pdl="griddepcontrol.wait" in request["start"],
                  launch_cooperative_grid=options.launch_cooperative_grid,
                  enable_fp_fusion=options.enable_fp_fusion, ptxas_level=level, triton=VERSION)
    with open(os.path.join(out, f"{stem}.json"), "w") as file:
        json.dump(record, file, indent=1, sort_keys=True)


def main():
    # Before Triton is imported, which reads these variables once.
    with tempfile.TemporaryDirectory() as folder:
        for name in [name for name in os.environ if name.startswith(("TRITON_", "LLVM_", "MLIR_", "PTXAS_"))]:
            del os.environ[name]
        os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "cache")
        import triton
        if triton.__version__ != VERSION:
            sys.exit(f"compile.py needs Triton {VERSION}, found {triton.__version__}")
        request = json.load(sys.stdin)
        if request["arch"] >= 100:
            no_packed_floats()
        for kernel in request["kernels"]:
            compile_one(kernel, request["arch"], request["shared_max"], folder, sys.argv[1])


if __name__ == "__main__":
    main()
