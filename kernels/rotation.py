"""Heads of a fused projection: some columns of its rows, and the rotation of two halves by position.

A head has D numbers, its halves D // 2, and a tile room for the next power of two: behind the last there are zeros, which
change no sum and are not stored.
"""
import triton
import triton.language as tl


@triton.jit
def columns(qkv, m, row, col, STRIDE, WIDTH: tl.constexpr, BM: tl.constexpr):
    """WIDTH columns from `col` on of the rows from `row` on, in FP32."""
    ROOM: tl.constexpr = triton.next_power_of_2(WIDTH)
    if WIDTH == ROOM:
        tile = tl.make_block_ptr(qkv, (m, STRIDE), (STRIDE, 1), (row, col), (BM, ROOM), (1, 0))
        x = tl.load(tile, boundary_check=(0,), padding_option="zero")
    else:
        tile = tl.make_block_ptr(qkv, (m, col + WIDTH), (STRIDE, 1), (row, col), (BM, ROOM), (1, 0))
        x = tl.load(tile, boundary_check=(0, 1), padding_option="zero")
    return x.to(tl.float32)


@triton.jit
def weights(w, WIDTH: tl.constexpr):
    ROOM: tl.constexpr = triton.next_power_of_2(WIDTH)
    d = tl.arange(0, ROOM)
    if WIDTH == ROOM:
        x = tl.load(w + d)
    else:
        x = tl.load(w + d, mask=d < WIDTH, other=0.0)
    return x[None, :]


@triton.jit
def rotated(qkv, positions, cos, sin, norm_w, m, row, col, STRIDE, EPS, D: tl.constexpr, NORM: tl.constexpr,
            BM: tl.constexpr):
    """Both halves of the head at `col`, normed by its weight where NORM is 1, then rotated."""
    HALF: tl.constexpr = D // 2
    ROOM: tl.constexpr = triton.next_power_of_2(HALF)
    a = columns(qkv, m, row, col, STRIDE, HALF, BM)
    b = columns(qkv, m, row, col + HALF, STRIDE, HALF, BM)
    if NORM:
        scale = tl.rsqrt(tl.sum(a * a + b * b, 1) / D + EPS)
        a = a * scale[:, None] * weights(norm_w, HALF)
        b = b * scale[:, None] * weights(norm_w + HALF, HALF)

    t = row + tl.arange(0, BM)
    d = tl.arange(0, ROOM)
    live = (t < m)[:, None] if HALF == ROOM else (t < m)[:, None] & (d < HALF)[None, :]
    position = tl.load(positions + t, mask=t < m, other=0)
    entry = position[:, None] * HALF + d[None, :]
    c = tl.load(cos + entry, mask=live, other=0.0)
    s = tl.load(sin + entry, mask=live, other=0.0)
    return a * c - b * s, b * c + a * s
