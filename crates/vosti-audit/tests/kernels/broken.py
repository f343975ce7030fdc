"""The kernels of `proved.py`, each with the mistake that its name says."""
import triton
import triton.language as tl
from triton.language.extra.libdevice import pow


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


@triton.jit
def groups_without_the_last(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    t = tl.program_id(0)
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    width = G * Q
    first = t // width * G
    size = G
    m = first + (t % width) % size
    n = (t % width) // size
    rows = m * BM + tl.arange(0, BM)
    cols = n * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        inner = k * BK + tl.arange(0, BK)
        a = tl.load(x + rows[:, None] * K + inner[None, :], mask=(rows < M)[:, None] & (inner < K)[None, :], other=0.0)
        b = tl.load(w + inner[:, None] * N + cols[None, :], mask=(inner < K)[:, None] & (cols < N)[None, :], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(y + rows[:, None] * N + cols[None, :], total, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def tiles_by_other_columns(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    t = tl.program_id(0)
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    m, n = t % Q, t // Q
    rows = m * BM + tl.arange(0, BM)
    cols = n * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        inner = k * BK + tl.arange(0, BK)
        a = tl.load(x + rows[:, None] * K + inner[None, :], mask=(rows < M)[:, None] & (inner < K)[None, :], other=0.0)
        b = tl.load(w + inner[:, None] * N + cols[None, :], mask=(inner < K)[:, None] & (cols < N)[None, :], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(y + rows[:, None] * N + cols[None, :], total, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def tiles_in_turn_by_another_step(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr, PROGRAMS: tl.constexpr):
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    behind = tl.program_id(0) - PROGRAMS
    for t in tl.range(tl.program_id(0), P * Q, PROGRAMS + 1, flatten=True):
        m, n = t // Q, t % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=(rows < M)[:, None] & (cols < N)[None, :], other=0.0)
        behind += PROGRAMS + 1
        m, n = behind // Q, behind % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def tiles_in_turn_with_their_number(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr, PROGRAMS: tl.constexpr):
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    behind = tl.program_id(0) - PROGRAMS
    for t in tl.range(tl.program_id(0), P * Q, PROGRAMS, flatten=True):
        m, n = t // Q, t % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=(rows < M)[:, None] & (cols < N)[None, :], other=0.0)
        behind += PROGRAMS
        m, n = behind // Q, behind % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        tl.store(y + rows[:, None] * N + cols[None, :], v * t, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def tiles_in_turn_behind(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr, PROGRAMS: tl.constexpr):
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    behind = tl.program_id(0) - PROGRAMS
    for t in tl.range(tl.program_id(0), P * Q, PROGRAMS, flatten=True):
        m, n = t // Q, t % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=(rows < M)[:, None] & (cols < N)[None, :], other=0.0)
        behind += (PROGRAMS - 1)
        m, n = behind // Q, behind % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def mean_of_another_row(x, y, N, K, BN: tl.constexpr):
    pid = tl.program_id(0)
    row, col = (pid // N).to(tl.int64), pid % N
    total = 0.0
    for first in range(0, N, BN):
        at = first + tl.arange(0, BN)
        total += tl.sum(tl.load(x + row * N * K + at * K + col, mask=at < N, other=0.0).to(tl.float32), axis=0)
    tl.store(y + row * K + col, total / N)


@triton.jit
def lanes_of_the_next_row_left_open(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=row * n_cols + cols < n_rows * n_cols).to(tl.float32)
    tl.store(y + row * n_cols + cols, v * tl.sum(v, axis=0), mask=cols < n_cols)


@triton.jit
def scanned_over_the_rows(x, y, n_rows, n_cols, BN: tl.constexpr):
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)
    cols = tl.arange(0, BN)
    at, mask = rows[:, None] * n_cols + cols[None, :], (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + at, tl.cumsum(v, axis=0), mask=mask)


@triton.jit
def mean_and_more(mean, count, more, mean_2, count_2, more_2):
    total = count + count_2
    moved = (mean * count + mean_2 * count_2) / tl.maximum(total, 1)
    return moved, total, more + more_2 + (mean - mean_2) * (mean - mean_2)


@triton.jit
def three_tiles_over_the_rows(x, y, n_rows, n_cols, BN: tl.constexpr):
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)
    cols = tl.arange(0, BN)
    at, mask = rows[:, None] * n_cols + cols[None, :], (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    mean, count, more = tl.reduce((v, mask.to(tl.float32), v * v), 0, mean_and_more)
    tl.store(y + at, v * (mean + more)[None, :] / tl.maximum(count, 1)[None, :], mask=mask)


@triton.jit
def power_of_the_rows(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * n_cols + cols, pow(tl.abs(v), n_rows.to(tl.float32)), mask=cols < n_cols)


@triton.jit
def product_with_rows_that_wrap(x, w, y, M, N, K, x_row, w_k, w_n, y_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BM)
    num_pid_n = tl.cdiv(N, BN)
    num_pid_in_group = G * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * G
    group_size_m = min(num_pid_m - first_pid_m, G)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BM + tl.arange(0, BM)) % M
    offs_bn = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = x + (offs_am[:, None] * x_row + offs_k[None, :])
    b_ptrs = w + (offs_k[:, None] * w_k + offs_bn[None, :] * w_n)
    accumulator = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BK
        b_ptrs += BK * w_k
    offs_cm = pid_m * BM + tl.arange(0, BM) + 1
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = y + y_row * offs_cm[:, None] + offs_cn[None, :]
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, accumulator, mask=c_mask)


@triton.jit
def one_scale_for_all_rows(x, y, scales, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + 0 * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(v), axis=0) / 448.0
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(scales + row, scale)
    tl.store(y + row * n_cols + cols, (v / scale).to(y.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def two_functions(x, y, n_cols, BN: tl.constexpr, ROOT: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    if ROOT:
        v = tl.sqrt_rn(tl.abs(v))
    else:
        v = tl.math.erf(tl.abs(v))
    tl.store(y + row * n_cols + cols, v, mask=cols < n_cols)


@triton.jit
def scanned_from_both_ends(x, y, n_cols, BN: tl.constexpr, BACK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * n_cols + cols, tl.cumsum(v, axis=0, reverse=BACK), mask=cols < n_cols)


@triton.jit
def doubled(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y + row * n_cols + cols, v + v, mask=cols < n_cols)


@triton.jit
def doubled_in_another_type(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y + row * n_cols + cols, v + v, mask=cols < n_cols)


@triton.jit
def bytes_of_two_rows(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    wide = x.to(tl.pointer_type(tl.float16))
    v = tl.load(wide + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y + row * n_cols + cols, v, mask=cols < n_cols)


@triton.jit
def a_name_of_two_values(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    t = tl.program_id(0)
    Q = tl.cdiv(N, BN)
    n, lanes = t % Q, tl.arange(0, 2)
    cols = n * BN + tl.arange(0, BN)
    if N > 3:
        m = t // Q
        tl.store(y + m, 0.0, mask=m < 0)
    if N > 0:
        m = tl.min(lanes, axis=0)
        rows = m * BM + tl.arange(0, BM)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
        tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=mask)


@triton.jit
def rows_stored_where_they_wrap(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)) % M
    cols = tl.arange(0, BN)
    v = tl.load(x + rows[:, None] * N + cols[None, :], mask=(cols < N)[None, :], other=0.0)
    last = tl.program_id(0) * BM + tl.arange(0, BM) >= M
    tl.store(y + rows[:, None] * N + cols[None, :], tl.where(last[:, None], v * 2, v), mask=(cols < N)[None, :])


@triton.jit
def rows_that_wrap_early(x, y, M, N, HALF, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    v = tl.load(x + (rows % HALF)[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(y + rows[:, None] * N + cols[None, :], v, mask=mask)


@triton.jit
def lanes_left_open_by_the_rows(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < tl.minimum(n_cols, n_rows)).to(tl.float32)
    tl.store(y + row * n_cols + cols, v * tl.sum(v, axis=0), mask=cols < n_cols)


@triton.jit
def first_largest_of_the_tile(x, y, n_rows, n_cols, BN: tl.constexpr):
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)
    cols = tl.arange(0, BN)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    v = tl.load(x + rows[:, None] * n_cols + cols[None, :], mask=mask, other=-float("inf")).to(tl.float32)
    value, at = tl.max(v, axis=0, return_indices=True)
    tl.store(y + rows[:, None] * n_cols + cols[None, :], at[None, :] + tl.zeros((4, 1), tl.int32), mask=mask)


@triton.jit
def weights_that_move_by_rows(x, w, y, M, N, K, x_row, w_row, y_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)) % M
    cols = (tl.program_id(1) * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a_at = x + rows[:, None] * x_row + k[None, :]
    b_at = w + k[:, None] * w_row + cols[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for turn in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_at, mask=k[None, :] < K - turn * BK, other=0.0)
        b = tl.load(b_at, mask=k[:, None] < K - turn * BK, other=0.0)
        total = tl.dot(a, b, total)
        a_at += x_row
        b_at += BK * w_row
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(y + rows[:, None] * y_row + cols[None, :], total, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def scale_of_the_batch(x, y, scale, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * n_cols + cols, v / tl.load(scale), mask=cols < n_cols)


@triton.jit
def scale_that_is_one_of_the_rows(x, y, scale, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * n_cols + cols, v / tl.load(scale + row), mask=cols < n_cols)


@triton.jit
def tiles_in_turn_without_the_last(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr, PROGRAMS: tl.constexpr):
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for t in tl.range(tl.program_id(0), P * Q - 1, PROGRAMS):
        m, n = t // Q, t % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
        tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=mask)


@triton.jit
def tiles_in_turn_from_the_second(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr, PROGRAMS: tl.constexpr):
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for t in tl.range(tl.program_id(0) + 1, P * Q, PROGRAMS):
        m, n = t // Q, t % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
        tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=mask)


@triton.jit
def tiles_in_turn_ahead(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr, PROGRAMS: tl.constexpr):
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    ahead = tl.program_id(0) + 1
    for t in tl.range(tl.program_id(0), P * Q, PROGRAMS):
        m, n = t // Q, t % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
        ahead += PROGRAMS
        m, n = ahead // Q, ahead % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def stores_beside_the_tiles(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr, PROGRAMS: tl.constexpr):
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for t in tl.range(tl.program_id(0), P * Q, PROGRAMS):
        m, n = t // Q, t % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
        tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=mask)
    lanes = tl.arange(0, BN)
    tl.store(y + lanes, tl.zeros([BN], tl.float32), mask=lanes < N)


@triton.jit
def more_tiles_than_numbers(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    t = tl.program_id(0)
    Q = tl.cdiv(N, BN)
    m, n = t // Q, t % Q
    rows, cols = (m * BM + tl.arange(0, BM)).to(tl.int64), n * BN + tl.arange(0, BN)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=mask)


@triton.jit
def either_of_two_results(x, y, n_cols, BN: tl.constexpr, FIRST: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    mean, count, more = tl.reduce((v, v * 0 + 1, v * v), 0, mean_and_more)
    if FIRST:
        v = v * mean
    else:
        v = v * more
    tl.store(y + row * n_cols + cols, v, mask=cols < n_cols)


@triton.jit
def rounded_to_either_type(x, y, n_cols, BN: tl.constexpr, T: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * n_cols + cols, v.to(T).to(tl.float32), mask=cols < n_cols)


@triton.jit
def moves_less_each_turn(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    at = x + row * n_cols + cols
    total = tl.zeros([BN], tl.float32)
    for turn in range(0, 3):
        total += tl.load(at, mask=cols < n_cols - 1, other=0.0).to(tl.float32)
        at += 2 - turn
    tl.store(y + row * n_cols + cols, total, mask=cols < n_cols)


@triton.jit
def a_name_of_two_values_in_turn(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    t = tl.program_id(0)
    Q = tl.cdiv(N, BN)
    n, lanes = t % Q, tl.arange(0, 2)
    cols = n * BN + tl.arange(0, BN)
    if N > 0:
        m = tl.min(lanes, axis=0)
        rows = m * BM + tl.arange(0, BM)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
        tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=mask)
    if N > 3:
        m = t // Q
        tl.store(y + m, 0.0, mask=m < 0)


@triton.jit
def tile_of(t, Q):
    return t // Q, t % Q


@triton.jit
def least_and_largest(lanes):
    return tl.min(lanes, axis=0), tl.max(lanes, axis=0)


@triton.jit
def results_of_two_calls(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    t = tl.program_id(0)
    Q = tl.cdiv(N, BN)
    n = t % Q
    lanes = tl.arange(0, 2)
    cols = n * BN + tl.arange(0, BN)
    if N > 3:
        m, other = tile_of(t, Q)
        tl.store(y + m, 0.0, mask=m < 0)
    if N > 0:
        m, other = least_and_largest(lanes)
        rows = m * BM + tl.arange(0, BM)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
        tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=mask)


@triton.jit
def groups_of_the_larger_size(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr, G: tl.constexpr):
    t = tl.program_id(0)
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    width = G * Q
    first = t // width * G
    size = max(P - first, G)
    m, n = first + (t % width) % size, (t % width) // size
    rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=mask)


@triton.jit
def rows_that_wrap_below(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    whole = (rows - 4) % M == rows - 4
    tl.store(y + rows[:, None] * N + cols[None, :], tl.where(whole[:, None], v, v * 2), mask=mask)


@triton.jit
def rows_that_wrap_by_a_negative(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    first = rows % (N - 65) < 2
    tl.store(y + rows[:, None] * N + cols[None, :], tl.where(first[:, None], v, v * 2), mask=mask)


@triton.jit
def rows_that_wrap_by_columns(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    inner = rows % N
    whole = (inner == rows) | (inner == 0)
    tl.store(y + rows[:, None] * N + cols[None, :], tl.where(whole[:, None], v, v * 2), mask=mask)


@triton.jit
def scanned_by_either_function(x, y, n_cols, BN: tl.constexpr, PRODUCT: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    if PRODUCT:
        v = tl.cumprod(v, axis=0)
    else:
        v = tl.cumsum(v, axis=0)
    tl.store(y + row * n_cols + cols, v, mask=cols < n_cols)


@triton.jit
def scanned_into_either_end(x, y, BN: tl.constexpr, FIRST: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.cumsum(tl.load(x + row * BN + cols).to(tl.float32), axis=0)
    tl.store(y + row * BN + FIRST + STEP * cols, v)


@triton.jit
def third_tile_by_rows(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    mean, count, more = tl.reduce((v, v * 0 + 1, v * n_rows), 0, mean_and_more)
    tl.store(y + row * n_cols + cols, v * more, mask=cols < n_cols)


@triton.jit
def clamped_either_way(x, y, n_cols, BN: tl.constexpr, ALL: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    if ALL:
        v = tl.clamp(v, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL)
    else:
        v = tl.clamp(v, -1.0, 1.0)
    tl.store(y + row * n_cols + cols, v, mask=cols < n_cols)


@triton.jit
def divided_either_way(x, y, n_cols, BN: tl.constexpr, NEAREST: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    if NEAREST:
        v = tl.div_rn(v, 3.0)
    else:
        v = v / 3.0
    tl.store(y + row * n_cols + cols, v, mask=cols < n_cols)


@triton.jit
def root_of_either_kind(x, y, n_cols, BN: tl.constexpr, NEAREST: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    if NEAREST:
        v = tl.sqrt_rn(tl.abs(v))
    else:
        v = tl.sqrt(tl.abs(v))
    tl.store(y + row * n_cols + cols, v, mask=cols < n_cols)


@triton.jit
def rounded_either_way(x, y, n_cols, BN: tl.constexpr, NEAREST: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    if NEAREST:
        v = v.to(tl.float16)
    else:
        v = v.to(tl.float16, fp_downcast_rounding="rtz")
    tl.store(y + row * n_cols + cols, v.to(tl.float32), mask=cols < n_cols)


@triton.jit
def product_of_either_precision(x, w, y, M, BM: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    k = tl.arange(0, BK)
    a = tl.load(x + rows[:, None] * BK + k[None, :], mask=(rows < M)[:, None], other=0.0)
    b = tl.load(w + k[:, None] * BK + k[None, :])
    total = tl.dot(a, b, tl.zeros((BM, BK), tl.float32), input_precision=PRECISION)
    tl.store(y + rows[:, None] * BK + k[None, :], total, mask=(rows < M)[:, None])


@triton.jit
def which_tile():
    return tl.program_id(0)


@triton.jit
def tiles_with_the_number_of_a_helper(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    t = tl.program_id(0)
    P = tl.cdiv(M, BM)
    m, n = t % P, t // P
    rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(y + rows[:, None] * N + cols[None, :], v * which_tile(), mask=mask)


@triton.jit
def row_that_stores(y, t, Q):
    tl.store(y, 0.0)
    return t // Q


@triton.jit
def tiles_of_a_helper_that_stores(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    t = tl.program_id(0)
    Q = tl.cdiv(N, BN)
    m, n = row_that_stores(y, t, Q), t % Q
    rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    v = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=mask)


@triton.jit
def sum_of_two(a, b):
    return a + b


@triton.jit
def lanes_in_any_order_and_their_sum(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    lanes = tl.reshape(v, [BN], can_reorder=True)
    total = tl.reduce(lanes, 0, sum_of_two)
    tl.store(y + row * n_cols + cols, lanes * total, mask=cols < n_cols)
