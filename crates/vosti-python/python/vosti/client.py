"""Streams that survive their server: an `httpx` transport that resumes an answer on another replica.

    import openai, vosti.client
    client = openai.OpenAI(base_url="http://balancer:8080/v1", api_key="none", http_client=vosti.client.http())
    for chunk in client.chat.completions.create(model="smollm2-135m", messages=[...], stream=True):
        ...

Any client over `httpx` can use it. If the connection of a streamed request to `/v1/completions` or `/v1/chat/completions` breaks,
the transport sends the request again to the same balancer, with `vosti_resume` and the tokens so far, and hands on the rest.
The caller sees one stream, byte for byte what one server would have sent. Other requests pass through unchanged.

The module needs `httpx` (`pip install vosti[client]`). It decides nothing about tokens: the server checks the tokens that it gets.
"""
from __future__ import annotations

import asyncio
import json
import secrets
import time
from typing import Any, AsyncIterator, Callable, Dict, Iterator, Optional

import httpx

PATHS = ("/completions",)  # `/v1/completions` and `/v1/chat/completions`
#: Statuses of a balancer without a server, and of a server that starts, drains or is full: the request is sent again.
RETRIED = (429, 502, 503, 504)
WAIT_FIRST, WAIT_MAX = 0.05, 1.0
#: A function that is called with the seconds from a break to the first new chunk.
OnResume = Optional[Callable[[float], None]]


class ResumeRefused(Exception):
    """No server can continue this stream: another fingerprint (409), or an answer that the request cannot have given (400)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class StreamLost(httpx.TransportError):
    """The stream broke, and no server continued it in time."""


def http(*, patience: float = 60.0, on_resume: OnResume = None, **kwargs: Any) -> httpx.Client:
    """An `httpx.Client` whose streams resume. `patience`: seconds without a new chunk, over all servers, until it gives up."""
    return httpx.Client(transport=Transport(patience=patience, on_resume=on_resume), **{"timeout": 600.0, **kwargs})


def async_http(*, patience: float = 60.0, on_resume: OnResume = None, **kwargs: Any) -> httpx.AsyncClient:
    """The same for `openai.AsyncOpenAI` and others."""
    return httpx.AsyncClient(transport=AsyncTransport(patience=patience, on_resume=on_resume), **{"timeout": 600.0, **kwargs})


class _Answer:
    """The state of one request: the answer so far, and the next request to send. It does no input or output."""

    def __init__(self, body: Dict[str, Any], patience: float, on_resume: OnResume) -> None:
        self.hide_tokens = not body.get("return_token_ids")
        # A seed of its own makes the answer a function of the request, so that the request can be repeated.
        self.body = {"seed": secrets.randbelow(1 << 31), **{k: v for k, v in body.items() if (k, v) != ("seed", None)},
                     "return_token_ids": True}
        self.patience, self.on_resume = patience, on_resume
        self.choices: Dict[int, Dict[str, Any]] = {}
        self.first: Dict[str, Any] = {}
        self.done = False
        self.broke_at: Optional[float] = None
        self.wait, self.last = 0.0, time.monotonic()

    def content(self) -> bytes:
        body = dict(self.body)
        if self.first:
            choices = [self.choices[index] for index in sorted(self.choices)]
            body["vosti_resume"] = {"fingerprint": self.first["system_fingerprint"], "choices": choices}
        return json.dumps(body).encode()

    def take(self, line: str) -> bytes:
        """The line for the caller, for a line of the server."""
        if not line.startswith("data:"):
            return b""
        data = line[5:].strip()
        if data == "[DONE]":
            self.done = True
            return b"data: [DONE]\n\n"
        chunk = json.loads(data)
        if "error" in chunk:
            self.done = True
            return f"data: {data}\n\n".encode()
        if self.broke_at is not None:
            if self.on_resume:
                self.on_resume(time.monotonic() - self.broke_at)
            self.broke_at = None
        self.wait, self.last = 0.0, time.monotonic()
        self.first = self.first or {key: chunk.get(key) for key in ("id", "created", "system_fingerprint")}
        chunk.update({key: self.first[key] for key in ("id", "created") if key in chunk})
        for part in chunk.get("choices", ()):
            at = self.choices.setdefault(part["index"], {"index": part["index"], "token_ids": [], "finished": False})
            at["token_ids"] += part.get("token_ids") or []
            at["finished"] = at["finished"] or part.get("finish_reason") is not None
            if self.hide_tokens:
                part.pop("token_ids", None)
                part.pop("prompt_token_ids", None)
        if self.hide_tokens:
            chunk.pop("prompt_token_ids", None)
        return f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n".encode()

    def broke(self, why: object) -> float:
        """Seconds to wait before the next try. Raises StreamLost if the patience is used up."""
        now = time.monotonic()
        if self.broke_at is None:
            self.broke_at = now
        if now - self.last > self.patience:
            raise StreamLost(f"no server continued the stream within {self.patience:g} s; the last error: {why}")
        wait, self.wait = self.wait, min(max(2 * self.wait, WAIT_FIRST), WAIT_MAX)
        return wait

    def answered(self, status: int, content: bytes) -> None:
        """Raises ResumeRefused for a response that is not a stream, unless the request can be sent again."""
        if status in RETRIED:
            return
        try:
            message = json.loads(content)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = content.decode(errors="replace")
        raise ResumeRefused(status, message)


def _answer(request: httpx.Request, content: bytes, patience: float, on_resume: OnResume) -> Optional[_Answer]:
    """The state of a streamed completion; None for any other request."""
    if request.method != "POST" or not request.url.path.endswith(PATHS):
        return None
    try:
        body = json.loads(content)
    except ValueError:
        return None
    streams = isinstance(body, dict) and body.get("stream") is True and "vosti_resume" not in body
    return _Answer(body, patience, on_resume) if streams else None


def _again(request: httpx.Request, answer: _Answer) -> httpx.Request:
    dropped = ("content-length", "transfer-encoding", "accept-encoding")
    headers = [(name, value) for name, value in request.headers.raw if name.decode().lower() not in dropped]
    return httpx.Request(request.method, request.url, headers=headers, content=answer.content(), extensions=request.extensions)


def _streams(response: httpx.Response) -> bool:
    return response.status_code == 200 and response.headers.get("content-type", "").startswith("text/event-stream")


class _Lines:
    """Splits bytes that arrive in pieces into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, piece: bytes) -> Iterator[str]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return (line.rstrip(b"\r").decode() for line in lines)


