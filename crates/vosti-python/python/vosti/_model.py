"""The part that `LLM` and `AsyncLLM` share: a model in this process, its tokens, and the forms of requests and answers."""
from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._outputs import CompletionOutput, Logprob, RequestOutput
from ._sampling import SamplingParams
from ._vosti import Answered, Engine
from ._weights import elements

Prompt = Union[str, Sequence[int], Mapping[str, Any]]
Messages = Sequence[Mapping[str, Any]]


class Model:
    """A model on this machine's CPU.

    `model` is a name of `vosti models`, a GGUF file, a Hugging Face folder, or `ORG/REPO[:QUANT]` of a hub. `max_model_len` is the
    longest sequence in tokens, prompt and answer; the fingerprint depends on it. `max_num_seqs` is how many sequences run at once.
    `threads`, `kv_pages`, `weights` and `speculate` are as the flags of `vosti generate` and change no bit. `arithmetic` ("integers",
    "bf16") and `activations` (16, 8) say how a quantised file's matrices are multiplied; the fingerprint depends on them.
    """

    def __init__(self, model: str = "smollm2-135m", *, max_model_len: Optional[int] = None,
                 max_num_seqs: Optional[int] = None, threads: Optional[int] = None, kv_pages: Optional[int] = None,
                 weights: Optional[str] = None, arithmetic: Optional[str] = None, activations: Optional[int] = None,
                 speculate: bool = False) -> None:
        self._engine = Engine(str(model), context=max_model_len, threads=threads, sequences=max_num_seqs,
                              kv_pages=kv_pages, weights=weights, arithmetic=arithmetic, activations=activations,
                              speculate=speculate)
        self._ids: Dict[int, int] = {}

    @property
    def fingerprint(self) -> str:
        """Names the deployment: two deployments with one fingerprint give the same answers."""
        return self._engine.fingerprint

    @property
    def max_model_len(self) -> int:
        return self._engine.context

    def get_default_sampling_params(self) -> SamplingParams:
        """What a call without parameters takes: the sampling of the model's files, else what the catalogue recommends. `SamplingParams()`
        is neutral: temperature 1, every token, no penalty."""
        return SamplingParams(**self._engine.defaults())

    def tokenize(self, text: str, add_special_tokens: bool = True) -> List[int]:
        return self._shared(self._engine.tokenize(text, add_special_tokens))

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return self._engine.detokenize(list(token_ids))

    def _shared(self, ids: List[int]) -> List[int]:
        """These ids as objects that all lists share: an int of its own takes 32 bytes, and a place in a list 8."""
        return list(map(self._ids.setdefault, ids, ids))

    def _replace(self, weights: Mapping[str, Any]) -> None:
        replacement = self._engine.replacement()
        for name, stored in elements(weights, replacement.wanted()):
            replacement.put(name, stored)
        self._engine.replace(replacement)

    def _prompt(self, prompt: Prompt) -> Tuple[Optional[str], List[int]]:
        if isinstance(prompt, Mapping):
            given = [prompt[key] for key in ("prompt", "prompt_token_ids") if key in prompt]
            if len(given) != 1:
                raise ValueError("a prompt is {'prompt': text} or {'prompt_token_ids': ids}")
            prompt = given[0]
        if isinstance(prompt, str):
            return prompt, self.tokenize(prompt)
        if isinstance(prompt, list) and all(type(token) is int for token in prompt):
            return None, prompt
        return None, [int(token) for token in prompt]

    def _rendered(self, messages: Messages, add_generation_prompt: bool, tools: Optional[Sequence[Mapping]],
                  variables: Optional[Mapping[str, Any]]) -> Tuple[str, List[int]]:
        offered = None if tools is None else json.dumps(list(tools))
        return self._engine.render(json.dumps(list(messages)), offered, json.dumps(dict(variables or {})), add_generation_prompt)

    def _output(self, name: str, text: Optional[str], tokens: List[int], answered: Answered) -> RequestOutput:
        def choice(index, given):
            ids, listed = given.token_ids, given.logprobs
            if listed is not None:
                listed = [self._listed(token, *row) for token, row in zip(ids, listed)]
            receipt = given.receipt and json.loads(given.receipt)
            # Equal ids and equal reasons are one object, in all outputs.
            reason = given.finish_reason and sys.intern(given.finish_reason)
            return CompletionOutput(index, given.text, self._shared(ids), reason, listed, receipt)

        outputs = [choice(index, given) for index, given in enumerate(answered.choices)]
        of_prompt = answered.prompt_logprobs
        if of_prompt is not None:
            of_prompt = [None, *(self._listed(token, *row) for token, row in zip(tokens[1:], of_prompt))]
        # All outputs of a deployment share one string.
        fingerprint = sys.intern(answered.fingerprint)
        return RequestOutput(name, text, tokens, of_prompt, outputs, answered.cached_tokens, answered.finished, fingerprint)

    def _listed(self, token: int, logprob: float, rank: int, top) -> dict:
        rows = {other: Logprob(value, place + 1, self.detokenize([other])) for place, (other, value) in enumerate(top)}
        rows.setdefault(token, Logprob(logprob, rank, self.detokenize([token])))
        return rows


def several(prompts) -> list:
    """A list of prompts: one prompt becomes a list of one."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    prompts = list(prompts)
    ids = prompts and all(isinstance(part, (int, np.integer)) for part in prompts)
    return [prompts] if ids else prompts


def score_rows(rows: Sequence[bytes]) -> List[np.ndarray]:
    return [np.frombuffer(row, dtype=np.float32) for row in rows]
