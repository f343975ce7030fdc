"""Kernels as others write them, one for each construct that Vosti's own kernels do not have. `broken.py` has each with a mistake."""
import torch
import triton
import triton.language as tl
from nowhere.at_all import is_npu_available, something
from packaging.version import Version

if Version(triton.__version__) >= Version("3.0.0") and not is_npu_available():
    from triton.language.extra.libdevice import rsqrt, tanh

DEVICE = torch.device("cuda") if torch.cuda.is_available() else None


@triton.jit
def rows_as_an_integer(x, y, n_rows, n_cols, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tile = tl.load(x + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(tile * tile, axis=1)
    tl.store(y + rows[:, None] * n_cols + cols[None, :], tile * total[:, None], mask=mask)


@triton.jit
def one_program_a_row(x, y, stride, n_cols, BN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * stride + cols, v * tl.sum(v, axis=0), mask=cols < n_cols)


@triton.jit
def strides(x, y, x_row, x_head, y_row, y_head, heads, n_cols, BN: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * x_row + head * x_head + cols, mask=cols < n_cols, other=0.0)
    tl.store(y + row * y_row + head * y_head + cols, v * 2, mask=cols < n_cols)


@triton.jit
def early_return(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    if row >= n_rows:
        return
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y + row * n_cols + cols, v + 1, mask=cols < n_cols)


@triton.jit
def all_lanes(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * n_cols + cols, v / tl.sum(tl.abs(v)) + tl.max(v), mask=cols < n_cols)


@triton.autotune([triton.Config({"BN": 64}, num_warps=4), triton.Config({"BN": 128}, num_warps=8)], key=["n_cols"])
@triton.heuristics({"EVEN": lambda args: args["n_cols"] % args["BN"] == 0})
@triton.jit
def hints(x, y, n_cols, BN: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(0)
    tl.assume(n_cols > 0)
    cols = tl.max_contiguous(tl.multiple_of(tl.arange(0, BN), 16), 16)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first", cache_modifier=".cg")
    tl.store(y + row * n_cols + cols, -v, mask=cols < n_cols, eviction_policy="evict_last", cache_modifier=".cs")


@triton.jit
def rows_in_turn(y, x, x_row, y_row, n_rows, n_cols, BN: tl.constexpr, stages: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=stages):
        cols = tl.arange(0, BN)
        v = tl.load(x + row * x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(y + row * y_row + cols, e / tl.sum(e, axis=0), mask=cols < n_cols)


@triton.jit
def several_launches(x, y, n_rows, n_cols, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tile = tl.load(x + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(y + rows[:, None] * n_cols + cols[None, :], tile / tl.sum(tile, axis=1)[:, None], mask=mask)


@triton.jit
def other_functions(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    total = tl.sum(v * v, axis=0)
    tl.store(y + row * n_cols + cols, tanh(v) * rsqrt(total) + tl.math.erf(v), mask=cols < n_cols)


@triton.jit
def last_rows_first(x, y, n_cols, BN: tl.constexpr):
    row = tl.num_programs(0) - 1 - tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y + row * n_cols + cols, v + 1, mask=cols < n_cols)


@triton.jit
def halves_of_the_last_row_first(x, y, HALF: tl.constexpr):
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    cols = program * HALF + tl.arange(0, HALF)
    tl.store(y + cols, tl.load(x + cols) + 1)


@triton.jit
def returns_after_its_work(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    if row < n_rows:
        v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        tl.store(y + row * n_cols + cols, v * 3, mask=cols < n_cols)
        return
    tl.store(y + cols, 0.0, mask=cols < 0)


@triton.autotune(configs=[triton.Config({"BK": 64}), triton.Config({"BK": 32})], key=["n_cols"])
@triton.heuristics({"BM": lambda args: 2 if args["n_rows"] <= 264 else 4})
@triton.jit
def chosen_by_columns(x, y, n_rows, n_cols, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    total = tl.zeros([BM], tl.float32)
    for first in range(0, BN, BK):
        cols = first + tl.arange(0, BK)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        v = tl.load(x + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(v * v, axis=1)
    tl.store(y + rows, total, mask=rows < n_rows)


@triton.heuristics(something.rules("of_this"))
@triton.jit
def rule_from_elsewhere(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y + row * n_cols + cols, v * 2, mask=cols < n_cols)
