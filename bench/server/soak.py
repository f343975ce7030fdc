"""An hour of all kinds of requests at once on a pool that is too small: nothing may break or grow, and no answer may change.

    vosti serve --port 8000 --threads 1 --context 1536 --kv-pages 24 --speculate &
    python3 bench/server/soak.py http://127.0.0.1:8000 --pid $! --seconds 3600 --expect-preemptions --vosti vosti

Needs nothing but Python. Sends streams, several choices, batches of token ids, echoes, log-probabilities, schemas that are new each
time, tools, salts, clients that leave and requests that are wrong, over few connections. Keeps each fifth answer's digest; asks for it
again later beside other requests, and for a sample of them alone at the end; with `--vosti` that program replays a receipt every few
minutes. Fails if a request failed, a digest changed, a page or a descriptor was not freed, or if the process's anonymous memory is
larger at the end than it was in the first quarter (by more than `--growth`); with `--expect-preemptions` also if no answer lost its
pages, no cached block was evicted or no draft was accepted: then the pool was large enough, and nothing was shown.
"""

import argparse
import asyncio
import collections
import json
import os
import random
import re
import tempfile
import time
import urllib.parse

from client import Connection, Left, Refused, text

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def question(number, options):
    """Path and body of request `number`: a function of it and the seed, whenever it is asked."""
    draw = random.Random(f"{options.seed}/{number}")
    kind = draw.choice(["text", "text", "long", "repetitive", "batch", "echo", "chat", "chat", "schema", "tools", "wrong"])
    shared = text(random.Random(f"{options.seed}/shared/{draw.randrange(6)}"), 90) if draw.random() < 0.4 else ""
    words = shared + text(draw, draw.choice([5, 20, 60, 150]))
    body = {
        "model": options.model, "seed": number, "temperature": draw.choice([0, 0.7, 1.0]), "stream": draw.random() < 0.4,
        "max_tokens": draw.choice([4, 16, 32, 64]), "n": draw.choice([1, 1, 1, 2, 3]),
    }
    if draw.random() < 0.3:
        body["cache_salt"] = f"tenant {draw.randrange(3)}"
    if draw.random() < 0.2:
        body |= {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "top_p": 0.9, "top_k": 40}
    if kind in ("chat", "schema", "tools"):
        body["messages"] = [{"role": "user", "content": words}]
        return CHAT, body | special(kind, draw)
    body |= {"prompt": words, "logprobs": draw.choice([None, 0, 5])}
    if kind == "long":
        body |= {"max_tokens": draw.choice([150, 250]), "ignore_eos": True, "n": 1}
    elif kind == "repetitive":
        body |= {"prompt": "one two three four five " * draw.choice([10, 30]), "temperature": 0, "max_tokens": 64}
    elif kind == "batch":
        body["prompt"] = [[draw.randrange(1000, 40000) for _ in range(draw.choice([3, 70]))] for _ in range(3)]
    elif kind == "echo":
        body |= {"echo": True, "logprobs": 2, "prompt_logprobs": 1, "stream": False, "n": 1}
    elif kind == "wrong":
        body |= draw.choice([{"best_of": 2}, {"temperature": -1}, {"prompt": [1] * 10**5}, {"n": 0}, {"nonsense": 1}])
    return TEXT, body


def special(kind, draw):
    """The fields that set a chat's kind: a schema, a tool or log-probabilities. Names are drawn, so that grammars are new."""
    name = f"field_{draw.randrange(10**6)}"
    schema = {"type": "object", "properties": {name: {"type": "integer", "minimum": 0, "maximum": 999}}, "required": [name],
              "additionalProperties": False}
    if kind == "schema":
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    if kind == "tools":
        tool = {"type": "function", "function": {"name": f"call_{name}", "parameters": schema}}
        return {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 64}
    return {"logprobs": True, "top_logprobs": draw.choice([0, 3])}


