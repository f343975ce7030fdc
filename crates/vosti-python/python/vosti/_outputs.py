"""Results, under vLLM's names."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import numpy as np


@dataclass(frozen=True)
class Logprob:
    """One token's log-probability: raw, before temperature, penalties and bias. `rank` is 1 for the most likely token."""

    logprob: float
    rank: int
    decoded_token: str


@dataclass(frozen=True)
class CompletionOutput:
    index: int
    text: str
    token_ids: List[int]
    #: "stop", "length" or "abort"; None before the end.
    finish_reason: Optional[str]
    #: For each token: its own log-probability and those of the most likely tokens, by token id. None unless `logprobs` was asked for.
    logprobs: Optional[List[Dict[int, Logprob]]]
    #: The receipt for `vosti replay`, as decoded JSON, once the answer has ended; None unless `receipt` was asked for.
    receipt: Optional[Dict[str, Any]] = None
    #: The experts that each token chose, of shape (positions of prompt and answer but the last, layers with a mixture, choices), int32,
    #: in the order of the choice, once the answer has ended; None unless `routed_experts` was asked for.
    routed_experts: Optional[np.ndarray] = None


@dataclass(frozen=True)
class RequestOutput:
    request_id: str
    #: None if the prompt was given as token ids.
    prompt: Optional[str]
    #: The caller's own list, if the prompt was given as one.
    prompt_token_ids: List[int]
    #: Log-probabilities for each token of the prompt; None for the first token. None unless `prompt_logprobs` was asked for.
    prompt_logprobs: Optional[List[Optional[Dict[int, Logprob]]]]
    outputs: List[CompletionOutput]
    #: Prompt tokens whose keys and values were in the cache already.
    num_cached_tokens: int
    finished: bool
    #: The fingerprint of the deployment that answered: a deployment with the same one can continue the answer.
    fingerprint: str
    #: The seed with which this prompt, alone, gets the same answers.
    seed: int

    def _had(self) -> tuple:
        """The part of an answer that a resuming request sends."""
        return self.fingerprint, [(list(choice.token_ids), choice.finish_reason in ("stop", "length")) for choice in self.outputs]
