"""Answers a file of prompts on a Ray cluster and prints one hash of all answers, the same however the work is divided.

    pip install 'vosti[ray]'
    python deploy/ray/batch.py prompts.jsonl --actors 4 --out answers

Each line of `prompts.jsonl` is an object with a `prompt` and, if wanted, a `seed`. The hash does not depend on the number of actors,
their threads, the size of the batches or the machines. Without a file, 2,000 prompts are made.
"""
import argparse
import hashlib
import json
import os
import time

import ray

from vosti.ray import Generate

SUBJECTS = "the sea, mountains, winter, bread, a clock, the moon, horses, rain, iron, music".split(", ")


def made(count):
    return [{"prompt": f"{number}. A short note about {SUBJECTS[number % 10]}:", "seed": number} for number in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prompts", nargs="?", help="a file of JSON lines, each with a `prompt`")
    parser.add_argument("--make", type=int, default=2000, help="how many prompts to make, if there is no file")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--actors", type=int, nargs="+", default=[1], help="the number of actors; several numbers: one run for each")
    parser.add_argument("--threads", type=int, default=1, help="threads of an actor")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", help="the folder to write answers to, as Parquet files")
    options = parser.parse_args()
    # Without RAY_ADDRESS Ray starts a cluster on this machine: actors hold their cores, and reading needs one more.
    alone = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": max(options.actors) * options.threads + 1}
    ray.init(logging_level="ERROR", log_to_driver=False, **alone)
    ray.data.DataContext.get_current().enable_progress_bars = False
    hashes = set()
    for actors in options.actors:
        rows = ray.data.read_json(options.prompts) if options.prompts else ray.data.from_items(made(options.make))
        answered = rows.repartition(max(actors * 4, 8)).map_batches(
            Generate, batch_size=options.batch, num_cpus=options.threads, compute=ray.data.ActorPoolStrategy(size=actors),
            fn_constructor_kwargs={"model": options.model, "threads": options.threads, "max_model_len": 512,
                                   "sampling_params": {"temperature": 1, "max_tokens": options.max_tokens}})
        begun = time.monotonic()
        answered = answered.materialize()
        seconds = time.monotonic() - begun
        if options.out:
            answered.write_parquet(options.out)
        # Rows come in any order.
        lines = sorted(json.dumps([row["prompt"], row.get("seed"), row["text"], [int(token) for token in row["token_ids"]],
                                   row["finish_reason"], row["fingerprint"]]) for row in answered.iter_rows())
        tokens = sum(len(json.loads(line)[3]) for line in lines)
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
        hashes.add(digest)
        print(f"{actors} actors of {options.threads} threads: {len(lines)} answers, {tokens} tokens, hash {digest}, {seconds:.1f} s",
              flush=True)
    if len(hashes) > 1:
        raise SystemExit("the answers depend on the number of actors")


if __name__ == "__main__":
    main()
