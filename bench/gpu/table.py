"""Prints what bench/gpu/run.sh wrote to OUT as tables for docs/performance.md, and names each step that was not run.

    python3 bench/gpu/table.py OUT
"""
import json
import pathlib
import statistics
import sys


def read(folder, name):
    """What a step wrote: one value, or one on each line, of which the last whole one counts."""
    try:
        text = (folder / f"{name}.json").read_text()
    except OSError:
        return None
    for part in [text, *reversed(text.splitlines())]:
        try:
            found = json.loads(part)
        except ValueError:
            continue
        return found if isinstance(found, dict) else None
    return None


def rounds(folder, name):
    """A step that ran once or several times: each case with all its rates and their median, and the highest ceilings."""
    names = sorted(path.stem for path in folder.glob(f"{name}*.json") if path.stem.removeprefix(name).strip("-0123456789") == "")
    found = [one for one in (read(folder, name) for name in names) if one]
    if not found:
        return None
    cases = {}
    for case in (case for one in found for case in one["cases"]):
        of = cases.setdefault(key(case), {**case, "all": []})
        of["all"] += case["all"]
        of["tokens_per_s"] = statistics.median(of["all"])
        of["kernels"] = of.get("kernels") or case.get("kernels")
    most = {name: max((one.get(name) or 0 for one in found)) for name in ("read_bytes_per_s", "dot_flops_per_s")}
    return {**found[0], **most, "cases": list(cases.values())}


def key(case):
    return case["what"], case.get("batch", 1), case["depth"]


def lines(folder, name):
    try:
        return (folder / name).read_text().splitlines()
    except OSError:
        return []


def percent(part, whole):
    return f"{100 * part / whole:.0f}%" if part and whole else "not measured"


def rate(value):
    return f"{value:,.0f}" if value else "not run"


def head(folder, bench):
    machine = [line for line in lines(folder, "machine.txt") if line]
    print("; ".join(machine) or "no machine is named")
    if bench:
        print(f"\n{bench['model']}; {bench['device']}; fingerprint {bench['fingerprint']}")


def steps(folder):
    for line in lines(folder, "steps.txt"):
        name, code, seconds = line.split()
        if code in ("124", "130", "137", "143"):
            print(f"\n`{name}` was stopped after {seconds} s: what is told of it below is what it had found.")
        elif code == "stopped":
            print(f"\n`{name}` began and did not end: the script was stopped.")
        elif code == "no-time":
            print(f"\n`{name}` did not begin: no time was left of the command's.")
        elif code != "0":
            # A check that found something says it in its JSON.
            why = (lines(folder, f"{name}.log") or ["what it found is told below"])[-1]
            print(f"\n`{name}` failed after {seconds} s: {why}")


def relations(check):
    """Prints the verdict of one run of the suite, and what each relation lacks."""
    early = check.get("interrupted") and check["pairs_equal"] == check["pairs"]
    verdict = "passed" if check["passed"] else "**stopped early**" if early else "**FAILED**"
    print(f"\n`vosti check`, profile {check['profile']}: {check['pairs_equal']} of {check['pairs']} pairs equal, {verdict}.")
    for relation in check["relations"]:
        if relation["interrupted"]:
            print(f"- {relation['name']} was stopped after {len(relation['pairs'])} pairs")
        for why in relation["missing"]:
            print(f"- {relation['name']}: {why}")


def right(probe, fp64, laws, checks):
    if probe:
        sound = not any(kernel["differs"] for kernel in probe["kernels"])
        verdict = "all passed" if probe["passed"] else "**stopped early**" if probe.get("interrupted") and sound else "**FAILED**"
        worst = max(kernel["error_max"] for kernel in probe["kernels"])
        cases = min(kernel["cases"] for kernel in probe["kernels"])
        print(f"\nProbes: {len(probe['kernels'])} kernels, at least {cases:,} cases each, {verdict}; largest error against the "
              f"processor {worst:.1e}.")
        for kernel in probe["kernels"]:
            if kernel["differs"]:
                print(f"- {kernel['kernel']}: {kernel['differs']}")
    else:
        print("\nProbes: not run.")
    if fp64:
        untried = ", ".join(fp64.get("kernels_not_compared", []))
        within = all(launch["worst"] <= 1 for launch in fp64["launches"])
        verdict = ("all within" if within else "**NOT within**") + (f" (**NOT compared: {untried}**)" if untried else "")
        compared = [launch for launch in fp64["launches"] if launch["cells"]]
        worst = max(fp64["launches"], key=lambda launch: launch["worst"])
        print(f"\nAgainst FP64: {len(compared)} launches, {verdict} {fp64['unit']}; the worst takes {worst['worst']:.3g} of it "
              f"({worst['kernel']}).")
    else:
        print("\nAgainst FP64: not run.")
    if laws:
        hold = [law for law in laws["laws"] if not law["broken"]]
        early = ", and the others were not watched: it was stopped" if laws.get("interrupted") else ""
        print(f"\nDevice laws: {len(hold)} of {len(laws['laws'])} hold{early}.")
        for law in laws["laws"]:
            for why in filter(None, (law["broken"], law["untried"])):
                print(f"- {law['law']}: {why}")
    else:
        print("\nDevice laws: not run.")
    for check in checks:
        relations(check)
    if not checks:
        print("\n`vosti check`: not run.")


