"""Three replicas behind haproxy, vllm-router or Ray Serve, streams of all kinds, and a replica killed every few seconds: every
client's stream must be the one that an undisturbed replica gives.

    cargo build --release && cargo xtask wheel
    python3 -m venv env && env/bin/pip install 'target/wheels/vosti-'*.whl httpx && apt-get install haproxy
    env/bin/python bench/server/replicas.py --seconds 300
    env/bin/pip install vllm-router && env/bin/python bench/server/replicas.py --router --seconds 300
    env/bin/pip install "ray[serve,data]" && env/bin/python bench/server/replicas.py --ray --seconds 300

Asks each of its questions once of an undisturbed replica, then again and again through the balancer, with `vosti.client`, or
through Ray's ingress, while a replica is killed with SIGKILL and started again. Exit code 0 if no stream is lost and every byte of
every stream is the same.
"""
import argparse
import atexit
import collections
import hashlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

import httpx
from vosti import client

ROOT = pathlib.Path(__file__).parents[2]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "deep": {"type": "boolean"},
          "fish": {"type": "array", "maxItems": 3, "items": {"enum": ["cod", "eel", "ray"]}}},
          "required": ["name", "deep", "fish"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}}}
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
KINDS = {
    "greedy": (TEXT, {"temperature": 0}),
    "sampled": (TEXT, {"temperature": 0.9, "top_k": 40}),
    "three choices": (TEXT, {"temperature": 1, "n": 3}),
    "penalties": (TEXT, {"temperature": 0.8, "repetition_penalty": 1.2, "presence_penalty": 0.4, "frequency_penalty": 0.3}),
    "log-probabilities": (CHAT, {"logprobs": True, "top_logprobs": 3}),
    "receipts": (TEXT, {"temperature": 0.7, "vosti_digest": True}),
    "JSON schema": (CHAT, {"response_format": {"type": "json_schema",
                                               "json_schema": {"name": "sea", "strict": True, "schema": SCHEMA}}}),
    "tools": (CHAT, {"tools": [TOOL], "tool_choice": "required"}),
}
# Flags of every replica, in any setting: `--context` is part of the fingerprint.
FLAGS = ["--context", "1024", "--max-queue", "1000"]
SUBJECTS = "the sea, mountains, winter, bread, a clock, the moon, horses, rain, iron, music, maps, glass, salt, tea, wind, night".split(", ")


