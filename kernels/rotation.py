"""Heads of a fused projection: some columns of its rows, and the rotation of two halves by position.

A head has two halves of HALF numbers, and a tile has room for HP numbers of each, a power of two. Behind a half's last number
there are zeros, which change no sum and are not stored.
"""
import triton
import triton.language as tl


@triton.jit
def columns(qkv, m, row, col, STRIDE, WIDTH, BM: tl.constexpr, ROOM: tl.constexpr):
    """WIDTH columns from `col` on of the rows from `row` on, in FP32."""
    tile = tl.make_block_ptr(qkv + col, (m, WIDTH), (STRIDE, 1), (row, 0), (BM, ROOM), (1, 0))
    return tl.load(tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)


@triton.jit
def weights(w, WIDTH, ROOM: tl.constexpr):
    d = tl.arange(0, ROOM)
    return tl.load(w + d, mask=d < WIDTH, other=0.0)[None, :]


@triton.jit
def rotated(qkv, positions, cos, sin, norm_w, m, row, col, STRIDE, HALF, NORM, EPS, BM: tl.constexpr,
            HP: tl.constexpr):
    """Both halves of the head at column `col`, normed with `norm_w` if NORM is 1, then rotated."""
    a = columns(qkv, m, row, col, STRIDE, HALF, BM, HP)
    b = columns(qkv, m, row, col + HALF, STRIDE, HALF, BM, HP)
    if NORM == 1:
        scale = tl.rsqrt(tl.sum(a * a + b * b, 1) / (2 * HALF) + EPS)
        a = a * scale[:, None] * weights(norm_w, HALF, HP)
        b = b * scale[:, None] * weights(norm_w + HALF, HALF, HP)

    t = row + tl.arange(0, BM)
    d = tl.arange(0, HP)
    live = (t < m)[:, None] & (d < HALF)[None, :]
    position = tl.load(positions + t, mask=t < m, other=0)
    entry = position[:, None] * HALF + d[None, :]
    c = tl.load(cos + entry, mask=live, other=0.0)
    s = tl.load(sin + entry, mask=live, other=0.0)
    return a * c - b * s, b * c + a * s


@triton.jit
def half(out, x, m, row, col, WIDTH, HALF, BM: tl.constexpr, HP: tl.constexpr):
    tile = tl.make_block_ptr(out + col, (m, HALF), (WIDTH, 1), (row, 0), (BM, HP), (1, 0))
    tl.store(tile, x.to(out.dtype.element_ty), boundary_check=(0, 1))
