"""Kernels as others write them, one for each construct that Vosti's own kernels do not have. `broken.py` has each with a mistake."""
import torch
import triton
import triton.language as tl
from nowhere.at_all import is_npu_available, something
from packaging.version import Version

if Version(triton.__version__) >= Version("3.0.0") and not is_npu_available():
    from triton.language.extra.libdevice import pow, rsqrt, tanh

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


@triton.jit
def tiles_in_groups(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    t = tl.program_id(0)
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    width = G * Q
    first = t // width * G
    size = min(P - first, G)
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
def tiles_by_columns(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    t = tl.program_id(0)
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    m, n = t % P, t // P
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
def tiles_in_turn(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr, PROGRAMS: tl.constexpr):
    P, Q = tl.cdiv(M, BM), tl.cdiv(N, BN)
    behind = tl.program_id(0) - PROGRAMS
    for t in tl.range(tl.program_id(0), P * Q, PROGRAMS, flatten=True):
        m, n = t // Q, t % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        v = tl.load(x + rows[:, None] * N + cols[None, :], mask=(rows < M)[:, None] & (cols < N)[None, :], other=0.0)
        behind += PROGRAMS
        m, n = behind // Q, behind % Q
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        tl.store(y + rows[:, None] * N + cols[None, :], v * 2, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def mean_of_each_column(x, y, N, K, BN: tl.constexpr):
    pid = tl.program_id(0)
    row, col = (pid // K).to(tl.int64), pid % K
    total = 0.0
    for first in range(0, N, BN):
        at = first + tl.arange(0, BN)
        total += tl.sum(tl.load(x + row * N * K + at * K + col, mask=at < N, other=0.0).to(tl.float32), axis=0)
    tl.store(y + row * K + col, total / N)


@triton.jit
def lanes_left_open(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols).to(tl.float32)
    tl.store(y + row * n_cols + cols, v * tl.sum(v, axis=0), mask=cols < n_cols)


@triton.jit
def scanned(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * n_cols + cols, tl.cumsum(v, axis=0) + tl.cumprod(v, axis=0), mask=cols < n_cols)


@triton.jit
def scanned_along_the_row(x, y, n_rows, n_cols, BN: tl.constexpr):
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)
    cols = tl.arange(0, BN)
    at, mask = rows[:, None] * n_cols + cols[None, :], (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + at, tl.cumsum(v, axis=1), mask=mask)


@triton.jit
def mean_and_more(mean, count, more, mean_2, count_2, more_2):
    total = count + count_2
    moved = (mean * count + mean_2 * count_2) / tl.maximum(total, 1)
    return moved, total, more + more_2 + (mean - mean_2) * (mean - mean_2)


@triton.jit
def three_tiles_at_once(x, y, n_rows, n_cols, BN: tl.constexpr):
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)
    cols = tl.arange(0, BN)
    at, mask = rows[:, None] * n_cols + cols[None, :], (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    mean, count, more = tl.reduce((v, mask.to(tl.float32), v * v), 1, mean_and_more)
    tl.store(y + at, v * (mean + more)[:, None] / count[:, None], mask=mask)


@triton.jit
def functions_of_two(x, y, n_rows, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y + row * n_cols + cols, pow(tl.abs(v), 1.5 + v) + tl.clamp(v, -1.0, 1.0) + tl.div_rn(v, 3.0) + tl.sqrt_rn(tl.abs(v)), mask=cols < n_cols)


@triton.jit
def product_of_the_tutorial(x, w, y, M, N, K, x_row, w_k, w_n, y_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
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
    offs_cm = pid_m * BM + tl.arange(0, BM)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = y + y_row * offs_cm[:, None] + offs_cn[None, :]
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, accumulator, mask=c_mask)


@triton.jit
def scale_of_each_row(x, y, scales, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BN)
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(v), axis=0) / 448.0
    v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(scales + row, scale)
    tl.store(y + row * n_cols + cols, (v / scale).to(y.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def first_largest(x, y, n_cols, BN: tl.constexpr):
    row = tl.program_id(0)
    best, where = -float("inf"), 0
    for first in range(0, n_cols, BN):
        cols = first + tl.arange(0, BN)
        v = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        value, at = tl.max(v, axis=0, return_indices=True)
        where = tl.where(value > best, first + at, where)
        best = tl.maximum(best, value)
    tl.store(y + row, where)


@triton.jit
def product_of_moving_weights(x, w, y, M, N, K, x_row, w_row, y_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
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
        a_at += BK
        b_at += BK * w_row
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(y + rows[:, None] * y_row + cols[None, :], total, mask=(rows < M)[:, None] & (cols < N)[None, :])
