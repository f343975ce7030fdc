"""Vosti on a Ray cluster: replicas of `vosti serve` behind one address, and an actor for batches.

    serve run vosti.ray:app model=smollm2-135m replicas=3

runs a Ray Serve application with every path of `vosti serve`. If a replica dies, another replica continues its streamed
completions, byte for byte; a request of any other kind is sent again if its answer has not begun.

    ray.data.read_json("prompts.jsonl").map_batches(vosti.ray.Generate, fn_constructor_kwargs={"model": "smollm2-135m"},
                                                    compute=ray.data.ActorPoolStrategy(size=4), batch_size=64)

answers the column `prompt`. The answers do not depend on the number of actors.

The module needs `pip install vosti[ray]`, with Ray 2.60 or newer.
"""
from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, AsyncIterator, Deque, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import httpx
from pydantic import BaseModel, ConfigDict
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from ray.util import get_node_ip_address, metrics
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

from . import client

#: Headers of one connection, which are not handed on (RFC 9110, 7.6.1), and those that the next hop sets itself.
HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-authorization", "proxy-authenticate",
       "host", "content-length"}
#: Headers of an answer that Serve's own proxy sets.
PROXY = {"date", "server", "x-request-id"}
LISTENS = re.compile(r"listening +(http://\S+)")
#: Seconds for a connection within the cluster.
CONNECT = 5.0
#: Options of a socket that notices within 30 seconds that the other machine has vanished.
KEEPALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
KEEPALIVE += [(socket.IPPROTO_TCP, getattr(socket, name), value)
              for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)) if hasattr(socket, name)]


class Options(BaseModel):
    """The arguments of `vosti.ray:app`."""

    model_config = ConfigDict(extra="forbid")

    #: The model, as `vosti serve --model` takes it.
    model: Optional[str] = None
    #: Number of replicas; with `min_replicas`, the largest number.
    replicas: int = 1
    min_replicas: Optional[int] = None
    #: With `min_replicas`: requests of a replica at the same time, above which Serve adds replicas.
    target_ongoing_requests: float = 16
    #: Cores of a replica.
    cpus: int = 1
    #: More flags of `vosti serve`.
    flags: str = ""
    #: Seconds without a new part of a stream, over all replicas, until it is given up.
    patience: float = 60


def app(options: Options) -> serve.Application:
    """The application: `serve run vosti.ray:app model=... replicas=...`, or `import_path` and `args` of a config file."""
    many: Dict[str, Any] = {"num_replicas": options.replicas}
    if options.min_replicas is not None:
        many = {"autoscaling_config": {"min_replicas": options.min_replicas, "max_replicas": options.replicas,
                                       "target_ongoing_requests": options.target_ongoing_requests}}
    flags = shlex.split(options.flags)
    if options.model is not None:
        flags += ["--model", options.model]
    replica = Replica.options(ray_actor_options={"num_cpus": options.cpus}, **many)
    return Ingress.bind(replica.bind(["--threads", str(options.cpus), *flags]), options.patience)


class Router(RequestRouter):
    """The less busy of two replicas, as Serve's own router chooses, but any replica for a stream that broke.

    The streams of one dead replica come at once, and computing what each has so far is most of their work. The least busy replica, often
    one that has just started, would get all of them.
    """

    async def choose_replicas(self, candidate_replicas: List[RunningReplica],
                              pending_request: Optional[PendingRequest] = None) -> List[List[RunningReplica]]:
        resumes = pending_request is not None and pending_request.kwargs["resumes"]
        return [random.sample(candidate_replicas, min(1 if resumes else 2, len(candidate_replicas)))]


@serve.deployment(max_ongoing_requests=1000, health_check_period_s=1, health_check_timeout_s=10, graceful_shutdown_timeout_s=60,
                  request_router_config=RequestRouterConfig(request_router_class=Router))