def speed(bench, torch, others):
    if not bench:
        print("\nRates: not run.")
        return
    of = lambda peer: {key(case): case for case in (peer or {}).get("cases", [])}
    peers, others = of(torch), {name: of(peer) for name, peer in others.items()}
    ceiling = (torch or {}).get("dot_flops_per_s") or bench.get("dot_flops_per_s")
    # The faster of two ways to read.
    memory = max(bench["read_bytes_per_s"], (torch or {}).get("read_bytes_per_s", 0))
    matrices = f"{ceiling * 1e-12:,.0f} TFLOP/s" if ceiling else "not measured"
    print(f"\nCeilings: memory {memory * 1e-9:,.0f} GB/s, matrices {matrices}.")
    titles = "".join(f" {name} |" for name in others)
    print(f"\n| tokens/s | Vosti | of ceiling | torch | ratio |{titles}\n| --- | --- | --- | --- | --- |{' --- |' * len(others)}")
    for case in bench["cases"]:
        own, depth, what = case["tokens_per_s"], case["depth"], case["what"]
        peer = peers.get(key(case), {})
        if what == "prefill":
            share, title = percent(own * case["flops_per_token"], ceiling), f"prefill {case['tokens']}"
        else:
            share, title = percent(own * case["bytes_per_token"], memory), f"decode, batch {case['batch']}"
        ratio = f"{own / peer['tokens_per_s']:.2f}" if peer else "-"
        more = "".join(f" {told(other.get(key(case), {}))} |" for other in others.values())
        print(f"| {title}, depth {depth:,} | {rate(own)} | {share} | {told(peer)} | {ratio} |{more}")
    if any("logits_that_differ" in case for case in peers.values()):
        print("\nBehind a peer's rate: how many of a row's logits are not those that the row has alone. Vosti's are proved equal.")


def told(case):
    """A peer's rate, and how many of its logits differ."""
    if "logits_that_differ" not in case:
        return rate(case.get("tokens_per_s"))
    return f"{rate(case['tokens_per_s'])} ({case['logits_that_differ']:,} of {case['logits']:,})"


def kernels(title, measured):
    """Where the time of a few cases goes."""
    for case in (measured or {}).get("cases", []):
        all = sum(kernel["seconds"] for kernel in case.get("kernels") or [])
        if not all:
            continue
        what = f"prefill {case['tokens']}" if case["what"] == "prefill" else f"decode, batch {case['batch']}"
        print(f"\n{title}, {what}, depth {case['depth']:,}: {all * 1e3:,.2f} ms of which")
        for kernel in sorted(case["kernels"], key=lambda kernel: -kernel["seconds"])[:8]:
            print(f"- {100 * kernel['seconds'] / all:.1f}% {kernel['seconds'] * 1e3:,.3f} ms {kernel['name']}")


def copies(descriptors, threads):
    """Prefill with both ways to copy large products' tiles."""
    if not descriptors or not threads:
        print("\nCopies by descriptor and by threads: not compared.")
        return
    others = {key(case): case for case in threads["cases"]}
    print("\n| tokens/s | tiles copied by descriptor | by threads | ratio |\n| --- | --- | --- | --- |")
    for case in descriptors["cases"]:
        own, other = case["tokens_per_s"], others.get(key(case), {}).get("tokens_per_s")
        ratio = f"{own / other:.2f}" if other else "-"
        print(f"| prefill {case['tokens']}, depth {case['depth']:,} | {rate(own)} | {rate(other)} | {ratio} |")
    kernels("By descriptor", descriptors)
    kernels("By threads", threads)


def sampling(ways):
    if not any(ways.values()):
        print("\nSampling: not run.")
        return
    batches = sorted({case["batch"] for way in ways.values() if way for case in way["cases"]})
    print(f"\n| tokens/s | {' | '.join(ways)} |\n| --- |{' --- |' * len(ways)}")
    for batch in batches:
        of = lambda way: next((case["tokens_per_s"] for case in (way or {}).get("cases", []) if case["batch"] == batch), None)
        print(f"| decode, batch {batch} | {' | '.join(rate(of(way)) for way in ways.values())} |")


def agents(played):
    if not played:
        print("\nAgentic trace: not run.")
        return
    mean = lambda all: sum(all) / max(len(all), 1)
    print(f"\nAgentic trace, {played['sessions']} sessions of {played['turns']} turns ({played['prompt']:,} tokens to begin with, "
          f"{played['shared']:,} of them shared and cached, {played['input']} in and {played['output']} out a turn, "
          f"{played['pause_s']} s between): {mean(played['session_s']):.1f} s a session, first token after "
          f"{mean(played['first_token_s']):.2f} s, {played['tokens_per_s']:,.0f} tokens/s.")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    bench, torch = rounds(folder, "bench"), rounds(folder, "torch")
    head(folder, bench)
    steps(folder)
    # One run of all relations, or several of some each.
    checks = [read(folder, path.stem) for path in sorted(folder.glob("check*.json"))]
    right(read(folder, "probe"), read(folder, "fp64"), read(folder, "laws"), [check for check in checks if check])
    # The batch-invariant peers that were compared.
    others = {"torch, no split sums": rounds(folder, "invariant"), "vLLM's Triton kernels": rounds(folder, "triton")}
    speed(bench, torch, {name: peer for name, peer in others.items() if peer})
    if torch:
        print(f"\ntorch is {torch['torch']}: {torch['by']}.")
    else:
        print("\ntorch: not run.")
    copies(rounds(folder, "descriptors"), rounds(folder, "threads"))
    ways = {"greedy": "greedy", "from the 40 largest": "top_k", "drawn": "drawn", "from whole rows": "whole_rows"}
    sampling({way: read(folder, name) for way, name in ways.items()})
    agents(read(folder, "agentic"))
    kernels("Vosti", bench)
    kernels("torch", torch)


main()
