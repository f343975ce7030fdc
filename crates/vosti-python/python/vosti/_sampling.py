"""Sampling parameters, under vLLM's names, with its defaults where they mean the same."""
from __future__ import annotations

import json
import re
from dataclasses import dataclass
from numbers import Integral
from types import SimpleNamespace
from typing import Any, Collection, Mapping, Optional, Sequence, Union

from ._vllm import takes_vllm_arguments
from ._vosti import check


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
    """Sampling parameters, checked when they are made. Draws are a function of (seed, prompt's number, choice, position) alone: if one
    object is given for several prompts, each of them draws numbers of its own. Without a seed, or with -1, every call draws a fresh one;
    `RequestOutput.seed` is the seed that gives its prompt the same answer again, alone.

    Arguments of vLLM that ask for what is done anyway are taken, others raise a ValueError that says why."""

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
    #: Give each answer the experts that its tokens chose; the request then takes nothing from the prefix cache. Models with mixtures only.
    routed_experts: bool = False

    def __post_init__(self) -> None:
        self._engine_form()

    @property
    def _drawn(self) -> bool:
        """True if a call draws the seed."""
        return self.seed is None or self.seed == -1

    def _engine_form(self) -> SimpleNamespace:
        """These parameters as the engine takes them, except the seed that a call draws."""
        try:
            self._check_forms()
            held = self.structured_outputs
            form = SimpleNamespace(**{
                **vars(self),
                "seed": 0 if self._drawn else self.seed % 2**64,
                "place": 0,
                "stop": [self.stop] if isinstance(self.stop, str) else list(self.stop or ()),
                "stop_token_ids": list(self.stop_token_ids or ()),
                "logit_bias": [(int(token), float(bias)) for token, bias in (self.logit_bias or {}).items()],
                "grammar": held and held._grammar(),
            })
            check(form)
        except (OverflowError, TypeError, ValueError) as why:
            raise ValueError(f"SamplingParams: {self._told(why)}") from None
        return form

    def _told(self, why: Exception) -> str:
        """What is wrong, with the parameter and its value if it is the value's type."""
        field = re.fullmatch(r"failed to extract field Params\.(\w+)", str(why))
        return f"{field[1]} is {getattr(self, field[1])!r}: {why.__cause__}" if field else str(why)

    def _check_forms(self) -> None:
        """What the engine would refuse with a message that does not name the parameter."""
        seed = self.seed
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral) or not -2**63 <= seed < 2**64):
            raise ValueError(f"seed is {seed!r}: it must be an integer of 64 bits, or None")
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, Integral) and value < 0:
                raise ValueError(f"{name} is {value}: it must not be negative")
        texts = () if isinstance(self.stop, str) else self.stop
        for name, value, whole, part, form in (("stop", texts, Collection, str, "a list of texts"),
                                               ("stop_token_ids", self.stop_token_ids, Collection, Integral, "a list of token ids"),
                                               ("logit_bias", self.logit_bias, Mapping, Integral, "a dict by token ids")):
            if value is not None and not (isinstance(value, whole) and all(isinstance(one, part) for one in value)):
                raise ValueError(f"{name} is {value!r}: give {form}")
        for token, bias in (self.logit_bias or {}).items():
            if not hasattr(bias, "__float__"):
                raise ValueError(f"logit_bias for token {token} is {bias!r}: give a number")
        held = self.structured_outputs
        if held is not None and not isinstance(held, StructuredOutputsParams):
            raise ValueError(f"structured_outputs is {held!r}: give a StructuredOutputsParams")


#: Parameters that count something.
_COUNTS = ("n", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs")

# `dataclass` makes `__init__`, so it is wrapped afterwards.
SamplingParams.__init__ = takes_vllm_arguments(SamplingParams.__init__)  # type: ignore[method-assign]
