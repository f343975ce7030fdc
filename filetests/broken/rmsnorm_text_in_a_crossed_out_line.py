#: sibling: rmsnorm
#: mistake: what only shapes the text stands in a line that is crossed out
#: fails: contract
#: replay: none
"""RMS norm: `out = x * rsqrt(mean(x^2) + EPS) * w`, all in FP32 with one cast at the end.

The squares are summed per column block first and across a block's columns last.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
## text = ["EPS", "BH"]
# [params]
# x = "in 0"
# rows = "rows"
# w = "weight 0 f32"
# out = "out 0"
# [constants]
# H = 40
# EPS = 1e-6
# BM = 4
# BH = 16
# [shapes]
# x = ["rows", "H"]
# w = ["H"]
# out = ["rows", "H"]
# ///
@triton.jit
def kernel(x, rows, w, out, H: tl.constexpr, EPS: tl.constexpr, BM: tl.constexpr, BH: tl.constexpr):
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
    w_tile = tl.make_block_ptr(w, (H,), (1,), (0,), (BH,), (0,))
    out_tile = tl.make_block_ptr(out, (m, H), (H, 1), (row, 0), (BM, BH), (1, 0))
    for _ in range(0, H, BH):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        weight = tl.load(w_tile, boundary_check=(0,), padding_option="zero")
        y = v * scale[:, None] * weight[None, :]
        tl.store(out_tile, y.to(out.dtype.element_ty), boundary_check=(0, 1))
        x_tile = tl.advance(x_tile, (0, BH))
        w_tile = tl.advance(w_tile, (BH,))
        out_tile = tl.advance(out_tile, (0, BH))
