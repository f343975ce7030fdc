"""`AsyncLLM`: requests of an asyncio program, which start and end while others run."""
from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._model import Messages, Model, Prompt, score_rows
from ._outputs import RequestOutput
from ._sampling import SamplingParams


class AsyncLLM(Model):
    __doc__ = (Model.__doc__ or "") + """
    Requests run together whenever they arrive; each gets the answer that it gets alone. `shutdown` ends the engine.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._run = self._engine.run()
        self._numbers = itertools.count()
        self._queues: Dict[int, Tuple[asyncio.AbstractEventLoop, asyncio.Queue]] = {}
        self._running: Dict[str, int] = {}
        self._ended = threading.Event()
        thread = threading.Thread(target=_hand_on, args=(weakref.ref(self), self._run, self._ended), daemon=True)
        thread.start()
        # The finalizer also runs when the interpreter ends: a thread that waits in the engine must not outlive it.
        self._end = weakref.finalize(self, _end, self._ended, thread)

    def generate(self, prompt: Prompt, sampling_params: Optional[SamplingParams] = None, request_id: Optional[str] = None, *,
                 resume: Optional[RequestOutput] = None) -> AsyncIterator[RequestOutput]:
        """Yields the answer so far, repeatedly, until it is complete. Closing the generator aborts its request.

        `resume` is the part of the answer that there is already: the answer continues after it.
        """
        return self._stream(*self._prompt(prompt), sampling_params, request_id, resume)

    def chat(self, messages: Messages, sampling_params: Optional[SamplingParams] = None, request_id: Optional[str] = None, *,
             add_generation_prompt: bool = True, tools: Optional[Sequence[Mapping]] = None,
             chat_template_kwargs: Optional[Mapping[str, Any]] = None,
             resume: Optional[RequestOutput] = None) -> AsyncIterator[RequestOutput]:
        """The same for a conversation, by the model's chat template."""
        text, tokens = self._rendered(messages, add_generation_prompt, tools, chat_template_kwargs)
        return self._stream(text, tokens, sampling_params, request_id, resume)

    async def score(self, sequences: Union[Prompt, Sequence[Prompt]]) -> List[np.ndarray]:
        """As `LLM.score`."""
        tokens = [ids for _, ids in self._prompts(sequences, "sequence")]
        return score_rows(await _aside(self._engine.score, len(tokens), tokens.__getitem__, None))

    async def update_weights(self, weights: Mapping[str, Any]) -> None:
        """As `LLM.update_weights`. Running requests end with the old weights; later requests use the new ones."""
        await _aside(self._replace, weights)

    async def abort(self, request_id: str) -> None:
        """Aborts a request: its generator ends."""
        number = self._running.get(request_id)
        if number is not None:
            self._run.abort(number)
            self._deliver(number, None, None)

    def shutdown(self) -> None:
        """Aborts every request, and ends the thread."""
        for number in list(self._queues):
            self._run.abort(number)
            self._deliver(number, None, None)
        self._end()

    async def _stream(self, text: Optional[str], tokens: List[int], sampling_params: Optional[SamplingParams],
                      request_id: Optional[str], resume: Optional[RequestOutput]) -> AsyncIterator[RequestOutput]:
        if self._ended.is_set():
            raise RuntimeError("this AsyncLLM was shut down")
        params = self.get_default_sampling_params() if sampling_params is None else sampling_params
        if not isinstance(params, SamplingParams):
            raise ValueError(f"the sampling parameters are {params!r}: give a SamplingParams")
        form = params._engine_form()
        form.seed = resume.seed if resume is not None and params._drawn else self._seed(params)
        number = next(self._numbers)
        name = str(number) if request_id is None else request_id
        if name in self._running:
            raise ValueError(f"a request called {name} runs already")
        queue: asyncio.Queue = asyncio.Queue()
        self._running[name] = number
        self._queues[number] = asyncio.get_running_loop(), queue
        try:
            if form.grammar is not None:
                await _aside(self._engine.compile, form.grammar)
            self._run.add(self._engine, number, tokens, form, resume and resume._had())
            finished = False
            while not finished:
                answered, error = await queue.get()
                # A slow reader gets the newest answer and skips older ones.
                while error is None and answered is not None and not queue.empty():
                    answered, error = queue.get_nowait()
                if error is not None:
                    raise error
                if answered is None:
                    return
                yield self._output(name, text, tokens, answered)
                finished = answered.finished
        finally:
            del self._running[name], self._queues[number]
            self._run.abort(number)

    def _deliver(self, number: int, answered: Any, error: Optional[BaseException]) -> None:
        at = self._queues.get(number)
        if at is None:
            return
        loop, queue = at
        try:
            loop.call_soon_threadsafe(queue.put_nowait, (answered, error))
        except RuntimeError:
            # The request's event loop is closed, so no generator waits for it.
            self._run.abort(number)


def _hand_on(owner: weakref.ref, run: Any, ended: threading.Event) -> None:
    """Hands the engine's results to the waiting generators, until the model is garbage."""
    while not ended.is_set():
        news = run.take()
        model = owner()
        if model is None:
            return
        for number, answered, error in news:
            model._deliver(number, answered, error)
        del model


def _end(ended: threading.Event, thread: threading.Thread) -> None:
    ended.set()
    if thread is not threading.current_thread():
        thread.join()


async def _aside(call: Any, *arguments: Any) -> Any:
    """Runs a call on another thread, so that the event loop is not blocked."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)
