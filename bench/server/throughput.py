"""Tokens per second of several servers, in turn, with one client and one workload.

    python3 bench/server/throughput.py --rounds 3 \\
        ours='target/release/vosti serve --port {port}' \\
        bf16='llama-server -m smollm2-bf16.gguf --parallel {clients} --ctx-size 65536 --port {port}' \\
        file='llama-server -m smollm2.gguf --parallel {clients} --ctx-size 65536 --port {port}'

Needs nothing but Python. Each server is started by its command, asked for `--requests` completions over `--clients`
connections at a time, and stopped; then the next; `--rounds` times over. Prompts differ in length and are new in every
round, so that no cache has them. Answers are `--tokens` tokens each, end-of-text ignored. Prints the median and the spread of
generated tokens per second, and every server's ratio to the others.
"""

import argparse
import asyncio
import json
import os
import random
import shlex
import signal
import socket
import statistics
import subprocess
import time

from client import Connection, Refused, text


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


async def ready(connection, process):
    while process.poll() is None:
        try:
            await connection.call("/health")
            answer = await connection.call("/v1/models")
            await connection.call("/v1/completions", {"model": answer["data"][0]["id"], "prompt": "Hello", "max_tokens": 2})
            return answer["data"][0]["id"]
        except (OSError, Refused, EOFError, IndexError):
            connection.close()
            await asyncio.sleep(0.2)
    raise SystemExit(f"the server ended with {process.returncode} before it was ready")


async def measure(port, process, options, turn):
    """Sends requests as fast as they are answered; gives (seconds, generated tokens, seconds to each first token)."""
    connection = Connection("127.0.0.1", port, patient=True)
    model = await ready(connection, process)
    draw = random.Random(f"{options.seed}/{turn}")
    questions = [text(draw, draw.choice([10, 30, 60, 120, 240])) for _ in range(options.requests)]
    todo, generated, firsts = iter(questions), 0, []

    async def client():
        nonlocal generated
        mine = Connection("127.0.0.1", port, patient=True)
        for prompt in todo:
            body = {"model": model, "prompt": prompt, "max_tokens": options.tokens, "temperature": 0, "ignore_eos": True,
                    "stream": True, "stream_options": {"include_usage": True}}
            asked = time.monotonic()
            events = await mine.call("/v1/completions", body)
            firsts.append(events[0][0] - asked)
            generated += next(event["usage"]["completion_tokens"] for _, event in reversed(events) if event.get("usage"))
        mine.close()

    start = time.monotonic()
    await asyncio.gather(*(client() for _ in range(options.clients)))
    return time.monotonic() - start, generated, firsts


def turn(name, command, number, options):
    port = free_port()
    arguments = shlex.split(command.format(port=port, clients=options.clients))
    with open(os.devnull, "w") as null:
        process = subprocess.Popen(arguments, stdout=null, stderr=null)
    try:
        seconds, generated, firsts = asyncio.run(measure(port, process, options, number))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
    rate, first = generated / seconds, statistics.median(firsts)
    print(f"{name:>8}  round {number + 1}  {rate:8.1f} tokens/s  first token after {first:6.2f} s (median)", flush=True)
    return {"name": name, "rate": rate, "first": first, "generated": generated, "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("servers", nargs="+", metavar="NAME=COMMAND", help="{port} and {clients} are filled in")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    servers = dict(server.split("=", 1) for server in options.servers)
    turns = [turn(name, command, number, options) for number in range(options.rounds) for name, command in servers.items()]
    rates = {name: [t["rate"] for t in turns if t["name"] == name] for name in servers}
    print(f"\n{options.clients} clients, {options.requests} requests of {options.tokens} tokens, {options.rounds} rounds")
    for name, of in rates.items():
        ratios = ", ".join(f"{statistics.median(of) / statistics.median(other):.2f} of {o}" for o, other in rates.items() if o != name)
        print(f"{name:>8}  {statistics.median(of):8.1f} tokens/s (from {min(of):.1f} to {max(of):.1f})  {ratios}")
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"options": {k: v for k, v in vars(options).items()}, "turns": turns}, out, indent=1)


if __name__ == "__main__":
    main()
