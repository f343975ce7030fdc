"""Runs lm_eval against a server at concurrency 1, 8 and 64, and on the Python class: all must give one hash.

    python3 -m venv evals && evals/bin/pip install 'lm-eval[api]==0.4.13' torch target/wheels/vosti-*.whl
    vosti serve --port 8000 --context 2048 &
    evals/bin/python bench/server/evaluations.py http://127.0.0.1:8000 [--beside http://127.0.0.1:8080]

Two tasks, of rows that this script writes: a choice among continuations by their log-likelihood, and answers that are generated. The
hash is over every number and text that `lm_eval` got, in the tasks' order. Exit code 0 if all hashes of the first server and of the
class are equal. `--beside` is a llama-server to compare with; its /v1/completions has no log-likelihood of a prompt, so it gets the
second task alone.
"""
import argparse
import hashlib
import json
import pathlib
import sys
import tempfile
import time
import urllib.request

import lm_eval

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gwen", "Hugo"]
THINGS = ["apples", "books", "coins", "drums", "eggs", "flags", "globes", "hats"]
COLOURS = ["red", "green", "blue", "yellow"]


def rows(count):
    """Small sums and small stories; every row differs."""
    for i in range(count):
        name, thing, colour = NAMES[i % 8], THINGS[(i // 8) % 8], COLOURS[(i // 3) % 4]
        a, b = 2 + i % 7, 3 + (i // 7) % 5
        choices = [f" {a + b}", f" {a + b + 1}", f" {a * b + 2}", f" {abs(a - b)}"]
        yield {"q": f"{name} has {a} {colour} {thing} and buys {b} more. Now the number of {thing} is", "choices": choices, "gold": 0,
               "story": f"{name} found a {colour} box of {thing} behind the old house. When it was opened,"}


def tasks(folder, count):
    data = pathlib.Path(folder, "rows.jsonl")
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(count)))
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test"}
    choice = {**common, "task": "vosti_choice", "output_type": "multiple_choice", "doc_to_text": "{{q}}",
              "doc_to_choice": "{{choices}}", "doc_to_target": "{{gold}}",
              "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]}
    story = {**common, "task": "vosti_story", "output_type": "generate_until", "doc_to_text": "{{story}}", "doc_to_target": "{{q}}",
             "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 48, "do_sample": False, "temperature": 0},
             "metric_list": [{"metric": "exact_match"}]}
    return {"choice": choice, "story": story}


def evaluate(model, wanted, arguments=None):
    """Hashes by task, results by task, and the accuracy."""
    begun = time.monotonic()
    found = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=list(wanted), log_samples=True, bootstrap_iters=0)
    hashes, raw = {}, {}
    for task in wanted:
        samples = sorted(found["samples"][task["task"]], key=lambda sample: sample["doc_id"])
        raw[task["task"]] = [sample["resps"] for sample in samples]
        hashes[task["task"]] = hashlib.sha256(json.dumps(raw[task["task"]]).encode()).hexdigest()[:16]
    numbers = found["results"].get("vosti_choice", {})
    return hashes, raw, numbers.get("acc,none"), time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url", help="the URL of `vosti serve`")
    parser.add_argument("--beside", help="the URL of a llama-server, to compare with")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--class-context", type=int, default=2048, help="the server's --context; 0: without the Python class")
    options = parser.parse_args()
    differing = []
    print("| asked | together | choices | stories | accuracy | time |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        both = tasks(folder, options.rows)
        seen = set()

        def told(what, together, wanted, arguments=None, model="local-completions"):
            hashes, raw, accuracy, seconds = evaluate(model, wanted, arguments)
            share = "" if accuracy is None else f"{accuracy:.4f}"
            cells = [what, together, hashes.get("vosti_choice", ""), hashes["vosti_story"], share, f"{seconds:.0f} s"]
            print("|", *[f"{cell} |" for cell in cells], flush=True)
            return hashes, raw

        def arguments(base, together, **more):
            model = json.load(urllib.request.urlopen(base + "/v1/models"))["data"][0]["id"]
            fixed = {"model": model, "base_url": base + "/v1/completions", "max_retries": 3, "timeout": 3600}
            return {**fixed, "num_concurrent": together, **more}

        base = options.url.rstrip("/")
        for together in (1, 8, 64):
            hashes, _ = told("`vosti serve`", together, both.values(), arguments(base, together, tokenizer_backend="remote"))
            seen.add(json.dumps(hashes))
        if options.class_context:
            import vosti.evals
            for together in (1, 64):
                model = vosti.evals.Vosti(max_model_len=options.class_context, max_num_seqs=together)
                hashes, _ = told("`vosti.evals.Vosti`", together, both.values(), model=model)
                seen.add(json.dumps(hashes))
        if len(seen) > 1:
            differing.append(f"{len(seen)} hashes, not one")
        if options.beside:
            base, first = options.beside.rstrip("/"), None
            for together in (1, 8, 64):
                more = arguments(base, together, tokenizer_backend=None, tokenized_requests=False)
                _, raw = told("`llama-server`", together, [both["story"]], more)
                first = first or raw["vosti_story"]
                changed = sum(a != b for a, b in zip(first, raw["vosti_story"]))
                print(f"`llama-server`, {together} together: {changed} of {len(first)} stories are not those of 1", file=sys.stderr)
    for line in differing:
        print("FAILED", line)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
