"""What a request asks of the sampler: vLLM's names, and its defaults where they mean the same."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Sequence, Union


@dataclass(frozen=True)
class SamplingParams:
    """Draws are a function of (seed, choice, position) alone; without a seed it is 0, so that a call gives the same again."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: Optional[int] = None
    stop: Union[None, str, Sequence[str]] = None
    stop_token_ids: Optional[Sequence[int]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    logprobs: Optional[int] = None
    logit_bias: Optional[Mapping[int, float]] = None

    def _checked(self) -> _Checked:
        stop = [self.stop] if isinstance(self.stop, str) else list(self.stop or ())
        for name in ("max_tokens", "min_tokens", "logprobs"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value}: it must not be negative")
        return _Checked(
            self.n, self.temperature, self.top_p, self.top_k, self.min_p, self.presence_penalty,
            self.frequency_penalty, self.repetition_penalty, (self.seed or 0) % 2**64, stop,
            list(self.stop_token_ids or ()), self.ignore_eos, self.max_tokens, self.min_tokens, self.logprobs,
            [(int(token), float(bias)) for token, bias in (self.logit_bias or {}).items()])


@dataclass(frozen=True)
class _Checked:
    """The same, as the engine reads it."""

    n: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    stop: list = field(default_factory=list)
    stop_token_ids: list = field(default_factory=list)
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    logprobs: Optional[int] = None
    logit_bias: list = field(default_factory=list)