class Transport(httpx.BaseTransport):
    """Resumes streams; `inner` sends the requests."""

    def __init__(self, inner: Optional[httpx.BaseTransport] = None, *, patience: float = 60.0, on_resume: OnResume = None) -> None:
        self._inner = inner or httpx.HTTPTransport()
        self._patience, self._on_resume = patience, on_resume

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = _answer(request, request.read(), self._patience, self._on_resume)
        if answer is None:
            return self._inner.handle_request(request)
        response = self._begin(request, answer)
        if not _streams(response):
            return response
        return httpx.Response(200, headers=response.headers, stream=_Stream(self, request, answer, response))

    def _begin(self, request: httpx.Request, answer: _Answer) -> httpx.Response:
        while True:
            try:
                response = self._inner.handle_request(_again(request, answer))
                if response.status_code not in RETRIED:
                    return response
                wait = answer.broke(f"status {response.status_code}")
                response.close()
            except httpx.TransportError as error:
                wait = answer.broke(error)
            time.sleep(wait)

    def close(self) -> None:
        self._inner.close()


class _Stream(httpx.SyncByteStream):
    def __init__(self, transport: Transport, request: httpx.Request, answer: _Answer, response: httpx.Response) -> None:
        self._transport, self._request, self._answer, self._response = transport, request, answer, response

    def __iter__(self) -> Iterator[bytes]:
        answer = self._answer
        while not answer.done:
            lines = _Lines()
            why: object = "it ended without [DONE]"
            try:
                for piece in self._response.stream:
                    out = b"".join(answer.take(line) for line in lines.of(piece))
                    if out:
                        yield out
            except httpx.TransportError as error:
                why = error
            self._response.close()
            if not answer.done:
                time.sleep(answer.broke(why))
                self._response = self._transport._begin(self._request, answer)
                if not _streams(self._response):
                    answer.answered(self._response.status_code, self._response.read())

    def close(self) -> None:
        self._response.close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """Resumes streams; `inner` sends the requests."""

    def __init__(self, inner: Optional[httpx.AsyncBaseTransport] = None, *, patience: float = 60.0,
                 on_resume: OnResume = None) -> None:
        self._inner = inner or httpx.AsyncHTTPTransport()
        self._patience, self._on_resume = patience, on_resume

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = _answer(request, await request.aread(), self._patience, self._on_resume)
        if answer is None:
            return await self._inner.handle_async_request(request)
        response = await self._begin(request, answer)
        if not _streams(response):
            return response
        return httpx.Response(200, headers=response.headers, stream=_AsyncStream(self, request, answer, response))

    async def _begin(self, request: httpx.Request, answer: _Answer) -> httpx.Response:
        while True:
            try:
                response = await self._inner.handle_async_request(_again(request, answer))
                if response.status_code not in RETRIED:
                    return response
                wait = answer.broke(f"status {response.status_code}")
                await response.aclose()
            except httpx.TransportError as error:
                wait = answer.broke(error)
            await asyncio.sleep(wait)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(self, transport: AsyncTransport, request: httpx.Request, answer: _Answer, response: httpx.Response) -> None:
        self._transport, self._request, self._answer, self._response = transport, request, answer, response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        answer = self._answer
        while not answer.done:
            lines = _Lines()
            why: object = "it ended without [DONE]"
            try:
                async for piece in self._response.stream:
                    out = b"".join(answer.take(line) for line in lines.of(piece))
                    if out:
                        yield out
            except httpx.TransportError as error:
                why = error
            await self._response.aclose()
            if not answer.done:
                await asyncio.sleep(answer.broke(why))
                self._response = await self._transport._begin(self._request, answer)
                if not _streams(self._response):
                    answer.answered(self._response.status_code, await self._response.aread())

    async def aclose(self) -> None:
        await self._response.aclose()
