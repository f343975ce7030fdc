"""The part that `LLM` and `AsyncLLM` share: a model in this process, its tokens, and the forms of requests and answers."""
from __future__ import annotations

import json
import operator
import random
import reprlib
import secrets
import sys
import warnings
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._outputs import CompletionOutput, Logprob, RequestOutput
from ._sampling import SamplingParams
from ._vllm import no_attribute, takes_vllm_arguments
from ._vosti import Answered, Engine
from ._weights import elements

Prompt = Union[str, Sequence[int], Mapping[str, Any]]
Messages = Sequence[Mapping[str, Any]]

_FORMS = "a prompt is a text, a list of token ids, {'prompt': text} or {'prompt_token_ids': ids}"


class Model:
    """A model on this machine's CPU.

    `model` is a name of `vosti models`, a GGUF file, a Hugging Face folder, or `ORG/REPO[:QUANT]` of a hub. `max_model_len` is the
    longest sequence in tokens, prompt and answer; the fingerprint depends on it. `max_num_seqs` is how many sequences run at once.
    `threads`, `kv_pages`, `weights` and `speculate` are as the flags of `vosti generate` and change no bit. `arithmetic` ("integers",
    "bf16") and `activations` (16, 8) say how a quantised file's matrices are multiplied; the fingerprint depends on them. `seed` is for
    the seeds of requests that have none: with it, a program that makes the same calls gets the same answers. Arguments of vLLM that ask
    for what is done anyway are taken, others raise a ValueError that says why.
    """

    @takes_vllm_arguments
    def __init__(self, model: str = "smollm2-135m", *, max_model_len: Optional[int] = None,
                 max_num_seqs: Optional[int] = None, threads: Optional[int] = None, kv_pages: Optional[int] = None,
                 weights: Optional[str] = None, arithmetic: Optional[str] = None, activations: Optional[int] = None,
                 speculate: bool = False, seed: Optional[int] = None) -> None:
        self._engine = Engine(str(model), context=max_model_len, threads=threads, sequences=max_num_seqs,
                              kv_pages=kv_pages, weights=weights, arithmetic=arithmetic, activations=activations,
                              speculate=speculate)
        for why in self._engine.warnings():
            # Of the caller: the constructor is wrapped.
            warnings.warn(f"{model}: {why}", stacklevel=3)
        self._ids: Dict[int, int] = {}
        self._random = secrets.SystemRandom() if seed is None else random.Random(seed)

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(self, name)

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

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer, with the methods of transformers' that programs use most."""
        return Tokenizer(self)

    def _seed(self, params: SamplingParams) -> int:
        """The seed of a request, or a fresh one. 32 bits are easy to type again."""
        return self._random.getrandbits(32) if params._drawn else params.seed % 2**64

    def _shared(self, ids: List[int]) -> List[int]:
        """These ids as objects that all lists share: an int of its own takes 32 bytes, and a place in a list 8."""
        return list(map(self._ids.setdefault, ids, ids))

    def _replace(self, weights: Mapping[str, Any]) -> None:
        replacement = self._engine.replacement()
        for name, stored in elements(weights, replacement.wanted()):
            replacement.put(name, stored)
        self._engine.replace(replacement)

    def _prompt(self, prompt: Prompt, name: str = "the prompt") -> Tuple[Optional[str], List[int]]:
        if isinstance(prompt, Mapping):
            given = [prompt[key] for key in ("prompt", "prompt_token_ids") if key in prompt]
            if len(given) != 1 or len(prompt) != 1:
                raise ValueError(f"{name} has the keys {sorted(map(str, prompt))}: {_FORMS}")
            prompt = given[0]
        if isinstance(prompt, str):
            return prompt, self.tokenize(prompt)
        if isinstance(prompt, list) and all(type(token) is int for token in prompt):
            return None, prompt
        try:
            if isinstance(prompt, (bytes, bytearray, Mapping)):
                raise TypeError
            return None, [operator.index(token) for token in prompt]
        except TypeError:
            raise ValueError(f"{name} is {reprlib.repr(prompt)}: {_FORMS}") from None

    def _prompts(self, prompts: Any, what: str) -> List[Tuple[Optional[str], List[int]]]:
        """The texts and token ids of one prompt or several."""
        if isinstance(prompts, (str, bytes, bytearray, Mapping)):
            return [self._prompt(prompts)]
        try:
            prompts = list(prompts)
        except TypeError:
            raise ValueError(f"the {what}s are {reprlib.repr(prompts)}: give a list of them; {_FORMS}") from None
        if prompts and all(isinstance(part, (int, np.integer)) for part in prompts):
            return [self._prompt(prompts)]
        return [self._prompt(prompt, f"{what} {place}") for place, prompt in enumerate(prompts)]

    def _rendered(self, messages: Messages, add_generation_prompt: bool, tools: Optional[Sequence[Mapping]],
                  variables: Optional[Mapping[str, Any]]) -> Tuple[str, List[int]]:
        if isinstance(messages, (str, Mapping)) or not all(isinstance(message, Mapping) for message in messages):
            raise ValueError(f"the messages are {reprlib.repr(messages)}: give a list of dicts with 'role' and 'content'")
        try:
            offered = None if tools is None else json.dumps(list(tools))
            written = json.dumps(list(messages)), offered, json.dumps(dict(variables or {}))
        except (TypeError, ValueError) as why:
            raise ValueError(f"messages, tools and variables must be JSON: {why}") from None
        return self._engine.render(*written, add_generation_prompt)

    def _output(self, name: str, text: Optional[str], tokens: List[int], answered: Answered) -> RequestOutput:
        def choice(index, given):
            ids, listed = given.token_ids, given.logprobs
            if listed is not None:
                listed = [self._listed(token, *row) for token, row in zip(ids, listed)]
            receipt = given.receipt and json.loads(given.receipt)
            # Equal ids and equal reasons are one object, in all outputs.
            reason = given.finish_reason and sys.intern(given.finish_reason)
            routed = given.routed_experts
            experts = None if routed is None else np.array(routed, np.int32)
            return CompletionOutput(index, given.text, self._shared(ids), reason, listed, receipt, experts)

        outputs = [choice(index, given) for index, given in enumerate(answered.choices)]
        of_prompt = answered.prompt_logprobs
        if of_prompt is not None:
            of_prompt = [None, *(self._listed(token, *row) for token, row in zip(tokens[1:], of_prompt))]
        # All outputs of a deployment share one string.
        fingerprint = sys.intern(answered.fingerprint)
        return RequestOutput(name, text, tokens, of_prompt, outputs, answered.cached_tokens, answered.finished, fingerprint,
                             answered.seed)

    def _listed(self, token: int, logprob: float, rank: int, top) -> dict:
        rows = {other: Logprob(value, place + 1, self.detokenize([other])) for place, (other, value) in enumerate(top)}
        rows.setdefault(token, Logprob(logprob, rank, self.detokenize([token])))
        return rows


def score_rows(rows: Sequence[bytes]) -> List[np.ndarray]:
    return [np.frombuffer(row, dtype=np.float32) for row in rows]


class Tokenizer:
    """A model's tokenizer. For the same text, the ids are those of a prompt."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __len__(self) -> int:
        return self._model._engine.vocabulary

    def __call__(self, text: str, add_special_tokens: bool = True) -> Dict[str, List[int]]:
        return {"input_ids": self.encode(text, add_special_tokens)}

    def encode(self, text: str, add_special_tokens: bool = True) -> List[int]:
        return self._model.tokenize(text, add_special_tokens)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._model.detokenize(token_ids)

    def apply_chat_template(self, conversation: Messages, *, tokenize: bool = True, add_generation_prompt: bool = False,
                            tools: Optional[Sequence[Mapping]] = None, **variables: Any) -> Union[str, List[int]]:
        """The text of a conversation by the model's template, or its token ids."""
        text, ids = self._model._rendered(conversation, add_generation_prompt, tools, variables)
        return ids if tokenize else text
