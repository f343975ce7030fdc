"""Rows in FP8 with one scale for the whole batch, and with one for each row.

The form of vLLM #57092 and #57016: the inputs of the experts are divided by one number, which is made of the largest element of all rows
in the batch. `scaled_by_the_row` is the mend: each row has a scale of its own.
"""
import triton
import triton.language as tl


@triton.jit
def scaled_by_the_batch(x, scale, y, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    value = tl.load(x + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    value = tl.clamp(value / tl.load(scale), -448.0, 448.0)
    tl.store(y + row * n_cols + cols, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def scaled_by_the_row(x, scales, y, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    value = tl.load(x + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value), axis=0), 1e-12) / 448.0
    tl.store(scales + row, scale)
    value = tl.clamp(value / scale, -448.0, 448.0)
    tl.store(y + row * n_cols + cols, value.to(y.dtype.element_ty), mask=mask)
