"""Arguments of vLLM that are not ours: those that ask for what Vosti does anyway are taken, all others are refused with a reason."""
from __future__ import annotations

import difflib
import functools
import inspect
from typing import Any, Callable, Dict, Tuple

#: Stands for every value: the argument changes nothing here.
ANY: Tuple[Any, ...] = ()

_ALWAYS = "that is always on, and changes no bit"
_HUB = "what the hub's main branch has is fetched"
_ONE = "one process runs the whole model; docs/deploy.md has replicas"
_TOKENIZER = "the model's own tokenizer is used"

#: By class and argument: the values that ask for what is done anyway, and why others are refused.
_OTHERS: Dict[str, Dict[str, Tuple[Tuple[Any, ...], str]]] = {
    "LLM": {
        "block_size": ((None, 64), "a page of the KV cache has 64 tokens"),
        "chat_template": ((None,), "the template of the model's files is used"),
        "cpu_offload_gb": ((0,), "the model runs on the processor"),
        "data_parallel_size": ((1,), _ONE),
        "device": (("auto", "cpu", None), "the package runs models on the processor"),
        "disable_custom_all_reduce": (ANY, ""),
        "disable_log_requests": (ANY, ""),
        "disable_log_stats": (ANY, ""),
        "distributed_executor_backend": ((None,), _ONE),
        "dtype": (("auto", "bfloat16"), "activations are BF16, whatever a batch holds; see `arithmetic`"),
        "enable_chunked_prefill": ((None, True), _ALWAYS),
        "enable_lora": ((None, False), "merge the adapter into the model's files"),
        "enable_prefix_caching": ((None, True), _ALWAYS),
        "enforce_eager": (ANY, ""),
        "generation_config": (("auto",), "pass SamplingParams() for neutral parameters"),
        "gpu_memory_utilization": ((None,), "the model runs on the processor; `kv_pages` is the size of the KV cache"),
        "hf_overrides": ((None, {}), "change the folder's config.json"),
        "hf_token": ((None,), "set the environment variable HF_TOKEN"),
        "kv_cache_dtype": (("auto", "bfloat16"), "the KV cache is BF16"),
        "load_format": (("auto",), "the files say their format"),
        "logprobs_mode": (("raw_logprobs",), "it is an argument of SamplingParams here"),
        "max_num_batched_tokens": ((None,), "the engine chooses the tokens of a step, which changes no bit"),
        "max_seq_len_to_capture": (ANY, ""),
        "pipeline_parallel_size": ((1,), _ONE),
        "quantization": ((None,), "the files say how weights are quantised"),
        "revision": ((None, "main"), _HUB),
        "skip_tokenizer_init": ((False,), "token ids are taken and given with a tokenizer too"),
        "speculative_config": ((None,), "`speculate=True` drafts by n-grams"),
        "swap_space": (ANY, ""),
        "tensor_parallel_size": ((1,), _ONE),
        "tokenizer": ((None,), _TOKENIZER),
        "tokenizer_mode": (("auto",), _TOKENIZER),
        "tokenizer_revision": ((None, "main"), _HUB),
        # No code of a model's folder ever runs.
        "trust_remote_code": (ANY, ""),
    },
    "SamplingParams": {
        "allowed_token_ids": ((None,), "`structured_outputs` holds an answer to a form"),
        "bad_words": ((None, [], ()), "`logit_bias` makes tokens unlikely"),
        "best_of": ((None,), "all `n` answers are returned"),
        "detokenize": ((True,), "answers always have their text"),
        "extra_args": ((None, {}), "there are none"),
        "flat_logprobs": ((False,), "`logprobs` is a list of dicts"),
        "guided_decoding": ((None,), "it is `structured_outputs` here"),
        "include_stop_str_in_output": ((False,), "a stop string is no part of the answer"),
        "logits_processors": ((None, [], ()), "no Python code runs in a step"),
        "output_kind": ((0,), "an output always has the answer so far"),
        "skip_special_tokens": ((True,), "control tokens have no text"),
        "spaces_between_special_tokens": (ANY, ""),
        "truncate_prompt_tokens": ((None,), "a prompt is never cut"),
        "use_beam_search": ((False,), "answers are drawn"),
    },
}
_OTHERS["AsyncLLM"] = _OTHERS["LLM"]

#: Methods of vLLM's classes that people look for, and where the same is.
_METHODS = {
    "beam_search": "answers are drawn; SamplingParams(n=...) draws several",
    "classify": "models that classify do not run",
    "collective_rpc": "there are no workers",
    "embed": "models that embed do not run",
    "encode": "models that pool do not run; get_tokenizer().encode(text) gives token ids",
    "llm_engine": "`vosti serve` has /metrics and /status",
    "reset_prefix_cache": "update_weights empties the cache itself, and a hit changes no bit",
    "sleep": "drop the LLM and make another",
    "wake_up": "drop the LLM and make another",
}


def takes_vllm_arguments(init: Callable) -> Callable:
    """Makes an `__init__` check the arguments that are not its own. A dataclass's is wrapped after it was made."""
    own = set(inspect.signature(init).parameters)

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        name = next(of.__name__ for of in type(self).__mro__ if of.__name__ in _OTHERS)
        for other in [key for key in given if key not in own]:
            _refuse(name, own, other, given.pop(other))
        init(self, *args, **given)

    return checked


def _refuse(cls: str, own: set, name: str, value: Any) -> None:
    if name not in _OTHERS[cls]:
        near = difflib.get_close_matches(name, [*own - {"self"}, *_OTHERS[cls]], 1)
        raise TypeError(f"{cls} has no argument {name}" + (f": did you mean {near[0]}?" if near else ""))
    taken, why = _OTHERS[cls][name]
    # A type of torch is its name, and a member of an enumeration its number.
    plain = str(value)[len("torch."):] if str(value).startswith("torch.") else getattr(value, "value", value)
    if taken and not any(plain == one and isinstance(plain, bool) == isinstance(one, bool) for one in taken):
        raise ValueError(f"{cls}({name}={value!r}): {why}")


def no_attribute(of: Any, name: str) -> AttributeError:
    """The error for an attribute that a class has not, with the remedy if vLLM's has it."""
    return AttributeError(f"{type(of).__name__} has no {name}" + (f": {_METHODS[name]}" if name in _METHODS else ""))
