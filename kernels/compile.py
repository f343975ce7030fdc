"""Compiles checked-in TTIR to machine code with Triton's backend stages: no GPU, no torch, no driver.

    python kernels/compile.py OUT_DIR < request.json

Reads {"arch": 90, "shared_max", "kernels": [{"stem", "ttir", "num_warps", "num_stages", "descriptors", "start"}]}, where
shared_max is the bytes of shared memory that a block may have, ttir the text, descriptors whether its tiles are copied by
descriptor, and start the PTX that its kernel begins with, and writes OUT_DIR/<stem>.{ttgir,ptx,cubin,sass,log,json}. The
stages start at the backend's own TTIR passes, which `triton.compile` would skip for a text. This script calls ptxas itself,
so that its flags are in one place and its report is kept. No cache is read.
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


def by_descriptors(stem, text):
    """The text with each tile that its loop loads through a block pointer copied by a descriptor (TMA) instead, and the places
    of the parameters that so become descriptors. Such a parameter is a matrix of BF16 numbers, row-major and without gaps, and a
    tile moves along its rows from column 0 by the loop's own variable. A tile that has the rows across is loaded upright and
    transposed. A tile that begins at a later row of the parameter has that many rows added to its place, so beyond its own last
    row it has numbers of the next rows, where the text has zeros; beyond the parameter's last row and column both have zeros."""
    def need(found, what):
        if not found:
            sys.exit(f"compile.py cannot copy the tiles of {stem} by descriptors: {what}")
        return found
    lines = text.splitlines()
    head = need([at for at, line in enumerate(lines) if line.startswith("  tt.func public @")], "it has no kernel")[0]
    end = lines.index("  }", head)
    loops = [at for at in range(head, end) if " scf.for " in lines[at] and "!tt.ptr<tensor<" in lines[at]]
    need(len(loops) == 1, "it has not one loop with block pointers")
    loop = loops[0]
    last = lines.index(re.match(" *", lines[loop])[0] + "}", loop)
    form = r"( *)(%\w+)(?::\d+)? = scf\.for (%\w+) = (%\w+) to (%\w+) step (%\w+) iter_args\((.*)\) -> \((.*)\)  : i32 \{"
    margin, result, turn, low, high, step, carried, types = need(re.fullmatch(form, lines[loop]), "its loop").groups()
    carried = [pair.split(" = ") for pair in carried.split(", ")]
    types, yielded = types.split(", "), re.fullmatch(r" *scf\.yield (.*) : .*", lines[last - 1])
    yielded = need(yielded, "its loop's end")[1].split(", ")
    defined = [re.fullmatch(r" *(%\w+) = (.*)", line) for line in lines[head:last]]
    defined = {found[1]: found[2] for found in defined if found}

    def origin(value):
        cast = re.match(r"arith\.(?:extsi|bitcast) (%\w+) ", defined.get(value, ""))
        return origin(cast[1]) if cast else value

    def constant(value):
        number = re.fullmatch(r"arith\.constant (\d+) : i\d+", defined.get(origin(value), ""))
        return int(number[1]) if number else None

    def uses(value, first=head, behind=end):
        return [at for at in range(first, behind) if re.search(re.escape(value) + r"(?![\w])", lines[at])]
    signature = re.search(r"\((.*)\) attributes", lines[head])[1].split(", ")
    names, tiles, gone, places = [param.split(":")[0] for param in signature], {}, set(), []
    moved = [n for n, ty in enumerate(types) if ty.startswith("!tt.ptr<tensor<")]
    for n in moved:
        pointer, begins = carried[n]
        made = r"tt\.make_tensor_ptr (%\w+), \[(.*)\], \[(.*)\], \[(.*)\] \{.*\} : <tensor<(\d+)x(\d+)xbf16>>"
        base, extents, strides, offsets, *tile = need(re.fullmatch(made, defined.get(begins, "")), defined.get(begins, begins)).groups()
        extents, strides, offsets = (part.split(", ") for part in (extents, strides, offsets))
        along = need([axis for axis in (0, 1) if constant(strides[axis]) == 1], f"{begins} has no rows")[0]
        row, width = offsets[1 - along], origin(extents[along])
        need(origin(strides[1 - along]) == width, f"the rows of {begins} have gaps")
        need([constant(offsets[along]), constant(low)] == [0, 0], f"{begins} does not begin at column 0")
        gone |= {uses(begins)[0]}
        if base not in names:
            begin = need(re.fullmatch(r"tt\.addptr (%\w+), (%\w+) : .*", defined.get(base, "")), f"{base} is no parameter")
            skipped = re.fullmatch(r"arith\.muli (%\w+), (%\w+) : i64", defined.get(begin[2], ""))
            need(skipped and origin(skipped[2]) == width, f"{base} is not the beginning of a row")
            places.append(f"{margin}{pointer}_row = arith.addi {origin(skipped[1])}, {row} : i32")
            gone |= {uses(base)[0]}
            base, row = begin[1], f"{pointer}_row"
        rows, columns = tile[1 - along], tile[along]
        need(base in names and tiles.setdefault(base, (rows, columns)) == (rows, columns), f"{base} has two tiles")
        read = [at for at in uses(pointer, loop + 1, last) if " = tt.load " in lines[at]]
        moves = [at for at in uses(pointer, loop + 1, last) if " = tt.advance " in lines[at]]
        need(len(read) == len(moves) == 1 and len(uses(pointer, loop + 1, last)) == 2, f"{pointer} has other uses")
        load = r" *(%\w+) = tt\.load %\w+ \{boundaryCheck = array<i32: 0, 1>, padding = 1 : i32\} : .*"
        value = need(re.fullmatch(load, lines[read[0]]), lines[read[0]])[1]
        move = need(re.fullmatch(r" *(%\w+) = tt\.advance %\w+, \[(%\w+), (%\w+)\] : .*", lines[moves[0]]), lines[moves[0]])
        by = [constant(move[2 + along]), constant(move[3 - along])]
        need(by == [constant(step), 0] and yielded[n] == move[1], f"{pointer} moves otherwise")
        need(not uses(f"{result}#{n}", last), f"{result}#{n} is used")
        gone |= {moves[0]}
        ty = f"tensor<{rows}x{columns}xbf16>"
        upright = value if along == 1 else f"{value}_rows"
        lines[read[0]] = f"{margin}  {upright} = tt.descriptor_load {base}[{row}, {turn}] : !tt.tensordesc<{ty}> -> {ty}"
        if along == 0:
            across = f"tensor<{columns}x{rows}xbf16>"
            lines[read[0]] += f"\n{margin}  {value} = tt.trans {upright} {{order = array<i32: 1, 0>}} : {ty} -> {across}"
    for name in tiles:
        at = names.index(name)
        need(signature[at] == f"{name}: !tt.ptr<bf16> {{tt.divisibility = 16 : i32}}", signature[at])
        signature[at] = f"{name}: !tt.tensordesc<tensor<{'x'.join(tiles[name])}xbf16>>"
        read = {line for line in uses(name, head + 1) if f"tt.descriptor_load {name}[" in lines[line]}
        need(set(uses(name, head + 1)) <= gone | read, f"{name} is used otherwise")
    stay = [n for n in range(len(types)) if n not in moved]
    arguments = ", ".join(" = ".join(carried[n]) for n in stay)
    kept = ", ".join(types[n] for n in stay)
    several = f":{len(stay)}" if len(stay) > 1 else ""
    lines[head] = re.sub(r"\(.*\) attributes", lambda _: f"({', '.join(signature)}) attributes", lines[head])
    lines[loop] = "\n".join(places + [f"{margin}{result}{several} = scf.for {turn} = {low} to {high} step {step} "
                                      f"iter_args({arguments}) -> ({kept})  : i32 {{"])
    lines[last - 1] = f"{margin}  scf.yield {', '.join(yielded[n] for n in stay)} : {kept}"
    for at in range(last, end):
        number = {n: f"{result}#{place}" if several else result for place, n in enumerate(stay)}
        lines[at] = re.sub(re.escape(result) + r"#(\d+)", lambda found: number[int(found[1])], lines[at])
    text = "\n".join(line for at, line in enumerate(lines) if at not in gone) + "\n"
    return text, sorted(names.index(name) for name in tiles)


