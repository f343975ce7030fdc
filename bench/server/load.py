"""Load on a server: many connections, mixed lengths, clients that leave. Nothing may break, and no answer may depend on the load.

    vosti serve --port 8000 &
    python3 bench/server/load.py http://127.0.0.1:8000 --connections 256 --seconds 600

Needs nothing but Python. Passes (exit code 0) if no request failed except with the 429 of a full queue, every page is free again at
the end, the memory of `--pid` is at the end at most a tenth more than in the first quarter (without `--pid`, or in a run of less than about
40 seconds, it says that the memory was not checked), and each tenth answer has the digest of the same request asked alone afterwards.
"""

import argparse
import asyncio
import collections
import os
import random
import time
import urllib.parse

from client import Connection, Left, Refused, text

#: Fewest samples of the memory, one in five seconds, whose first quarter and end are compared.
SAMPLES_MIN = 8


def question(number, options):
    """Request number `number`: a function of it and the seed. Some share a beginning."""
    draw = random.Random(f"{options.seed}/{number}")
    words = draw.choice([5, 5, 20, 20, 60, 120, 300])
    shared = text(random.Random(f"{options.seed}/{draw.randrange(8)}"), 80) if draw.random() < 0.3 else ""
    return {
        "model": options.model, "prompt": shared + text(draw, words), "max_tokens": draw.choice([4, 8, 16, 32, 64]),
        "temperature": draw.choice([0, 0.7, 1.0]), "seed": number, "stream": draw.random() < 0.5,
    }


class Load:
    def __init__(self, options):
        self.options, self.next, self.counts = options, 0, collections.Counter()
        self.sampled, self.failures, self.memory = [], [], []
        self.end = time.monotonic() + options.seconds

    def connect(self):
        return Connection(self.options.host, self.options.port, self.options.key)

    async def client(self):
        connection = self.connect()
        while time.monotonic() < self.end:
            number, self.next = self.next, self.next + 1
            body = question(number, self.options)
            draw = random.Random(f"client/{self.options.seed}/{number}")
            leaves = draw.random() < self.options.aborts
            try:
                await self.ask(connection, number, body, leaves, draw)
            except Refused as refused:
                if refused.status != 429:
                    self.failures.append(f"request {number}: {refused}")
                self.counts[refused.status] += 1
                await asyncio.sleep(min(refused.retry_after, 5) * draw.random())
            except Left:
                self.counts["left"] += 1
            except (OSError, EOFError, IndexError, ValueError) as error:
                connection.close()
                self.failures.append(f"request {number}: {error!r}")
        connection.close()

    async def ask(self, connection, number, body, leaves, draw):
        if leaves and not body["stream"]:
            # Hangs up while it waits for the whole answer.
            task = asyncio.create_task(connection.call("/v1/completions", body))
            done, _ = await asyncio.wait([task], timeout=draw.uniform(0, 2))
            if not done:
                task.cancel()
                connection.close()
                raise Left
            task.result()
        elif leaves:
            await connection.call("/v1/completions", body, leave_after=draw.randrange(1, 6))
        elif number % 10 == 0:
            answer = await connection.call("/v1/completions", {**body, "stream": False, "vosti_digest": True})
            self.sampled.append((number, digests(answer)))
        else:
            await connection.call("/v1/completions", body)
        self.counts["answered"] += 1

    async def watch(self):
        """The server's memory over time, if it runs on this machine and its process is known."""
        while time.monotonic() < self.end:
            if self.options.pid:
                with open(f"/proc/{self.options.pid}/status") as file:
                    self.memory += [int(line.split()[1]) for line in file if line.startswith("VmRSS")]
            await asyncio.sleep(5)

    async def run(self):
        options = self.options
        connection = self.connect()
        options.model = options.model or (await connection.call("/v1/models"))["data"][0]["id"]
        await asyncio.gather(self.watch(), *(self.client() for _ in range(options.connections)))
        state = await self.idle(connection)
        in_use = state["pages_total"] - state["pages_free"] - state["pages_cached_unused"]
        if in_use or state["running"] or state["waiting"]:
            self.failures.append(f"not empty afterwards: {in_use} pages in use, {state}")
        await self.repeat(connection)
        if len(self.memory) >= SAMPLES_MIN:
            quarter = max(self.memory[: len(self.memory) // 4])
            if self.memory[-1] > 1.1 * quarter:
                self.failures.append(f"memory grew from {quarter} to {self.memory[-1]} kB")
        self.report(state)

    async def idle(self, connection):
        for _ in range(600):
            state = await connection.call("/status")
            if not (state["running"] or state["waiting"]):
                return state
            await asyncio.sleep(0.1)
        return state

    async def repeat(self, connection):
        """The sampled requests again, each alone: as many as there is time for, spread over the whole run."""
        chosen = random.Random(self.options.seed).sample(self.sampled, min(len(self.sampled), self.options.repeat_max))
        for number, digest in chosen:
            body = {**question(number, self.options), "stream": False, "vosti_digest": True}
            again = digests(await connection.call("/v1/completions", body))
            self.counts["repeated"] += 1
            if again != digest:
                self.failures.append(f"request {number} has digest {digest} under load, {again} alone")

    def report(self, state):
        counts = dict(sorted(self.counts.items(), key=str))
        print(f"{self.options.connections} connections, {self.options.seconds} s: {counts}")
        print(f"sampled answers {len(self.sampled)}, of which asked again alone {self.counts['repeated']}")
        hits = state["prefix_hit_tokens"], state["prefix_query_tokens"]
        print(f"engine: {state['tokens']} tokens, {state['aborted']} aborted, {state['preemptions']} preemptions, "
              f"{hits[0]} of {hits[1]} prompt tokens from the cache; pages in use at the end: "
              f"{state['pages_total'] - state['pages_free'] - state['pages_cached_unused']}")
        if not self.options.pid:
            print("memory: NOT CHECKED, because --pid was not given")
        elif len(self.memory) < SAMPLES_MIN:
            print(f"memory: growth NOT CHECKED: {len(self.memory)} samples, and {SAMPLES_MIN} are needed; give more --seconds")
        if self.memory:
            print(f"memory: {self.memory[0] // 1024} MiB at first, {max(self.memory) // 1024} at most, "
                  f"{self.memory[-1] // 1024} at the end")
        for failure in self.failures[:20]:
            print("FAILED", failure)
        if not self.sampled or not self.counts["left"]:
            self.failures.append("too short: no answer was sampled, or nobody left")
            print("FAILED", self.failures[-1])
        print(f"{len(self.failures)} failures" if self.failures else "passed")


def digests(answer):
    return [choice["vosti_receipt"]["digest"] for choice in answer["choices"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--aborts", type=float, default=0.05, help="share of clients that leave early")
    parser.add_argument("--repeat-max", type=int, default=10**9, help="the most sampled requests to ask again, alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pid", type=int, help="the server's process on this machine, to watch its memory")
    parser.add_argument("--model")
    options = parser.parse_args()
    url = urllib.parse.urlparse(options.url)
    options.host, options.port, options.key = url.hostname, url.port or 80, os.environ.get("OPENAI_API_KEY")
    load = Load(options)
    asyncio.run(load.run())
    raise SystemExit(bool(load.failures))


if __name__ == "__main__":
    main()