class Replica:
    """One `vosti serve` in a process of its own, which ends with its actor."""

    def __init__(self, flags: Sequence[str]) -> None:
        beside = Path(sys.executable).parent / "vosti"
        command = str(beside) if beside.exists() else shutil.which("vosti")
        if command is None:
            raise RuntimeError("no `vosti` command: the wheel installs it beside Python")
        self._host = get_node_ip_address()
        self._said = tempfile.NamedTemporaryFile("r", prefix="vosti-replica-", suffix=".log")
        with open(self._said.name, "w") as said:
            self._process = subprocess.Popen([command, "serve", "--host", self._host, "--port", "0", *flags], stdout=said,
                                             stderr=said, preexec_fn=_dies_with_parent)
        self._url = self._address()
        threading.Thread(target=_end_with, args=(self._process, self._said), daemon=True).start()

    def _address(self) -> str:
        """Waits until the server is ready."""
        with httpx.Client() as http:  # One for all questions: to make one reads the certificates of the system.
            while True:
                ended = self._process.poll() is not None
                self._said.seek(0)
                found = LISTENS.search(self._said.read())
                if found:
                    try:
                        if http.get(found[1] + "/ready").status_code == 200:
                            return found[1]
                    except httpx.TransportError:
                        pass
                if ended:
                    raise RuntimeError(f"`vosti serve` ended: {self._last_words()}")
                time.sleep(0.05)

    def _last_words(self) -> str:
        self._said.seek(0)
        return self._said.read()[-2000:].strip()

    async def lease(self, resumes: bool) -> AsyncIterator[Tuple[str, int]]:
        """The server's address, and a port: Serve counts a request while a connection to the port is open. `resumes` is for the router."""
        loop = asyncio.get_running_loop()
        with socket.create_server((self._host, 0), family=socket.AF_INET6 if ":" in self._host else socket.AF_INET) as port:
            port.setblocking(False)
            yield self._url, port.getsockname()[1]
            try:
                held, _ = await asyncio.wait_for(loop.sock_accept(port), 2 * CONNECT)
            except asyncio.TimeoutError:
                return  # The caller has died.
        with held:
            held.setblocking(False)
            for option in KEEPALIVE:
                held.setsockopt(*option)
            with contextlib.suppress(OSError):  # The caller's machine vanished, or the connection was reset.
                await loop.sock_recv(held, 1)

    async def check_health(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"`vosti serve` ended: {self._last_words()}")

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            process.terminate()


@serve.deployment(max_ongoing_requests=10_000)
class Ingress:
    """Every path of `vosti serve`, at any replica."""

    def __init__(self, replica: serve.handle.DeploymentHandle, patience: float) -> None:
        self._transport = client.AsyncTransport(_Replicas(replica), patience=patience, on_resume=self._resumes)
        self._patience = patience
        self._waits: Deque[float] = collections.deque(maxlen=10_000)
        self._seconds = metrics.Histogram("vosti_resume_seconds", "From a stream's break to its next part, from another replica.",
                                          boundaries=[0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60])

    async def __call__(self, request: Request):
        body = await request.body()
        target = "http://vosti" + request.url.path + (f"?{request.url.query}" if request.url.query else "")
        try:
            response = await self._first(httpx.Request(request.method, target, headers=request.headers.raw, content=body))
        except httpx.TransportError as error:
            return JSONResponse({"error": {"message": f"no replica answers: {error}", "type": "server_error", "code": None}}, 503)
        kept = {name: value for name, value in response.headers.items() if name not in HOP | PROXY}
        return StreamingResponse(_pieces(response), response.status_code, kept)

    async def resumed(self) -> List[float]:
        """For each stream that another replica continued: seconds from the break to the next part."""
        return list(self._waits)

    def _resumes(self, seconds: float) -> None:
        self._waits.append(seconds)
        self._seconds.observe(seconds)

    async def _first(self, request: httpx.Request) -> httpx.Response:
        """The beginning of an answer. Nothing was handed on yet, so on an error the request is sent to another replica."""
        end, wait = time.monotonic() + self._patience, client.WAIT_FIRST
        while True:
            try:
                return await self._transport.handle_async_request(request)
            except httpx.TransportError:
                if time.monotonic() + wait > end:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, client.WAIT_MAX)


