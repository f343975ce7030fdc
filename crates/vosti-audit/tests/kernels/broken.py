"""The kernels of `proved.py`, each with the mistake that its name says."""
import triton
import triton.language as tl


@triton.jit
def integer_row_beyond_the_last(x, y, n_rows, n_cols, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    mask = (rows <= n_rows)[:, None] & (cols < n_cols)[None, :]
    tile = tl.load(x + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(tile * tile, axis=1)
    tl.store(y + rows[:, None] * n_cols + cols[None, :], tile * total[:, None], mask=mask)


@triton.jit
def integer_scales_the_row(x, y, n_rows, n_cols, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tile = tl.load(x + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(y + rows[:, None] * n_cols + cols[None, :], tile / n_rows, mask=mask)


@triton.jit
def half_of_the_rows(x, y, stride, n_cols, BN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * stride + cols, v * tl.sum(v, axis=0), mask=cols < n_cols)


@triton.jit
def the_row_before(x, y, stride, n_cols, BN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BN)
    before = tl.maximum(row - 1, 0)
    v = tl.load(x + before * stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * stride + cols, v * tl.sum(v, axis=0), mask=cols < n_cols)


@triton.jit
def swapped_strides(x, y, x_row, x_head, y_row, y_head, heads, n_cols, BN: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * x_head + head * x_row + cols, mask=cols < n_cols, other=0.0)
    tl.store(y + row * y_row + head * y_head + cols, v * 2, mask=cols < n_cols)


@triton.jit
def returns_at_the_last_row(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    if row >= n_rows - 1:
        return
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y + row * n_cols + cols, v + 1, mask=cols < n_cols)


@triton.jit
def returns_too_late(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    if row > n_rows:
        return
    tl.store(y + row * n_cols + cols, v + 1, mask=cols < n_cols)


@triton.jit
def all_lanes_of_two_rows(x, y, n_rows, n_cols, BN: tl.constexpr):
    rows = tl.program_id(0) * 2 + tl.arange(0, 2)
    cols = tl.arange(0, BN)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    v = tl.load(x + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(y + rows[:, None] * n_cols + cols[None, :], v / tl.sum(tl.abs(v)), mask=mask)


@triton.jit
def lanes_in_any_order(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y + row * n_cols + cols, tl.reshape(v, [BN], can_reorder=True), mask=cols < n_cols)


@triton.jit
def hinted_row_of_others(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.max_contiguous(tl.multiple_of(tl.arange(0, BN), 16), 16)
    v = tl.load(x + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
    tl.store(y + row * n_cols + cols, -v, mask=cols < n_cols)


@triton.jit
def turns_that_carry_a_sum(y, x, n_rows, n_cols, BN: tl.constexpr):
    total = 0.0
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        cols = tl.arange(0, BN)
        v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        total += tl.sum(v, axis=0)
        tl.store(y + row * n_cols + cols, v + total, mask=cols < n_cols)


@triton.jit
def turns_that_know_the_program(y, x, n_rows, n_cols, BN: tl.constexpr):
    first = tl.program_id(0)
    for row in tl.range(first, n_rows, tl.num_programs(0)):
        cols = tl.arange(0, BN)
        v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(y + row * n_cols + cols, v + (row - first), mask=cols < n_cols)


@triton.jit
def turns_without_the_last_row(y, x, n_rows, n_cols, BN: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows - 1, tl.num_programs(0)):
        cols = tl.arange(0, BN)
        v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(y + row * n_cols + cols, v, mask=cols < n_cols)


@triton.jit
def turns_by_another_step(y, x, n_rows, n_cols, BN: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows, 2):
        cols = tl.arange(0, BN)
        v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(y + row * n_cols + cols, v, mask=cols < n_cols)


@triton.jit
def stores_beside_the_turns(y, x, n_rows, n_cols, BN: tl.constexpr):
    cols = tl.arange(0, BN)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(y + row * n_cols + cols, v, mask=cols < n_cols)
    tl.store(y + cols, 0.0, mask=cols < n_cols)


@triton.jit
def launches_of_two_orders(x, y, n_cols, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for first in range(0, BN, BK):
        cols = first + tl.arange(0, BK)
        v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        total += tl.sum(v * v, axis=0)
    cols = tl.arange(0, BN)
    tl.store(y + row * n_cols + cols, total + tl.zeros([BN], tl.float32), mask=cols < n_cols)


@triton.jit
def other_function_of_all_rows(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * n_cols + cols, v * tl.math.erf(n_rows.to(tl.float32)), mask=cols < n_cols)


@triton.autotune(configs=[triton.Config({"BK": 64}), triton.Config({"BK": 2})], key=["n_rows"])
@triton.jit
def chosen_by_rows(x, y, n_rows, n_cols, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for first in range(0, BN, BK):
        cols = first + tl.arange(0, BK)
        v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        total += tl.sum(v * v, axis=0)
    cols = tl.arange(0, BN)
    tl.store(y + row * n_cols + cols, total + tl.zeros([BN], tl.float32), mask=cols < n_cols)


@triton.heuristics({"BM": lambda args: 1 if args["n_rows"] <= 264 else 4})
@triton.jit
def tile_by_rows(x, y, n_rows, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    v = tl.load(x + rows[:, None] * BN + cols[None, :], mask=(rows < n_rows)[:, None], other=0.0).to(tl.float32)
    tl.store(y + rows, tl.sum(v * v, axis=1), mask=rows < n_rows)


@triton.jit
def warps_by_rows(x, y, BN: tl.constexpr):
    row = tl.program_id(0)
    v = tl.load(x + row * BN + tl.arange(0, BN)).to(tl.float32)
    tl.store(y + row, tl.sum(v * v, axis=0))


@triton.jit
def two_halves_in_turn(x, y, n_rows, BN: tl.constexpr):
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        cols = tl.arange(0, BN // 2)
        left = tl.load(x + row * BN + cols).to(tl.float32)
        right = tl.load(x + row * BN + BN // 2 + cols).to(tl.float32)
        tl.store(y + row, tl.sum(left * left, axis=0) + tl.sum(right * right, axis=0))
