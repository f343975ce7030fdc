"""RMS norm of chosen rows: reads packed row `row_index[i]`, writes compact row i.

The same operations in the same order as `rmsnorm`; only the row it reads differs.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# [params]
# x = "in 0 f32"
# row_index = "row_index"
# rows = "rows"
# w = "weight 0 f32"
# out = "out 0"
# ///
@triton.jit
def rmsnorm_gather(x, row_index, rows, w, out, H: tl.constexpr, EPS: tl.constexpr, BM: tl.constexpr,
                   BH: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    i = row + tl.arange(0, BM)
    source = tl.load(row_index + i, mask=i < m, other=0)
    x_row = source.to(tl.int64)[:, None] * H
    squares = tl.zeros((BM, BH), tl.float32)
    for start in range(0, H, BH):
        h = start + tl.arange(0, BH)
        live = (i < m)[:, None] & (h < H)[None, :]
        v = tl.load(x + (x_row + h[None, :]), mask=live, other=0.0)
        squares += v * v
    scale = tl.rsqrt(tl.sum(squares, 1) / H + EPS)

    w_tile = tl.make_block_ptr(w, (H,), (1,), (0,), (BH,), (0,))
    out_tile = tl.make_block_ptr(out, (m, H), (H, 1), (row, 0), (BM, BH), (1, 0))
    for start in range(0, H, BH):
        h = start + tl.arange(0, BH)
        live = (i < m)[:, None] & (h < H)[None, :]
        v = tl.load(x + (x_row + h[None, :]), mask=live, other=0.0)
        weight = tl.load(w_tile, boundary_check=(0,), padding_option="zero")
        y = v * scale[:, None] * weight[None, :]
        tl.store(out_tile, y.to(out.dtype.element_ty), boundary_check=(0, 1))
        w_tile = tl.advance(w_tile, (BH,))
        out_tile = tl.advance(out_tile, (0, BH))
