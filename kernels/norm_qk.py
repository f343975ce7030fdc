"""RMS norm over all query heads together, and over all key heads together; values are copied.

A row has Q columns of queries, then KV of keys; the rest up to STRIDE are values. Squares are summed as in `rmsnorm`, all in
FP32, with one cast at the end.
"""
import triton
import triton.language as tl


@triton.jit
def normed(x, w, out, m, row, FIRST, WIDTH, STRIDE, EPS, BM: tl.constexpr, BH: tl.constexpr):
    end = FIRST + WIDTH
    x_tile = tl.make_block_ptr(x, (m, end), (STRIDE, 1), (row, FIRST), (BM, BH), (1, 0))
    squares = tl.zeros((BM, BH), tl.float32)
    for _ in range(0, WIDTH, BH):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        squares += v * v
        x_tile = tl.advance(x_tile, (0, BH))
    scale = tl.rsqrt(tl.sum(squares, 1) / WIDTH + EPS)

    x_tile = tl.make_block_ptr(x, (m, end), (STRIDE, 1), (row, FIRST), (BM, BH), (1, 0))
    w_tile = tl.make_block_ptr(w, (WIDTH,), (1,), (0,), (BH,), (0,))
    out_tile = tl.make_block_ptr(out, (m, end), (STRIDE, 1), (row, FIRST), (BM, BH), (1, 0))
    for _ in range(0, WIDTH, BH):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        weight = tl.load(w_tile, boundary_check=(0,), padding_option="zero")
        y = v * scale[:, None] * weight[None, :]
        tl.store(out_tile, y.to(out.dtype.element_ty), boundary_check=(0, 1))
        x_tile = tl.advance(x_tile, (0, BH))
        w_tile = tl.advance(w_tile, (BH,))
        out_tile = tl.advance(out_tile, (0, BH))


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# where = ["Q + KV <= STRIDE"]
# text = ["BH"]
# [params]
# x = "in 0"
# rows = "rows"
# q_w = "weight 0 f32"
# k_w = "weight 1 f32"
# out = "out 0"
# Q = "dim 1..1048576"
# KV = "dim 1..1048576"
# STRIDE = "dim 1..4194304"
# EPS = "number"
# [shapes]
# x = ["rows", "STRIDE"]
# q_w = ["Q"]
# k_w = ["KV"]
# out = ["rows", "STRIDE"]
# ///
@triton.jit
def norm_qk(x, rows, q_w, k_w, out, Q, KV, STRIDE, EPS, BM: tl.constexpr, BH: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    normed(x, q_w, out, m, row, 0, Q, STRIDE, EPS, BM, BH)
    normed(x, k_w, out, m, row, Q, KV, STRIDE, EPS, BM, BH)
    values = Q + KV
    v_tile = tl.make_block_ptr(x, (m, STRIDE), (STRIDE, 1), (row, values), (BM, BH), (1, 0))
    out_tile = tl.make_block_ptr(out, (m, STRIDE), (STRIDE, 1), (row, values), (BM, BH), (1, 0))
    for _ in range(values, STRIDE, BH):
        tl.store(out_tile, tl.load(v_tile, boundary_check=(0, 1), padding_option="zero"), boundary_check=(0, 1))
        v_tile = tl.advance(v_tile, (0, BH))
        out_tile = tl.advance(out_tile, (0, BH))
