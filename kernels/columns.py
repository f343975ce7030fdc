"""Tiles whose columns are the DV numbers of a head, in a room of DP lanes. If all lanes are numbers, they are as tiles without a room."""
import triton
import triton.language as tl


@triton.jit
def within(mask, column, DV: tl.constexpr, DP: tl.constexpr):
    """The lanes of `mask` that are numbers of a head."""
    if DV == DP:
        return mask
    else:
        return mask & (column < DV)


@triton.jit
def load_head(pointers, column, DV: tl.constexpr, DP: tl.constexpr):
    """What is there, and 0 in lanes that are no number of a head."""
    if DV == DP:
        return tl.load(pointers)
    else:
        return tl.load(pointers, mask=column < DV, other=0.0)


@triton.jit
def store_head(pointers, value, column, DV: tl.constexpr, DP: tl.constexpr):
    if DV == DP:
        tl.store(pointers, value)
    else:
        tl.store(pointers, value, mask=column < DV)
