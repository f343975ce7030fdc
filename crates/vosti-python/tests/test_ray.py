"""A Ray Serve application on this machine, and streams whose replica is killed. Needs `httpx` and, on Linux, `ray`."""
import asyncio
import importlib.util
import json
import os
import signal
import sys
import threading
import time
import types
import unittest
from pathlib import Path

import httpx

from test_client import KINDS, free_port, said

RAY = importlib.util.find_spec("ray") is not None
if RAY:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray import serve
    from vosti.ray import Options, Replica, _Replicas, app

REPLICAS = 2


@unittest.skipUnless(RAY and sys.platform == "linux", "needs Linux and Ray")
class TestRay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ray.init(num_cpus=REPLICAS + 2, object_store_memory=80 << 20, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        port = free_port()
        serve.start(http_options={"port": port})
        cls.url = f"http://127.0.0.1:{port}"
        cls.handle = serve.run(app(Options(model="smollm2-135m", replicas=REPLICAS, flags="--context 512")))

    @classmethod
    def tearDownClass(cls):
        serve.shutdown()
        ray.shutdown()

    def ask(self, path, body, begun=lambda: None):
        """The chunks of a stream. `begun` is called after the first."""
        body = {"model": "smollm2-135m", "max_tokens": 48, "stream": True, "seed": 1, **body}
        chunks = []
        with httpx.stream("POST", self.url + path, json=body, timeout=600) as response:
            for line in response.iter_lines():
                if line == "data: [DONE]":
                    return chunks
                if line.startswith("data: "):
                    chunks.append(json.loads(line[6:]))
                    if len(chunks) == 1:
                        begun()
        raise AssertionError("the stream has no end")

    def all_run(self):
        """Waits until Serve gives requests to every replica."""
        end = time.monotonic() + 300
        while serve.status().applications["default"].deployments["Replica"].replica_states.get("RUNNING", 0) < REPLICAS:
            self.assertLess(time.monotonic(), end, "Ray does not start its replicas again")
            time.sleep(0.1)

    @staticmethod
    def servers():
        """(server, actor) of each replica: process ids."""
        parents = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass  # It has ended.

        def is_server(process):
            try:
                return b"serve" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            except OSError:
                return False
        # Ray's node is a child of this process, an actor a child of the node.
        return [(process, actor) for process, actor in parents.items()
                if parents.get(parents.get(actor)) == os.getpid() and is_server(process)]

    def killed(self, name, whole):
        """How many streams went on after one replica's server or actor was killed. All must be as `whole`."""
        self.all_run()
        before, answers = len(self.handle.resumed.remote().result()), [None] * len(KINDS)
        all_begun = threading.Barrier(len(KINDS) + 1, timeout=300)

        def ask(number):
            answers[number] = said(self.ask(*KINDS[number], begun=all_begun.wait))
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(KINDS))]
        for thread in threads:
            thread.start()
        all_begun.wait()
        server, actor = self.servers()[0]
        os.kill(server if name == "server" else actor, signal.SIGKILL)
        for thread in threads:
            thread.join()
        self.assertEqual(answers, whole, name)
        return len(self.handle.resumed.remote().result()) - before

    def test_streams_of_a_killed_replica_are_the_undisturbed_ones(self):
        whole = [said(self.ask(*kind)) for kind in KINDS]
        for name in ("server", "actor"):
            # On a busy machine a replica may have ended its streams before it is killed.
            self.assertTrue(any(self.killed(name, whole) > 0 for _ in range(5)), name)

    def test_what_is_not_a_stream_passes_through_and_what_is_wrong_is_said(self):
        body = {"model": "smollm2-135m", "prompt": "x", "max_tokens": 2}
        models = httpx.get(self.url + "/v1/models", headers=[(b"x-name", "Zo\u00eb".encode("latin-1"))])
        self.assertEqual(models.json()["data"][0]["id"], "smollm2-135m")
        self.assertIn("choices", httpx.post(self.url + "/v1/completions", json=body, timeout=600).json())
        wrong = httpx.post(self.url + "/v1/completions", json={**body, "stream": True, "temperature": -1})
        self.assertEqual(wrong.status_code, 400)
        self.assertIn("temperature", wrong.json()["error"]["message"])
        self.assertEqual(httpx.get(self.url + "/nothing?here=1").status_code, 404)


class Leases:
    """In place of a handle to replicas: leases of one that is not an actor, at a server of the test."""

    def __init__(self, url):
        self.replica, self.take = types.SimpleNamespace(_host="127.0.0.1", _url=url), Replica.func_or_class.lease
        self.lease, self.open = self, 0

    def options(self, stream):
        return self

    def remote(self, resumes):
        first, leased = asyncio.Queue(), self.take(self.replica, resumes)

        async def run():
            self.open += 1
            async for pair in leased:
                first.put_nowait(pair)
            self.open -= 1
        self.task = asyncio.ensure_future(run())
        return types.SimpleNamespace(__anext__=first.get)


@unittest.skipUnless(RAY, "needs Ray")
class TestLease(unittest.TestCase):
    def test_a_request_counts_until_its_answer_is_closed(self):
        async def answers(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
            await reader.read()
            writer.close()

        async def ask():
            server = await asyncio.start_server(answers, "127.0.0.1", 0)
            leases = Leases(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            response = await _Replicas(leases).handle_async_request(httpx.Request("GET", "http://any/"))
            self.assertEqual(await response.stream.__aiter__().__anext__(), b"data: 1\n\n")
            await asyncio.sleep(0.2)
            self.assertEqual(leases.open, 1)
            await response.aclose()
            await asyncio.wait_for(leases.task, 10)
            self.assertEqual(leases.open, 0)
            # No server: the request does not count any more.
            leases.replica._url = f"http://127.0.0.1:{free_port()}"
            refused = None
            try:
                await _Replicas(leases).handle_async_request(httpx.Request("GET", "http://any/"))
            except httpx.ConnectError as error:
                refused = error  # Whose traceback keeps the connection: nothing else closes it.
            await asyncio.wait_for(leases.task, 10)
            self.assertIsNotNone(refused)
            server.close()

        asyncio.run(ask())


if __name__ == "__main__":
    unittest.main()
