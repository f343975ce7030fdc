"""Vosti: the same bits for a request, whatever else the engine does.

    from vosti import LLM, SamplingParams

    llm = LLM("smollm2-135m")
    for output in llm.generate(["Once upon a time"], SamplingParams(seed=7, max_tokens=40)):
        print(output.outputs[0].text)
"""
from ._async import AsyncLLM
from ._llm import LLM
from ._outputs import CompletionOutput, Logprob, RequestOutput
from ._sampling import SamplingParams, StructuredOutputsParams
from ._vosti import __version__

__all__ = ["LLM", "AsyncLLM", "CompletionOutput", "Logprob", "RequestOutput", "SamplingParams", "StructuredOutputsParams",
           "__version__"]
