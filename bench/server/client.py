"""A small HTTP client over asyncio streams, the same for every server: no package, no pool, no retry of its own."""

import asyncio
import json
import time


class Refused(Exception):
    def __init__(self, status, body, retry_after):
        super().__init__(f"{status}: {body[:200]!r}")
        self.status, self.retry_after = status, retry_after


class Left(Exception):
    """The client hung up on purpose."""


class Connection:
    """One connection, kept open between requests, and opened again if it was closed.

    With `patient`, a request is sent again if the server closed a kept connection just as it was sent.
    """

    def __init__(self, host, port, key=None, patient=False):
        self.host, self.port, self.key, self.patient = host, port, key, patient
        self.reader = self.writer = None

    async def _open(self):
        # The server may have closed a connection that was silent for long.
        if self.writer is None or self.writer.is_closing() or self.reader.at_eof():
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)

    def close(self):
        if self.writer is not None:
            self.writer.transport.abort()
        self.writer = None

    async def call(self, path, body=None, leave_after=None):
        """The JSON of an answer with status 200; else raises `Refused`. A stream gives (time, event) pairs; after `leave_after` of them
        the client hangs up, with `Left`."""
        data = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Length: {len(data)}\r\n"
        head += "Content-Type: application/json\r\n" + (f"Authorization: Bearer {self.key}\r\n" if self.key else "") + "\r\n"
        status = int((await self._send(head.encode() + data)).split()[1])
        headers = {}
        while (line := (await self.reader.readline()).strip()):
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        streamed = body is not None and body.get("stream") and status == 200
        events, rest = [], b""
        async for part in self._body(headers):
            rest += part
            if not streamed:
                continue
            *lines, rest = rest.split(b"\n")
            for line in lines:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    events.append((time.monotonic(), json.loads(line[6:])))
                    if leave_after is not None and len(events) >= leave_after:
                        self.close()
                        raise Left
        if headers.get(b"connection", b"").lower() == b"close":
            self.close()
        if status != 200:
            raise Refused(status, rest, int(headers.get(b"retry-after", b"1")))
        return events if streamed else (json.loads(rest) if rest.startswith((b"{", b"[")) else rest.decode())

    async def _send(self, request):
        """Sends the request; gives the answer's first line."""
        kept = self.writer is not None
        await self._open()
        try:
            self.writer.write(request)
            await self.writer.drain()
            line = await self.reader.readline()
        except ConnectionError:
            line = b""
        if not line and kept and self.patient:
            self.close()
            return await self._send(request)
        return line

    async def _body(self, headers):
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            while (size := int((await self.reader.readline()).split(b";")[0], 16)):
                yield await self.reader.readexactly(size)
                await self.reader.readline()
            await self.reader.readline()
        else:
            yield await self.reader.readexactly(int(headers.get(b"content-length", b"0")))


WORDS = ("the a river stone small engine light reads writes of and house seven green moves under over city letter old new "
         "question answer because when people water machine number says that is was garden winter long road to from").split()


def text(random, words):
    return " ".join(random.choice(WORDS) for _ in range(words)).capitalize() + "."
