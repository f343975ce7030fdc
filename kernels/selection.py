"""The K largest of a row's values in order, the first of equal values first; `topk_part` and `topk_combine` use it."""
import triton
import triton.language as tl

# Every column is below this number, and FP32 holds each exactly.
NONE = tl.constexpr(16777216.0)


@triton.jit
def select(v, column, K: tl.constexpr, BM: tl.constexpr):
    """The K largest values of each row of `v`, and their columns of `column`. NaN is skipped; if no value is left, the value
    is -inf and the column NONE. Of equal values the one of the lowest column comes first, whatever its place in `v`."""
    place = tl.arange(0, K).to(tl.float32)[None, :]
    values = tl.full((BM, K), float("-inf"), tl.float32)
    columns = tl.full((BM, K), NONE, tl.float32)
    for _ in range(0, K):
        largest = tl.maximum(tl.max(v, 1), float("-inf"))[:, None]
        first = tl.min(tl.where(largest <= v, column, NONE), 1)[:, None]
        values = tl.where(place == 0.0, largest, values)
        columns = tl.where(place == 0.0, first, columns)
        place -= 1.0
        # The chosen value does not take part again.
        v = tl.where(column == first, float("nan"), v)
    return values, columns
