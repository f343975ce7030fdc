"""`lm_eval`'s tasks on a model in this process.

    import lm_eval, vosti.evals
    found = lm_eval.simple_evaluate(model=vosti.evals.Vosti("smollm2-135m"), tasks=["..."])

A score is a function of the model and the task: how many requests run together (`max_num_seqs`) changes none of its bits.

The module needs `pip install lm-eval` (and torch, which `lm_eval` imports).
"""
from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
from lm_eval.api.model import TemplateLM

from . import LLM, SamplingParams

#: Most tokens of an answer, if its task gives no limit.
MAX_TOKENS = 256


class Vosti(TemplateLM):
    """A model for `lm_eval`. The arguments are those of `vosti.LLM`."""

    def __init__(self, model: str = "smollm2-135m", **llm: Any) -> None:
        super().__init__()
        self.llm = LLM(model, **llm)

    @property
    def eot_token_id(self) -> int:
        # Stands before a text without a context, and before a rolling likelihood's first window: the tokenizer's first token, if it
        # has one, otherwise the token of a line's end.
        begun = self.llm.tokenize("", add_special_tokens=True)
        return begun[0] if begun else self.llm.tokenize("\n")[0]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> List[int]:
        return self.llm.tokenize(string, add_special_tokens=bool(add_special_tokens))

    def _loglikelihood_tokens(self, requests, **kwargs: Any) -> List[Tuple[float, bool]]:
        longest = self.llm.max_model_len - 1
        rows = [(context + continuation)[-longest:] for _, context, continuation in requests]
        # The ranks say whether a greedy answer would be the continuation; one token is generated, and not used.
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
        outputs = self.llm.generate(rows, params, use_tqdm=False)
        found = []
        for output, (_, _, continuation) in zip(outputs, requests):
            # An empty continuation has nothing to score.
            begin = max(0, len(output.prompt_token_ids) - len(continuation))
            listed = [row[token] for row, token in zip(output.prompt_logprobs[begin:], output.prompt_token_ids[begin:])]
            # Added in float32's shortest digits, as the server's JSON has them, so that both ways give the same sum.
            found.append((sum((float(str(np.float32(one.logprob))) for one in listed), 0.0), all(one.rank == 1 for one in listed)))
        return found

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> List[float]:
        found = []
        for request in requests:
            tokens, longest = self.tok_encode(request.args[0]), self.llm.max_model_len - 2
            total, begun = 0.0, [self.eot_token_id]
            for at in range(0, len(tokens), longest):
                window = tokens[at:at + longest]
                total += self._loglikelihood_tokens([(None, begun, window)])[0][0]
                begun = window[-1:]
            found.append(total)
        return found

    def generate_until(self, requests, disable_tqdm: bool = False) -> List[str]:
        prompts, params = [], []
        for request in requests:
            text, asked = request.args[0], dict(request.args[1])
            until = asked.get("until") or []
            tokens = int(asked.get("max_gen_toks", MAX_TOKENS))
            room = self.llm.max_model_len - tokens
            if room < 1:
                raise ValueError(f"max_gen_toks is {tokens} and max_model_len {self.llm.max_model_len}: a prompt has no room; "
                                 "raise max_model_len or lower max_gen_toks")
            sampled = asked.get("do_sample", False)
            params.append(SamplingParams(
                temperature=float(asked.get("temperature", 0)) if sampled else 0, top_p=float(asked.get("top_p", 1)), seed=1234,
                max_tokens=tokens, stop=[until] if isinstance(until, str) else list(until)))
            prompts.append(self.tok_encode(text)[-room:])
        outputs = self.llm.generate(prompts, params, use_tqdm=not disable_tqdm)
        return [output.outputs[0].text for output in outputs]
