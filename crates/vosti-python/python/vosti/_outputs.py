"""What comes back: vLLM's names."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional


@dataclass(frozen=True)
class Logprob:
    """Of one token: raw, before temperature, penalties and bias. `rank` is 1 for the most likely."""

    logprob: float
    rank: int
    decoded_token: str


@dataclass(frozen=True)
class CompletionOutput:
    index: int
    text: str
    token_ids: List[int]
    #: "stop", "length" or "abort"
    finish_reason: Optional[str]
    #: For each token: itself and the most likely ones, by token id. None unless `logprobs` was asked for.
    logprobs: Optional[List[Dict[int, Logprob]]]


@dataclass(frozen=True)
class RequestOutput:
    #: None if the prompt was given as token ids.
    prompt: Optional[str]
    prompt_token_ids: List[int]
    outputs: List[CompletionOutput]
    #: Prompt tokens whose keys and values were in the cache already.
    num_cached_tokens: int
    finished: bool = True
