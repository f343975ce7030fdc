"""The engine in this process, as token ids in and out. Use `vosti.LLM`."""
from typing import Callable, List, Optional, Sequence, Tuple

__version__: str

class Choice:
    text: str
    token_ids: List[int]
    finish_reason: Optional[str]
    logprobs: Optional[List[Tuple[float, int, List[Tuple[int, float]]]]]

class Answered:
    choices: List[Choice]
    cached_tokens: int

class Engine:
    fingerprint: str
    context: int
    vocabulary: int
    def __init__(self, model: str, *, context: Optional[int] = None, threads: Optional[int] = None,
                 sequences: Optional[int] = None, kv_pages: Optional[int] = None, weights: Optional[str] = None,
                 speculate: bool = False) -> None: ...
    def defaults(self) -> Tuple[float, int, float, float, float]: ...
    def tokenize(self, text: str, add_special_tokens: bool = True) -> List[int]: ...
    def detokenize(self, tokens: List[int]) -> str: ...
    def render(self, messages: str, tools: Optional[str], variables: str, add_generation_prompt: bool) -> str: ...
    def generate(self, prompts: List[List[int]], params: Sequence[object],
                 done: Optional[Callable[[int], None]]) -> List[Answered]: ...
    def score(self, sequences: List[List[int]], done: Optional[Callable[[int], None]]) -> List[bytes]: ...
