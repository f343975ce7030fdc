"""A stream through a proxy that breaks connections, compared with the undisturbed one. Needs `httpx`, and the command in VOSTI_BIN."""
import asyncio
import json
import os
import socket
import subprocess
import threading
import time
import unittest

import httpx
from vosti import client

TALK = [{"role": "user", "content": "Tell me about the sea."}]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "deep": {"type": "boolean"}},
          "required": ["name", "deep"], "additionalProperties": False}
KINDS = [
    ("/v1/completions", {"prompt": "The sea is", "temperature": 0}),
    ("/v1/completions", {"prompt": "The sea is", "temperature": 1, "n": 3, "seed": 5, "logprobs": 2}),
    ("/v1/completions", {"prompt": "1, 2, 3,", "temperature": 0.8, "seed": 6, "presence_penalty": 0.5, "stop": ["9"]}),
    ("/v1/completions", {"prompt": "The sea is", "seed": 9, "vosti_digest": True, "return_token_ids": True}),
    ("/v1/chat/completions", {"messages": TALK, "seed": 7, "logprobs": True, "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {"messages": TALK, "seed": 8, "response_format": {
        "type": "json_schema", "json_schema": {"name": "sea", "strict": True, "schema": SCHEMA}}}),
]


def free_port():
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        return at.getsockname()[1]


class Breaking(threading.Thread):
    """Forwards connections to a server, and resets each after so many bytes of the answer."""

    def __init__(self, port, after):
        super().__init__(daemon=True)
        self.port, self.after, self.broken = port, after, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self):
        while True:
            near, _ = self.listener.accept()
            threading.Thread(target=self.hand_on, args=(near,), daemon=True).start()

    def hand_on(self, near):
        far = socket.create_connection(("127.0.0.1", self.port))
        threading.Thread(target=self.copy, args=(near, far), daemon=True).start()
        sent = 0
        while piece := far.recv(512):
            near.sendall(piece)
            sent += len(piece)
            if sent > self.after:
                # A reset, as when the process was killed; not an orderly end.
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                self.broken += 1
                break
        for end in (near, far):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    @staticmethod
    def copy(near, far):
        try:
            while piece := near.recv(4096):
                far.sendall(piece)
        except OSError:
            pass


def said(chunks):
    """Everything that was sent, joined by choice, without what differs between responses (the id and the time)."""
    choices, usage = {}, None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for part in chunk.get("choices", ()):
            at = choices.setdefault(part["index"], {"parts": [], "end": None})
            receipt = part.get("vosti_receipt")
            if receipt:
                receipt.pop("created")
            at["end"] = part.pop("finish_reason", None) or at["end"]
            at["parts"].append(part)
    if usage:
        usage.pop("prompt_tokens_details", None)
    return choices, usage


class TestClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.port = free_port()
        cls.url = f"http://127.0.0.1:{cls.port}"
        cls.server = subprocess.Popen([os.environ["VOSTI_BIN"], "serve", "--port", str(cls.port), "--context", "512"],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1200):
            try:
                if httpx.get(cls.url + "/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError("the server did not start")

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.wait()

    def stream(self, http, url, path, body):
        with http.stream("POST", url + path, json={"model": "smollm2-135m", "max_tokens": 16, "stream": True, **body}) as response:
            self.assertEqual(response.status_code, 200, response.read() if response.status_code != 200 else "")
            events = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
        self.assertEqual(events.pop(), "[DONE]")
        return [json.loads(event) for event in events]

    def test_a_broken_stream_is_the_undisturbed_one(self):
        for (path, body), after in zip(KINDS, (1000, 6000, 1500, 3000, 2000, 1500)):
            whole = self.stream(httpx.Client(timeout=600), self.url, path, body)
            proxy, waits = Breaking(self.port, after), []
            proxy.start()
            chunks = self.stream(client.http(on_resume=waits.append), proxy.url, path, body)
            self.assertGreater(proxy.broken, 0)
            self.assertTrue(waits)
            self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)
            self.assertEqual(said(chunks), said(whole), (path, body, after))

    def test_an_async_client_resumes_too(self):
        path, body = KINDS[1]
        whole = self.stream(httpx.Client(timeout=600), self.url, path, body)
        proxy = Breaking(self.port, 1500)
        proxy.start()

        async def ask():
            async with client.async_http() as http:
                asked = {"model": "smollm2-135m", "max_tokens": 16, "stream": True, **body}
                async with http.stream("POST", proxy.url + path, json=asked) as response:
                    return [json.loads(line[6:]) async for line in response.aiter_lines() if line.startswith("data: {")]

        self.assertEqual(said(asyncio.run(ask())), said(whole))
        self.assertGreater(proxy.broken, 0)

    def test_a_seed_is_chosen_before_the_first_try(self):
        proxy = Breaking(self.port, 900)
        proxy.start()
        chunks = self.stream(client.http(), proxy.url, "/v1/completions", {"prompt": "The sea is", "temperature": 1})
        self.assertGreater(proxy.broken, 0)
        seed = chunks[0]["vosti_seed"]
        again = self.stream(httpx.Client(timeout=600), self.url, "/v1/completions",
                            {"prompt": "The sea is", "temperature": 1, "seed": seed})
        text = lambda chunks: "".join(part["text"] for chunk in chunks for part in chunk["choices"])
        self.assertEqual(text(chunks), text(again))

    def test_what_is_not_a_stream_passes_through_and_what_is_wrong_is_said(self):
        http = client.http()
        self.assertEqual(http.get(self.url + "/v1/models").status_code, 200)
        body = {"model": "smollm2-135m", "prompt": "x", "max_tokens": 2}
        self.assertIn("choices", http.post(self.url + "/v1/completions", json=body).json())
        wrong = http.post(self.url + "/v1/completions", json={**body, "stream": True, "temperature": -1})
        self.assertEqual(wrong.status_code, 400)
        nobody = f"http://127.0.0.1:{free_port()}/v1/completions"
        with self.assertRaises(client.StreamLost):
            client.http(patience=0.3).post(nobody, json={**body, "stream": True})

    def test_another_fingerprint_ends_the_stream(self):
        answer = client._Answer({"prompt": "x", "stream": True}, 1.0, None)
        answer.take('data: {"id":"a","created":1,"system_fingerprint":"vosti-other","choices":[{"index":0,"text":"y","token_ids":[5]}]}')
        refused = httpx.post(self.url + "/v1/completions", content=answer.content(), headers={"content-type": "application/json"})
        self.assertEqual(refused.status_code, 409)
        with self.assertRaisesRegex(client.ResumeRefused, "vosti-other"):
            answer.answered(refused.status_code, refused.content)


if __name__ == "__main__":
    unittest.main()
