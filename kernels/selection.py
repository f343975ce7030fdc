"""The K largest of a row's values in order, of equal ones the first: what `topk_part` and `topk_combine` share."""
import triton
import triton.language as tl

# No column is so high, and FP32 holds every one below it.
NONE = tl.constexpr(16777216.0)


@triton.jit
def select(v, column, K: tl.constexpr, BM: tl.constexpr):
    """The K largest of each row of `v`, and which of `column` they stand at. NaN counts as nothing; where nothing is left, the
    value is -inf and the column NONE. Of equal values the one of the lowest column comes first, wherever it lies in `v`."""
    place = tl.arange(0, K).to(tl.float32)[None, :]
    values = tl.full((BM, K), float("-inf"), tl.float32)
    columns = tl.full((BM, K), NONE, tl.float32)
    for _ in range(0, K):
        largest = tl.maximum(tl.max(v, 1), float("-inf"))[:, None]
        first = tl.min(tl.where(largest <= v, column, NONE), 1)[:, None]
        values = tl.where(place == 0.0, largest, values)
        columns = tl.where(place == 0.0, first, columns)
        place -= 1.0
        # It has been taken.
        v = tl.where(column == first, float("nan"), v)
    return values, columns
