"""As `rmsnorm_add`, with the sum times a factor: `out = (residual + norm(x) * w) * factor`, in FP32.

Gemma 4 multiplies each layer's output by a learned scalar; `factor` has that scalar in every column.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# text = ["BH"]
# [params]
# residual = "in 0 f32"
# x = "in 1"
# rows = "rows"
# w = "weight 0 f32"
# factor = "weight 1 f32"
# out = "out 0 f32"
# H = "dim 1..1048576"
# EPS = "number"
# [shapes]
# residual = ["rows", "H"]
# x = ["rows", "H"]
# w = ["H"]
# factor = ["H"]
# out = ["rows", "H"]
# ///
@triton.jit
def rmsnorm_add_scaled(residual, x, rows, w, factor, out, H, EPS, BM: tl.constexpr,
                       BH: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    x_tile = tl.make_block_ptr(x, (m, H), (H, 1), (row, 0), (BM, BH), (1, 0))
    squares = tl.zeros((BM, BH), tl.float32)
    for _ in range(0, H, BH):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        squares += v * v
        x_tile = tl.advance(x_tile, (0, BH))
    scale = tl.rsqrt(tl.sum(squares, 1) / H + EPS)

    x_tile = tl.make_block_ptr(x, (m, H), (H, 1), (row, 0), (BM, BH), (1, 0))
    residual_tile = tl.make_block_ptr(residual, (m, H), (H, 1), (row, 0), (BM, BH), (1, 0))
    w_tile = tl.make_block_ptr(w, (H,), (1,), (0,), (BH,), (0,))
    factor_tile = tl.make_block_ptr(factor, (H,), (1,), (0,), (BH,), (0,))
    out_tile = tl.make_block_ptr(out, (m, H), (H, 1), (row, 0), (BM, BH), (1, 0))
    for _ in range(0, H, BH):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        r = tl.load(residual_tile, boundary_check=(0, 1), padding_option="zero")
        weight = tl.load(w_tile, boundary_check=(0,), padding_option="zero")
        by = tl.load(factor_tile, boundary_check=(0,), padding_option="zero")
        y = (r + v * scale[:, None] * weight[None, :]) * by[None, :]
        tl.store(out_tile, y, boundary_check=(0, 1))
        x_tile = tl.advance(x_tile, (0, BH))
        residual_tile = tl.advance(residual_tile, (0, BH))
        w_tile = tl.advance(w_tile, (BH,))
        factor_tile = tl.advance(factor_tile, (BH,))
        out_tile = tl.advance(out_tile, (0, BH))
