"""The rate of `LLM.generate` compared with `vosti bench`, and the memory that many prompts take.

    cargo xtask wheel
    python3 -m venv env && env/bin/pip install target/wheels/vosti-*.whl
    env/bin/python bench/python/generate.py rate         # 256 prompts of 64 tokens, answers of 64, in turn with the command
    env/bin/python bench/python/generate.py memory       # 1,000 and 10,000 prompts of 200 tokens

Both sides of `rate` come from the same wheel: the command plays 256 sessions of one turn with the same lengths. `memory` prints how
many bytes a prompt takes while `generate` works on it, besides the caller's list, from the difference of two runs.
"""
import argparse
import json
import multiprocessing
import pathlib
import statistics
import subprocess
import sys
import time

from vosti import LLM, SamplingParams

PROMPTS, TOKENS = 256, 64
SHARED, OWN = 192, 8


def answers(llm, prompts, tokens):
    return llm.generate(prompts, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), use_tqdm=False)


def rate(options):
    llm = LLM(options.model)
    draw = lambda i, turn: [1000 + (7919 * (i + 1) * (j + 1) + 104729 * turn) % 40000 for j in range(TOKENS)]
    trace = f"{PROMPTS},1,{TOKENS},0,0,{TOKENS},0"
    bench = [str(pathlib.Path(sys.executable).with_name("vosti")), "bench", "--json", "--repeat", "1", "--model", options.model, "--agentic", trace]
    ratios = []
    for turn in range(options.rounds):
        start = time.perf_counter()
        outputs = answers(llm, [draw(i, turn) for i in range(PROMPTS)], TOKENS)
        seconds = time.perf_counter() - start
        given = sum(len(output.outputs[0].token_ids) for output in outputs)
        played = json.loads(subprocess.run(bench, check=True, capture_output=True, text=True).stdout)
        command = find(played, "tokens_per_s")
        ratios.append(given / seconds / command)
        print(f"LLM.generate {given / seconds:.0f} tokens/s, vosti bench {command:.0f}, ratio {ratios[-1]:.3f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def find(node, name):
    """The one number of this name in what `vosti bench` printed."""
    if isinstance(node, dict):
        return node[name] if name in node else next(filter(None, (find(value, name) for value in node.values())), None)
    return next(filter(None, (find(value, name) for value in node)), None) if isinstance(node, list) else None


def resident(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))


def peak(model, count, results):
    llm = LLM(model)
    shared = list(range(1000, 1000 + SHARED))
    prompts = [shared + [1000 + (7919 * (i + 1) * (j + 1)) % 40000 for j in range(OWN)] for i in range(count)]
    answers(llm, prompts[:300], 1)
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")
    before, start = resident("VmRSS"), time.perf_counter()
    answers(llm, prompts, 1)
    results.put((resident("VmHWM") - before, time.perf_counter() - start))


def memory(options):
    counts, results = (1_000, 10_000), multiprocessing.get_context("spawn").Queue()
    grown = []
    for count in counts:
        process = multiprocessing.get_context("spawn").Process(target=peak, args=(options.model, count, results))
        process.start()
        grew, seconds = results.get()
        process.join()
        grown.append(grew)
        print(f"{count} prompts of {SHARED + OWN} tokens: {grew / 2**20:.1f} MiB more at the peak, {seconds:.0f} s", flush=True)
    print(f"{(grown[1] - grown[0]) / (counts[1] - counts[0]):.0f} bytes a prompt; its tokens are {4 * (SHARED + OWN)} bytes as 32-bit integers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["rate", "memory"])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    {"rate": rate, "memory": memory}[options.what](options)
