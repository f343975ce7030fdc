"""Prints the inner loops of NEON's register kernels as the compiler made them, and fails if one is not what it should be.

    rustup target add aarch64-unknown-linux-gnu
    cargo rustc --release -p vosti-simd --lib --target aarch64-unknown-linux-gnu -- --emit asm -C codegen-units=1
    python3 bench/cpu/neon_loop.py target/aarch64-unknown-linux-gnu/release/deps/vosti_simd-*.s

On x86-64 set CC_aarch64_unknown_linux_gnu to a C compiler for AArch64 (Debian: gcc-aarch64-linux-gnu). No AArch64 machine is needed.

A kernel of R rows has 4R vectors of results (16 columns are 4 vectors). A step multiplies and adds each of them twice for BF16, which
comes in pairs, and once for FP32. So the loop must have a multiple of 8R or 4R fused multiply-adds, each into one of 4R registers
that nothing else writes, and a load of 4 vectors of columns a step. It must not store, call, or touch the stack: a loop that moves
a result out of its register does one of them.

    python3 bench/cpu/neon_loop.py --self-test

breaks a loop in each of these ways and fails unless each is noticed.
"""

import collections
import re
import sys

VECTORS = 4
ROWS = range(1, 5)
KERNELS = {"rows_bf16": 2, "rows_f32": 1}  # multiply-adds of one vector in a step
FUNCTION = re.compile(r"(_ZN\S*micro4neon\S*|_R\S*micro4neon\S*):")
BRANCH = re.compile(r"(?:b|b\.\w+|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.\w+)$")
STORE = re.compile(r"st[a-z0-9]*$")


def kernels(lines):
    """The name and the lines of each function of a kernel."""
    name, body = None, []
    for line in lines:
        begun = FUNCTION.match(line)
        if begun:
            name, body = next((kernel for kernel in KERNELS if kernel in begun.group(1)), None), []
        elif line.startswith("\t.size"):
            if name:
                yield name, body
            name = None
        elif name:
            body.append(line.split("//")[0].rstrip())


def loop(body):
    """The instructions of the innermost loop with the most multiply-adds."""
    labels = {line[:-1]: at for at, line in enumerate(body) if re.match(r"\.\w+:$", line)}
    spans = []
    for at, line in enumerate(body):
        jump = BRANCH.match(line.strip())
        begin = labels.get(jump.group(1), at) if jump else at
        if begin < at:
            spans.append((begin, at))
    inner = [span for span in spans if not any(other != span and span[0] <= other[0] and other[1] <= span[1] for other in spans)]
    found = [[line.strip() for line in body[begin:at + 1] if line.startswith("\t") and line[1] != "."] for begin, at in inner]
    return max(found, key=lambda code: sum(line.startswith("fmla") for line in code), default=[])


def operands(line):
    return re.findall(r"[a-z]+\d*(?:\.\w+)?(?:\[\d\])?", line.split(None, 1)[1]) if " " in line or "\t" in line else []


def register(operand):
    """The number of a vector register: v3.4s, q3, d3 and s3 are parts of register 3."""
    match = re.match(r"[vqds](\d+)", operand)
    return match.group(1) if match else None


def wrong(name, code):
    """How many rows a kernel has, by its loop, and why the loop is wrong; empty if it is right."""
    words = collections.Counter(line.split()[0] for line in code)
    results = {register(operands(line)[0]) for line in code if line.startswith("fmla")}
    rows, rest = divmod(len(results), VECTORS)
    why = []
    if rest or rows not in ROWS:
        why.append(f"results are in {len(results)} registers")
    step = max(len(results), 1) * KERNELS[name]
    steps, rest = divmod(words["fmla"], step)
    if rest or not steps:
        why.append(f"{words['fmla']} multiply-adds are no multiple of {step}")
    loaded = sum({"ldr": 1, "ldur": 1, "ldp": 2}.get(line.split()[0], 0) for line in code if re.match(r"ld\w+\s+q", line))
    if loaded != steps * VECTORS:
        why.append(f"{loaded} vectors are loaded in {steps} steps")
    for line in code:
        word, target = line.split()[0], (operands(line) or [""])[0]
        if word != "fmla" and not word.startswith(("cmp", "b", "cb", "tb")) and register(target) in results:
            why.append(f"writes a result: {line}")
        if STORE.match(word) or word in ("bl", "blr") or re.search(r"\bsp\b", line):
            why.append(f"leaves the registers: {line}")
    return rows, why


def report(lines):
    """Prints one line about each kernel's loop; gives the number of kernels that are missing or wrong."""
    seen, bad = collections.Counter(), 0
    for name, body in kernels(lines):
        code = loop(body)
        rows, why = wrong(name, code)
        words = collections.Counter(line.split()[0] for line in code).most_common()
        print(f"{name} of {rows}: " + ", ".join(f"{count} {word}" for word, count in words))
        for line in why:
            print(f"    WRONG: {line}")
        seen[name, rows] += 1
        bad += bool(why)
    missing = [f"{name} of {rows}" for name in KERNELS for rows in ROWS if seen[name, rows] != 1]
    if missing:
        print("WRONG: not there once: " + ", ".join(missing))
    return bad + len(missing)


def self_test():
    code = ["ldp\tq4, q5, [x8]", "ldp\tq6, q7, [x8, #32]", "ldr\ts16, [x9], #4", "add\tx8, x8, #64", "subs\tx10, x10, #1"]
    code += [f"fmla\tv{row}.4s, v{4 + row}.4s, v16.s[0]" for row in range(VECTORS)] + ["b.ne\t.L1"]
    assert wrong("rows_f32", code) == (1, []), wrong("rows_f32", code)
    for broken in (
        code + ["str\tq0, [x3]"],
        code + ["bl\tmemcpy"],
        code + ["ldr\tq9, [sp, #16]"],
        code + ["mov\tv0.16b, v9.16b"],
        [line for line in code if "v3.4s" not in line],
        [line for line in code if "#32" not in line],
        [line.replace("fmla", "fmul") for line in code],
        code + ["fmla\tv0.4s, v4.4s, v16.s[0]"],
    ):
        assert wrong("rows_f32", broken)[1], broken
    body = [".L0:", "\tnop", ".L1:"] + ["\t" + line for line in code] + ["\tcbnz\tx2, .L0"]
    assert loop(body) == code, loop(body)
    print("every broken loop is noticed")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    elif len(sys.argv) != 2:
        sys.exit(__doc__)
    else:
        with open(sys.argv[1]) as assembly:
            sys.exit(1 if report(assembly) else 0)
