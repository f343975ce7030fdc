"""Batches: a call that returns when every prompt is answered."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Union

import numpy as np

from ._model import Messages, Model, Prompt, score_rows
from ._outputs import RequestOutput
from ._sampling import SamplingParams

Resume = Union[None, RequestOutput, Sequence[Optional[RequestOutput]]]


class LLM(Model):
    __doc__ = Model.__doc__

    def update_weights(self, weights: Mapping[str, Any]) -> None:
        """Replaces every weight of a Hugging Face folder's model, by the names of its safetensors files: all, or none on an error.

        A tensor is an array of NumPy, torch or JAX, and is rounded to the type in the files. The fingerprint becomes that of a
        folder with such files, and the prefix cache is emptied. A call that is running ends with the former weights, which stay in
        memory until the new ones are complete.
        """
        self._replace(weights)

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]],
                 sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None, *,
                 use_tqdm: bool = True, resume: Resume = None) -> List[RequestOutput]:
        """Answers each prompt: a text, a list of token ids, or `{"prompt": ...}` or `{"prompt_token_ids": ...}`.

        `resume` has, for each prompt, the part of its answer that there is already, or None: the answer continues after that part,
        and is returned whole.
        """
        return self._answer(self._prompts(prompts, "prompt"), sampling_params, use_tqdm, resume)

    def chat(self, messages: Union[Messages, Sequence[Messages]],
             sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None, *,
             use_tqdm: bool = True, add_generation_prompt: bool = True, tools: Optional[Sequence[Mapping]] = None,
             chat_template_kwargs: Optional[Mapping[str, Any]] = None, resume: Resume = None) -> List[RequestOutput]:
        """Answers one conversation or several, by the model's chat template."""
        one = isinstance(messages, (str, Mapping)) or len(messages) > 0 and isinstance(messages[0], Mapping)
        given = [self._rendered(talk, add_generation_prompt, tools, chat_template_kwargs)
                 for talk in ([messages] if one else messages)]
        return self._answer(given, sampling_params, use_tqdm, resume)

    def score(self, sequences: Union[Prompt, Sequence[Prompt]], *, use_tqdm: bool = True) -> List[np.ndarray]:
        """Log-probabilities of each sequence's tokens except the first, given the tokens before: float32, one fewer than
        the sequence has tokens. They are the same bits that `generate` gives for these tokens."""
        tokens = [ids for _, ids in self._prompts(sequences, "sequence")]
        with _Bar(len(tokens), "scored", use_tqdm) as bar:
            return score_rows(self._engine.score(len(tokens), tokens.__getitem__, bar.tell))

    def _answer(self, given, sampling_params, use_tqdm, resume) -> List[RequestOutput]:
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        shared = sampling_params if isinstance(sampling_params, SamplingParams) else None
        if not shared and (isinstance(sampling_params, Mapping) or not isinstance(sampling_params, Iterable)):
            raise ValueError(f"sampling_params is {sampling_params!r}: give a SamplingParams, or one for each prompt")
        params = [] if shared else list(sampling_params)
        if not shared and len(params) != len(given):
            raise ValueError(f"{len(given)} prompts and {len(params)} sampling parameters")
        for place, each in enumerate(params):
            if not isinstance(each, SamplingParams):
                raise ValueError(f"the sampling parameters of prompt {place} are {each!r}: give a SamplingParams")
        parts = [resume] if isinstance(resume, RequestOutput) else None if resume is None else list(resume)
        if parts is not None and len(parts) != len(given):
            raise ValueError(f"{len(given)} prompts and {len(parts)} answers to resume")
        seeds = [self._seed(each) for each in ([shared] if shared else params)]
        form = shared and shared._engine_form()

        # The engine calls this to check a request, and again when its turn comes: a request that waits is not copied.
        def request(place):
            part = parts and parts[place]
            seed, number = (seeds[0], place) if shared else (seeds[place], 0)
            if part and (shared or params[place])._drawn:
                # The seed that the answer names is its prompt's own.
                seed, number = part.seed, 0
            asked = SimpleNamespace(**vars(form or params[place]._engine_form()))
            asked.seed, asked.place = seed, number
            return given[place][1], asked, part and part._had()

        def output(place, answered):
            return self._output(str(place), *given[place], answered)

        with _Bar(len(given), "answered", use_tqdm) as bar:
            return self._engine.generate(len(given), request, output, bar.tell)


class _Bar:
    """A progress bar of tqdm, if tqdm is installed and a bar is wanted."""

    def __init__(self, total: int, what: str, wanted: bool) -> None:
        self._bar, self.tell = None, None
        if wanted and total > 1:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, desc=what, dynamic_ncols=True)
            self.tell: Optional[Callable[[int], None]] = lambda count: self._bar.update(count - self._bar.n)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
