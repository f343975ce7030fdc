#: sibling: any_rmsnorm_groups
#: mistake: a group's squares are summed to the end of the row's width
#: fails: in-bounds
#: replay: differs
"""RMS norm of each of a row's GROUPS groups of H numbers: `out = x * rsqrt(mean(x^2) + EPS) * w`, in FP32 with one cast at the end.

Squares are summed as in `rmsnorm`. One program has a group.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "GROUPS"]
# text = ["BH"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# w = "weight 0 f32"
# out = "out 0"
# GROUPS = "dim 1..1024"
# H = "dim 1..1048576"
# EPS = "number"
# [constants]
# BM = 4
# BH = 16
# [shapes]
# x = ["rows", "GROUPS", "H"]
# w = ["GROUPS", "H"]
# out = ["rows", "GROUPS", "H"]
# ///
@triton.jit
def kernel(x, rows, w, out, GROUPS, H, EPS, BM: tl.constexpr, BH: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    first = tl.program_id(1) * H
    width = GROUPS * H
    x_tile = tl.make_block_ptr(x + first, (m, width), (width, 1), (row, 0), (BM, BH), (1, 0))
    squares = tl.zeros((BM, BH), tl.float32)
    for _ in range(0, H, BH):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        squares += v * v
        x_tile = tl.advance(x_tile, (0, BH))
    scale = tl.rsqrt(tl.sum(squares, 1) / H + EPS)

    x_tile = tl.make_block_ptr(x + first, (m, H), (width, 1), (row, 0), (BM, BH), (1, 0))
    w_tile = tl.make_block_ptr(w + first, (H,), (1,), (0,), (BH,), (0,))
    out_tile = tl.make_block_ptr(out + first, (m, H), (width, 1), (row, 0), (BM, BH), (1, 0))
    for _ in range(0, H, BH):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        weight = tl.load(w_tile, boundary_check=(0,), padding_option="zero")
        y = v * scale[:, None] * weight[None, :]
        tl.store(out_tile, y.to(out.dtype.element_ty), boundary_check=(0, 1))
        x_tile = tl.advance(x_tile, (0, BH))
        w_tile = tl.advance(w_tile, (BH,))
        out_tile = tl.advance(out_tile, (0, BH))