class Soak:
    def __init__(self, options):
        self.options, self.next, self.counts = options, 0, collections.Counter()
        # Up to 400 digests by number, and the receipt to replay next.
        self.kept, self.receipt, self.failures, self.samples = {}, None, [], []
        self.begin = time.monotonic()
        self.end = self.begin + options.seconds

    def connect(self):
        return Connection(self.options.host, self.options.port, self.options.key)

    def fail(self, what):
        self.failures.append(what)
        print("FAILED", what, flush=True)

    async def client(self, index):
        connection, draw = self.connect(), random.Random(f"{self.options.seed}/client {index}")
        while time.monotonic() < self.end:
            if self.kept and draw.random() < 0.1:
                number = draw.choice(list(self.kept))
            else:
                number, self.next = self.next, self.next + 1
            try:
                await self.ask(connection, number, draw)
            except Left:
                self.counts["left"] += 1
            except (OSError, EOFError, IndexError, KeyError, ValueError, Refused) as error:
                connection.close()
                self.fail(f"request {number}: {error!r}")
        connection.close()

    async def ask(self, connection, number, draw):
        path, body = question(number, self.options)
        wrong = path == TEXT and ({"best_of", "nonsense"} & set(body) or body["temperature"] < 0 or body["n"] == 0
                                  or len(body["prompt"]) == 10**5)
        if wrong:
            try:
                await connection.call(path, body)
                self.fail(f"request {number} is wrong and was answered")
            except Refused as refused:
                if refused.status != 400:
                    raise
                self.counts["refused"] += 1
        elif number in self.kept or number % 5 == 0:
            await self.digest(connection, number)
        elif body["stream"] and draw.random() < 0.2:
            await connection.call(path, body, leave_after=draw.randrange(1, 20))
            self.counts["streamed"] += 1
        elif draw.random() < 0.05:
            await self.hang_up(connection, path, body, draw.uniform(0, 3))
        else:
            await connection.call(path, body)
            self.counts["streamed" if body["stream"] else "whole"] += 1

    async def hang_up(self, connection, path, body, after):
        task = asyncio.create_task(connection.call(path, body))
        if not (await asyncio.wait([task], timeout=after))[0]:
            task.cancel()
            connection.close()
            raise Left
        task.result()

    async def digest(self, connection, number):
        """Asks request `number` for its digest, and compares it with the kept one. A stream's digest is the whole answer's."""
        path, body = question(number, self.options)
        answer = await connection.call(path, body | {"vosti_digest": True})
        events = [event for _, event in answer] if body["stream"] else [answer]
        choices = [choice for event in events for choice in event["choices"] if choice.get("vosti_receipt")]
        choices.sort(key=lambda choice: choice["index"])
        digests = [choice["vosti_receipt"]["digest"] for choice in choices]
        if not digests:
            return self.fail(f"request {number} has no receipt")
        if number in self.kept:
            self.counts["again"] += 1
            if self.kept[number] != digests:
                self.fail(f"request {number} has digests {self.kept[number]}, then {digests}")
            return
        self.counts["digests"] += 1
        self.kept[number], self.receipt = digests, choices[-1]["vosti_receipt"]
        if len(self.kept) > 400:
            del self.kept[random.choice(list(self.kept))]

    async def watch(self):
        """Samples memory, descriptors and the engine's counters every `--every` seconds."""
        while time.monotonic() < self.end:
            # A connection of its own: the server closes one that is silent for a minute.
            connection = self.connect()
            sample = await self.sample(connection)
            connection.close()
            self.samples.append(sample)
            print(json.dumps(sample | {"counts": dict(sorted(self.counts.items()))}), flush=True)
            await asyncio.sleep(min(self.options.every, max(0, self.end - time.monotonic())))

    async def sample(self, connection):
        with open(f"/proc/{self.options.pid}/status") as file:
            anonymous = next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))
        found = re.findall(r"^(?:vllm|vosti):(\w+)\{.*\} (\S+)$", await connection.call("/metrics"), re.M)
        numbers = {name: float(value) for name, value in found}
        wanted = ["num_preemptions", "evictions", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens",
                  "prefix_cache_hits", "generation_tokens", "aborted"]
        return {"minute": round((time.monotonic() - self.begin) / 60, 1), "anonymous_kB": anonymous,
                "descriptors": len(os.listdir(f"/proc/{self.options.pid}/fd")),
                **{name: int(numbers[name + "_total"]) for name in wanted}}

    async def replays(self):
        """Replays receipts of answers under load, each in a process of its own."""
        under_load = False
        while self.options.vosti and time.monotonic() + self.options.replay_every < self.end:
            await asyncio.sleep(self.options.replay_every)
            if not self.receipt:
                continue
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(self.receipt, file)
                file.flush()
                # The context is part of the deployment that the receipt names.
                flags = ["--threads", "1", "--context", str(self.context)] + ["--under-load"] * under_load
                process = await asyncio.create_subprocess_exec(
                    self.options.vosti, "replay", *flags, file.name,
                    stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
                said = (await process.communicate())[0].decode()
            under_load = not under_load
            self.counts["replayed"] += 1
            if process.returncode or "identical" not in said:
                self.fail(f"replay says {said!r}, exit code {process.returncode}")

    async def run(self):
        self.options.model = await self.ready()
        clients = (self.client(index) for index in range(self.options.connections))
        await asyncio.gather(self.watch(), self.replays(), *clients)
        connection = self.connect()
        await self.empties(connection)
        self.samples.append(await self.sample(connection))
        for number in random.Random(self.options.seed).sample(sorted(self.kept), min(len(self.kept), self.options.alone)):
            await self.digest(connection, number)
            self.counts["alone"] += 1
        self.judge()

    async def ready(self):
        """Waits until the model is loaded, and gives its name; remembers its context."""
        for _ in range(600):
            connection = self.connect()
            try:
                model = (await connection.call("/v1/models"))["data"][0]
                self.context = model["max_model_len"]
                return model["id"]
            except (OSError, EOFError, IndexError, Refused):
                await asyncio.sleep(0.2)
            finally:
                connection.close()
        raise SystemExit("the server did not become ready in 2 minutes")

    async def empties(self, connection):
        for _ in range(600):
            state = await connection.call("/status")
            used = state["pages_total"] - state["pages_free"] - state["pages_cached_unused"]
            if not (state["running"] or state["waiting"] or used or state["places_taken"]):
                return
            await asyncio.sleep(0.1)
        self.fail(f"not empty afterwards: {state}")

    def judge(self):
        last, first = self.samples[-1], self.samples[: max(1, len(self.samples) // 4)]
        most = max(sample["anonymous_kB"] for sample in first)
        if last["anonymous_kB"] > most * (1 + self.options.growth):
            self.fail(f"anonymous memory grew from {most} kB in the first quarter to {last['anonymous_kB']} kB")
        if last["descriptors"] > max(sample["descriptors"] for sample in first):
            self.fail(f"{last['descriptors']} open descriptors at the end, more than ever in the first quarter")
        pressure = ["num_preemptions", "evictions", "spec_decode_num_accepted_tokens"]
        for name in pressure if self.options.expect_preemptions else []:
            if not last[name]:
                self.fail(f"{name} is 0: nothing was shown; use fewer --kv-pages, or --speculate")
        print(f"{self.options.connections} connections, {self.options.seconds} s: {dict(sorted(self.counts.items()))}")
        print(f"engine: {({name: last[name] for name in list(last)[3:]})}")
        print(f"anonymous memory: {most} kB at most in the first quarter, {last['anonymous_kB']} kB at the end")
        print(f"{len(self.failures)} failures" if self.failures else "passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--pid", type=int, required=True, help="the server's process, on this machine")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--every", type=float, default=60, help="seconds between two samples of the process")
    parser.add_argument("--growth", type=float, default=0.02, help="share by which memory may grow after the first quarter")
    parser.add_argument("--alone", type=int, default=50, help="how many requests to ask again, alone, at the end")
    parser.add_argument("--vosti", help="the `vosti` command, to replay receipts")
    parser.add_argument("--replay-every", type=float, default=300, help="seconds from one replay to the next")
    parser.add_argument("--expect-preemptions", action="store_true", help="fail if no pages were lost, no block evicted or no draft accepted")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    url = urllib.parse.urlparse(options.url)
    options.host, options.port, options.key = url.hostname, url.port or 80, os.environ.get("OPENAI_API_KEY")
    soak = Soak(options)
    asyncio.run(soak.run())
    raise SystemExit(bool(soak.failures))


if __name__ == "__main__":
    main()