def question(number):
    """(kind, path, body): 8 kinds of 8 subjects are 64 questions."""
    kind = list(KINDS)[number % len(KINDS)]
    path, own = KINDS[kind]
    subject = SUBJECTS[number // len(KINDS) % len(SUBJECTS)]
    asked = {"prompt": f"A few words about {subject}:"} if path == TEXT else {
        "messages": [{"role": "user", "content": f"Tell me about {subject}."}]}
    return kind, path, {"stream": True, "seed": number, "max_tokens": 48, **asked, **own}


def whole(http, url, path, body):
    """A stream's content by choice, each part joined, without what differs between responses (the id and the time)."""
    choices = collections.defaultdict(lambda: collections.defaultdict(str))
    ended = False
    with http.stream("POST", url + path, json=body) as response:
        if response.status_code != 200:
            response.read()
            raise AssertionError(f"{response.status_code}: {response.text}")
        for line in response.iter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise AssertionError(chunk["error"])
                for part in chunk["choices"]:
                    at = choices[part["index"]]
                    at["text"] += part.get("text") or ""
                    for key, value in (part.get("delta") or {}).items():
                        if key == "tool_calls":
                            value = "".join((call["function"].get("name") or "") + (call["function"].get("arguments") or "")
                                            for call in value)
                        at[key] += value or ""
                    for one in ((part.get("logprobs") or {}).get("content") or []):
                        at["logprobs"] += json.dumps(one)
                    at["receipt"] += (part.get("vosti_receipt") or {}).get("digest", "")
                    at["finish"] += part.get("finish_reason") or ""
    if not ended:
        raise AssertionError("the stream has no end")
    return json.dumps(choices, sort_keys=True)


class Behind:
    """Replicas as processes of this one, behind haproxy or vllm-router. The clients resume."""

    def __init__(self, options):
        self.options, self.processes, self.turn, self.draw = options, {}, 0, random.Random(1)
        self.ports = [options.port + 1 + i for i in range(options.replicas)]
        self.logs = open(os.devnull, "w") if not options.logs else open(options.logs, "a")
        # One client for all questions of `ready`: to make one reads the certificates of the system, which takes 25 ms.
        self.asked = httpx.Client()
        atexit.register(self.stop)
        for port in self.ports:
            self.start(port)
        for port in self.ports:
            self.ready(port)
        self.undisturbed, self.url = f"http://127.0.0.1:{self.ports[0]}", f"http://127.0.0.1:{options.port}"
        self.processes["balancer"] = self.balance()
        self.waits = []

    def balance(self):
        """Starts the balancer."""
        port = str(self.options.port)
        if self.options.router:
            urls = " ".join(f"http://127.0.0.1:{port}" for port in self.ports)
            command = ["bash", str(ROOT / "deploy/vllm-router/run.sh")]
            more = {"REPLICAS": urls, "PORT": port, "PYTHON": sys.executable}
        else:
            command, more = ["haproxy", "-f", str(ROOT / "deploy/haproxy/haproxy.cfg")], {"BIND": f"127.0.0.1:{port}"}
            more.update({f"REPLICA{i + 1}": f"127.0.0.1:{port}" for i, port in enumerate(self.ports)})
        return subprocess.Popen(command, env={**os.environ, **more}, stdout=self.logs, stderr=self.logs)

    def start(self, port):
        flags = ["--port", str(port), "--threads", str(self.options.threads), *FLAGS, *self.options.flags.split()]
        self.processes[port] = subprocess.Popen([self.options.vosti, "serve", *flags], stdout=self.logs, stderr=self.logs)

    def ready(self, port):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                if self.asked.get(f"http://127.0.0.1:{port}/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise SystemExit(f"no replica on port {port}")

    def client(self):
        return client.http(patience=60, on_resume=self.waits.append)

    def kill(self):
        port = self.ports[self.turn] if self.turn < len(self.ports) else self.draw.choice(self.ports)
        self.turn += 1
        # The last replica that is up is not killed: no other could continue its streams.
        for other in self.ports:
            if other != port:
                self.ready(other)
        self.processes[port].kill()
        self.processes[port].wait()
        self.start(port)

    def resumed(self):
        return self.waits

    def stop(self):
        for process in self.processes.values():
            process.kill()


class OnRay:
    """Replicas of a Ray Serve application on this machine. Its ingress resumes streams, and the clients do not notice."""

    def __init__(self, options):
        import ray
        from ray import serve
        from vosti.ray import Options, app
        self.serve, self.options, self.turn, self.draw = serve, options, 0, random.Random(1)
        ray.init(num_cpus=options.replicas * options.threads + 2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        serve.start(http_options={"port": options.port})
        flags = " ".join([*FLAGS, options.flags])
        self.handle = serve.run(app(Options(replicas=options.replicas, cpus=options.threads, flags=flags)))
        self.undisturbed = self.url = f"http://127.0.0.1:{options.port}"

    @staticmethod
    def client():
        return httpx.Client(timeout=600)

    @staticmethod
    def servers():
        """(actor, server) of each replica."""
        pairs = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                command, parent = (folder / "cmdline").read_bytes().split(b"\0"), (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
                title = (pathlib.Path("/proc") / parent / "cmdline").read_bytes()
            except OSError:
                continue
            if b"serve" in command and b"Replica" in title:
                pairs.append((int(parent), int(folder.name)))
        return pairs

    def running(self):
        """Number of replicas that Serve gives requests."""
        return self.serve.status().applications["default"].deployments["Replica"].replica_states.get("RUNNING", 0)

    def kill(self):
        end = time.monotonic() + 120
        while self.running() < self.options.replicas:
            if time.monotonic() > end:
                raise SystemExit("Ray does not start its replicas again")
            time.sleep(0.1)
        # Kills in turn an actor, whose server ends with it, and a server alone.
        os.kill(self.draw.choice(self.servers())[self.turn % 2], signal.SIGKILL)
        self.turn += 1

    def resumed(self):
        return self.handle.resumed.remote().result()

    def stop(self):
        self.serve.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ray", action="store_true", help="through `vosti.ray` instead of haproxy and `vosti.client`")
    parser.add_argument("--router", action="store_true", help="behind vllm-router instead of haproxy")
    parser.add_argument("--vosti", default=str(ROOT / "target/release/vosti"), help="the command (Ray takes the installed one)")
    parser.add_argument("--flags", default="", help="more flags of `vosti serve`")
    parser.add_argument("--replicas", type=int, default=3, choices=[2, 3])
    parser.add_argument("--threads", type=int, default=1, help="threads of a replica")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--every", type=float, default=5, help="seconds between two kills")
    parser.add_argument("--port", type=int, default=8300)
    parser.add_argument("--logs", help="the file to write the replicas' logs to")
    options = parser.parse_args()
    replicas = (OnRay if options.ray else Behind)(options)
    model = httpx.get(replicas.undisturbed + "/v1/models").json()["data"][0]["id"]
    questions = [(kind, path, {"model": model, **body}) for kind, path, body in map(question, range(64))]
    alone = {}

    def undisturbed(numbers):
        with httpx.Client(timeout=600) as http:
            for number in numbers:
                alone[number] = whole(http, replicas.undisturbed, *questions[number][1:])
    together([threading.Thread(target=undisturbed, args=(range(i, 64, 8),)) for i in range(8)])
    digest = hashlib.sha256("".join(alone[number] for number in range(64)).encode()).hexdigest()[:16]
    print(f"undisturbed: {len(alone)} streams of {len(KINDS)} kinds, digest {digest}", flush=True)
    wrong, counts, end = [], collections.Counter(), time.monotonic() + options.seconds

    def ask(worker):
        with replicas.client() as http:
            number = worker
            while time.monotonic() < end:
                kind, path, body = questions[number % 64]
                try:
                    same = whole(http, replicas.url, path, body) == alone[number % 64]
                    if not same:
                        wrong.append(f"{kind} {number % 64} differs")
                except Exception as error:  # Whatever it is, a stream was lost.
                    wrong.append(f"{kind} {number % 64} was lost: {error!r}")
                counts[kind] += 1
                number += 7

    workers = [threading.Thread(target=ask, args=(worker,)) for worker in range(options.clients)]
    for worker in workers:
        worker.start()
    killed = 0
    while time.monotonic() + options.every < end:
        time.sleep(options.every)
        replicas.kill()
        killed += 1
    for worker in workers:
        worker.join()
    waits = sorted(replicas.resumed())
    replicas.stop()
    for line in wrong[:20]:
        print("FAILED", line)
    resumed = f"median {statistics.median(waits):.2f} s, 95% {waits[int(0.95 * len(waits))]:.2f}, longest {waits[-1]:.2f}" if waits else "none"
    print(f"{killed} kills in {options.seconds:g} s; {sum(counts.values())} streams by {options.clients} clients: "
          + ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))
    print(f"{len(waits)} resumed; from the break to the next chunk: {resumed}")
    print(f"{len(wrong)} differ or were lost")
    raise SystemExit(bool(wrong) or not waits)


def together(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