class _Replicas(httpx.AsyncBaseTransport):
    """Sends a request to the server of a replica that Serve chooses. A replica that dies is a broken connection.

    An answer does not pass through Ray, which would handle each part of it in two processes.
    """

    def __init__(self, replica: serve.handle.DeploymentHandle) -> None:
        self._lease = replica.options(stream=True).lease
        self._http = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None), socket_options=KEEPALIVE)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        lease = self._lease.remote(resumes=b'"vosti_resume"' in body)
        try:
            address, port = await lease.__anext__()
            url = httpx.URL(address)
            _, held = await asyncio.wait_for(asyncio.open_connection(url.host, port), CONNECT)
        except (RayError, StopAsyncIteration, OSError, asyncio.TimeoutError) as error:
            raise httpx.ConnectError(_line(error)) from error
        try:
            sent = httpx.Request(request.method, url.copy_with(raw_path=request.url.raw_path), content=body,
                                 headers=_kept(request.headers), extensions={"timeout": {"connect": CONNECT}})
            response = await self._http.handle_async_request(sent)
        except BaseException:
            held.close()
            raise
        return httpx.Response(response.status_code, headers=_kept(response.headers), stream=_Leased(response.stream, held, lease))


class _Leased(httpx.AsyncByteStream):
    def __init__(self, stream: Any, held: asyncio.StreamWriter, lease: serve.handle.DeploymentResponseGenerator) -> None:
        self._stream, self._held, self._lease = stream, held, lease

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        self._held.close()
        await self._stream.aclose()


def _kept(headers: httpx.Headers) -> List[Tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers.raw if name.decode().lower() not in HOP]


async def _pieces(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in response.stream:
            yield piece
    finally:
        await response.aclose()


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _end_with(server: subprocess.Popen, said: IO[str]) -> None:
    """Ends the actor when its server crashes. Serve would send it requests until three health checks have failed."""
    if server.wait() != 0:
        said.seek(0)
        print(f"`vosti serve` ended: {said.read()[-2000:].strip()}", file=sys.stderr, flush=True)
        os._exit(1)


def _dies_with_parent() -> None:
    """On Linux, killing an actor also kills its server."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Generate:
    """For `map_batches`: answers a column, and adds `text`, `token_ids`, `finish_reason`, `seed` and `fingerprint`.

    The column has texts, or arrays of token ids. `sampling_params` are for all rows; a column `seed`, if there is one, has each row's
    seed. Without either each row draws its own. The engine is in the actor's process.
    """

    def __init__(self, model: str, sampling_params: Union[None, Mapping[str, Any], Any] = None, column: str = "prompt",
                 **llm: Any) -> None:
        from . import LLM, SamplingParams

        self._llm = LLM(model, **llm)
        self._column = column
        if sampling_params is None:
            sampling_params = self._llm.get_default_sampling_params()
        self._params = SamplingParams(**sampling_params) if isinstance(sampling_params, Mapping) else sampling_params

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        import dataclasses

        import numpy as np

        if self._column not in batch:
            raise ValueError(f"no column {self._column!r}: the rows have {', '.join(batch)}")
        prompts = [row if isinstance(row, str) else [int(token) for token in row] for row in batch[self._column]]
        # One object for each row: a row's answer must not depend on its place in a batch.
        params = [self._params] * len(prompts)
        if "seed" in batch:
            params = [dataclasses.replace(self._params, seed=int(seed)) for seed in batch["seed"]]
        answered = self._llm.generate(prompts, params, use_tqdm=False)
        outputs = [output.outputs[0] for output in answered]
        tokens = np.empty(len(outputs), dtype=object)
        tokens[:] = [np.asarray(output.token_ids, dtype=np.int64) for output in outputs]
        return {**batch, "text": np.array([output.text for output in outputs], dtype=object), "token_ids": tokens,
                "seed": np.array([output.seed for output in answered], dtype=np.uint64),
                "finish_reason": np.array([output.finish_reason for output in outputs], dtype=object),
                "fingerprint": np.full(len(outputs), self._llm.fingerprint, dtype=object)}