def record_of(params, metadata):
    """The descriptors of a kernel as its launcher has to make them, by what the compiler decided."""
    swizzles, bf16 = {0: 0, 1: 32, 2: 64, 3: 128}, 10
    decided = metadata.get("tensordesc_meta") or []
    if len(decided) != len(params) or any(one["elem_type"] != bf16 or one["fp4_padded"] for one in decided):
        sys.exit(f"compile.py does not know these descriptors: {decided}")
    return [{"param": param, "tile": list(one["block_size"]), "elem": one["elem_size"], "swizzle": swizzles[one["swizzle"]]}
            for param, one in zip(params, decided)]


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


def seen_by_products(ptx):
    """The text with a proxy fence behind each wait for copies, where matrix products read shared memory by themselves. They do so
    by the asynchronous proxy, and `cp.async` writes by the generic one, so the PTX ISA wants it; Triton 3.6.0 has it for stores only."""
    if not re.search(r"\b(wgmma\.mma_async|tcgen05\.mma)\b", ptx):
        return ptx
    return re.sub(r"(\tcp\.async\.wait_group\s+\d+;\n)", r"\1\tfence.proxy.async.shared::cta;\n", ptx)


def seen_by_copies(ptx):
    """The text with a proxy fence behind the read of what `tcgen05.alloc` wrote to shared memory, where copies by descriptor write there
    later: they do so by the asynchronous proxy, and both of these are of the generic one. Triton 3.6.0 has only a barrier between."""
    if "cp.async.bulk" not in ptx:
        return ptx
    allocated = r"(tcgen05\.alloc\.[^;]*;\n\t// end inline asm\n\tbar\.sync \t0;\n\tld\.shared\.b32 [^;]*;\n)"
    return re.sub(allocated, r"\1\tfence.proxy.async.shared::cta;\n", ptx)


def placed(ptx):
    """The text with the state space of each `mbarrier` that a `tcgen05.commit` arrives at. Without it the PTX ISA takes the address for a
    generic one, and it is one of shared memory."""
    return re.sub(r"(tcgen05\.commit\.\S*arrive::one)(\.b64)", r"\1.shared::cluster\2", ptx)


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
    text, params = by_descriptors(stem, request["ttir"]) if request["descriptors"] else (request["ttir"], [])
    module = parsed(loads_ahead(text, request["num_stages"]))
    for name in ("ttir", "ttgir"):
        module = stages[name](module, metadata)
    ttgir = str(module)
    module = stages["llir"](module, metadata)
    if metadata["shared"] > shared_max:
        ttgir = one_after_the_other(ttgir)
        module = stages["llir"](parsed(ttgir), metadata)
    ptx = beginning_with(request["start"], stages["ptx"](module, metadata))
    for rewrite in (fenced, seen_by_products, seen_by_copies, placed):
        ptx = rewrite(ptx)
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
    record.update(descriptors=record_of(params, metadata), num_ctas=options.num_ctas, num_stages=options.num_stages, target=target_of(arch),
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
