"""A model in this process: text or token ids in and out."""
from __future__ import annotations

import json
from typing import Any, Callable, List, Mapping, Optional, Sequence, Union

import numpy as np

from ._outputs import CompletionOutput, Logprob, RequestOutput
from ._sampling import SamplingParams
from ._vosti import Engine
from ._weights import elements

Prompt = Union[str, Sequence[int], Mapping[str, Any]]
Messages = Sequence[Mapping[str, Any]]


class LLM:
    """A model on this machine's processor.

    `model` is a name of `vosti models`, a GGUF file, a Hugging Face folder, or `ORG/REPO[:QUANT]` of a hub. `max_model_len` is the
    longest sequence (part of the fingerprint), `max_num_seqs` how many run at once: it changes no bit.
    """

    def __init__(self, model: str = "smollm2-135m", *, max_model_len: Optional[int] = None,
                 max_num_seqs: Optional[int] = None, threads: Optional[int] = None, kv_pages: Optional[int] = None,
                 weights: Optional[str] = None, speculate: bool = False) -> None:
        self._engine = Engine(str(model), context=max_model_len, threads=threads, sequences=max_num_seqs,
                              kv_pages=kv_pages, weights=weights, speculate=speculate)

    @property
    def fingerprint(self) -> str:
        """Names the deployment: two with one fingerprint give one answer."""
        return self._engine.fingerprint

    def update_weights(self, weights: Mapping[str, Any]) -> None:
        """Replaces every weight of a Hugging Face folder's model, by the names of its safetensors files: all, or none on an error.

        A tensor is of NumPy, torch or JAX, and is rounded to the type in the files. The fingerprint becomes that of a folder with
        such files; keys and values of former prompts are forgotten. A call that runs ends with the former weights. The former
        weights stay in memory until the new ones are whole.
        """
        replacement = self._engine.replacement()
        for name, stored in elements(weights, replacement.wanted()):
            replacement.put(name, stored)
        self._engine.replace(replacement)

    @property
    def max_model_len(self) -> int:
        return self._engine.context

    def get_default_sampling_params(self) -> SamplingParams:
        """The model's own, of its `generation_config.json` or GGUF file."""
        temperature, top_k, top_p, min_p, repetition_penalty = self._engine.defaults()
        return SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                              repetition_penalty=repetition_penalty)

    def tokenize(self, text: str, add_special_tokens: bool = True) -> List[int]:
        return self._engine.tokenize(text, add_special_tokens)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return self._engine.detokenize(list(token_ids))

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]],
                 sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None, *,
                 use_tqdm: bool = True) -> List[RequestOutput]:
        """Answers each prompt: a text, a list of token ids, or `{"prompt": ...}` or `{"prompt_token_ids": ...}`."""
        given = [self._prompt(prompt) for prompt in _several(prompts)]
        return self._run([text for text, _ in given], [tokens for _, tokens in given], sampling_params, use_tqdm)

    def chat(self, messages: Union[Messages, Sequence[Messages]],
             sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None, *,
             use_tqdm: bool = True, add_generation_prompt: bool = True, tools: Optional[Sequence[Mapping]] = None,
             chat_template_kwargs: Optional[Mapping[str, Any]] = None) -> List[RequestOutput]:
        """Answers one conversation or several, by the model's chat template."""
        one = len(messages) > 0 and isinstance(messages[0], Mapping)
        offered = None if tools is None else json.dumps(list(tools))
        variables = json.dumps(dict(chat_template_kwargs or {}))
        texts = [self._engine.render(json.dumps(list(talk)), offered, variables, add_generation_prompt)
                 for talk in ([messages] if one else messages)]
        return self._run(texts, [self.tokenize(text, False) for text in texts], sampling_params, use_tqdm)

    def score(self, sequences: Union[Prompt, Sequence[Prompt]], *, use_tqdm: bool = True) -> List[np.ndarray]:
        """Log-probabilities of each sequence's tokens but the first, given those before: float32, one shorter than the
        sequence. They are the bits that `generate` gives for the same tokens."""
        tokens = [self._prompt(sequence)[1] for sequence in _several(sequences)]
        with _Bar(len(tokens), "scored", use_tqdm) as bar:
            rows = self._engine.score(tokens, bar.tell)
        return [np.frombuffer(row, dtype=np.float32) for row in rows]

    def _prompt(self, prompt: Prompt):
        if isinstance(prompt, Mapping):
            given = [prompt[key] for key in ("prompt", "prompt_token_ids") if key in prompt]
            if len(given) != 1:
                raise ValueError("a prompt is {'prompt': text} or {'prompt_token_ids': ids}")
            prompt = given[0]
        if isinstance(prompt, str):
            return prompt, self.tokenize(prompt)
        return None, [int(token) for token in prompt]

    def _run(self, texts, tokens, sampling_params, use_tqdm) -> List[RequestOutput]:
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        params = [sampling_params] * len(tokens) if isinstance(sampling_params, SamplingParams) else list(sampling_params)
        if len(params) != len(tokens):
            raise ValueError(f"{len(tokens)} prompts and {len(params)} sampling parameters")
        with _Bar(len(tokens), "answered", use_tqdm) as bar:
            answers = self._engine.generate(list(tokens), [p._checked() for p in params], bar.tell)
        return [self._output(*parts) for parts in zip(texts, tokens, answers)]

    def _output(self, text, tokens, answered) -> RequestOutput:
        def choice(index, given):
            listed = None
            if given.logprobs is not None:
                listed = [self._listed(token, *row) for token, row in zip(given.token_ids, given.logprobs)]
            return CompletionOutput(index, given.text, given.token_ids, given.finish_reason, listed)

        outputs = [choice(index, given) for index, given in enumerate(answered.choices)]
        return RequestOutput(text, list(tokens), outputs, answered.cached_tokens)

    def _listed(self, token, logprob, rank, top):
        rows = {other: Logprob(value, place + 1, self.detokenize([other])) for place, (other, value) in enumerate(top)}
        rows.setdefault(token, Logprob(logprob, rank, self.detokenize([token])))
        return rows


def _several(prompts) -> list:
    """One prompt is a list of one."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    prompts = list(prompts)
    ids = prompts and all(isinstance(part, (int, np.integer)) for part in prompts)
    return [prompts] if ids else prompts


class _Bar:
    """tqdm's, if it is installed and wanted."""

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
