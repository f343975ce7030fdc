"""Sampling parameters, under vLLM's names, with its defaults where they mean the same."""
from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Mapping, Optional, Sequence, Union


@dataclass(frozen=True)
class StructuredOutputsParams:
    """A constraint on an answer. Give exactly one field."""

    #: A JSON schema, as an object or as its text.
    json: Union[None, str, Mapping[str, Any]] = None
    #: A regular expression that matches the whole answer.
    regex: Optional[str] = None
    #: Texts, of which the answer is one.
    choice: Optional[Sequence[str]] = None
    #: A grammar in Lark's notation, as llguidance reads it.
    grammar: Optional[str] = None
    #: True: the answer is any JSON object.
    json_object: Optional[bool] = None

    def _grammar(self) -> str:
        """The form that receipts use."""
        asked = [name for name, value in vars(self).items() if value not in (None, False)]
        if len(asked) != 1:
            raise ValueError("structured_outputs asks for " + (" and ".join(asked) or "nothing")
                             + ": give one of json, regex, choice, grammar and json_object")
        schema = self.json
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except ValueError as why:
                raise ValueError(f"structured_outputs.json is not a JSON schema: {why}") from why
        return json.dumps({"json": {"json_schema": schema}, "regex": {"regex": self.regex}, "grammar": {"lark": self.grammar},
                           "choice": {"choice": list(self.choice or ())}, "json_object": "json_object"}[asked[0]])


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters. Draws are a function of (seed, prompt's number, choice, position) alone: if one object is given for
    several prompts, each of them draws numbers of its own. The default seed is 0, so a repeated call gives the same answers; -1 is
    another seed each time."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    #: Keeps tokens whose surprise is nearest to the expected one and that together have this probability; vLLM has no such field.
    typical_p: float = 1.0
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
    #: Of the answer's tokens: "raw" are the model's own, "processed" those of the distribution that was drawn from.
    logprobs_mode: str = "raw"
    prompt_logprobs: Optional[int] = None
    logit_bias: Optional[Mapping[int, float]] = None
    structured_outputs: Optional[StructuredOutputsParams] = None
    #: Give each answer a receipt, with which `vosti replay` runs the request again and compares every logit.
    receipt: bool = False

    def _checked(self, place: int = 0) -> SimpleNamespace:
        """These parameters in the engine's form, for prompt number `place` of those that they are for."""
        for name in ("max_tokens", "min_tokens", "logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value}: it must not be negative")
        return SimpleNamespace(**{
            **vars(self),
            "seed": secrets.randbits(32) if self.seed == -1 else (self.seed or 0) % 2**64,
            "place": place,
            "stop": [self.stop] if isinstance(self.stop, str) else list(self.stop or ()),
            "stop_token_ids": list(self.stop_token_ids or ()),
            "logit_bias": [(int(token), float(bias)) for token, bias in (self.logit_bias or {}).items()],
            "grammar": self.structured_outputs and self.structured_outputs._grammar(),
        })
