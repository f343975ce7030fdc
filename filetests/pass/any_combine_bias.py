"""The outputs of a row's experts and the biases of these experts, each times its share, added in the order of the choice to the residual
stream, in FP32. An index outside of the experts counts as the nearest one."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(H, BH)"]
# [params]
# y = "in 0"
# shares = "in 1 f32"
# residual = "in 2 f32"
# ids = "in 3 i32"
# rows = "rows"
# bias = "weight 0 f32"
# out = "out 0 f32"
# H = "dim 1..1048576"
# TOPK = "dim 1..64"
# E = "dim 1..4096"
# SCALE = "number"
# [constants]
# BM = 4
# BH = 16
# [shapes]
# y = ["rows", "TOPK", "H"]
# shares = ["rows", "TOPK"]
# residual = ["rows", "H"]
# ids = ["rows", "TOPK"]
# bias = ["E", "H"]
# out = ["rows", "H"]
# ///
@triton.jit
def kernel(y, shares, residual, ids, rows, bias, out, H, TOPK, E, SCALE, BM: tl.constexpr, BH: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BH
    t = row + tl.arange(0, BM)
    n = col + tl.arange(0, BH)
    stride = H.to(tl.int64) * TOPK
    total = tl.zeros((BM, BH), tl.float32)
    for j in range(0, TOPK):
        y_tile = tl.make_block_ptr(y + H.to(tl.int64) * j, (m, H), (stride, 1), (row, col), (BM, BH), (1, 0))
        part = tl.load(y_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        share = tl.load(shares + (t * TOPK + j), mask=t < m, other=0.0)
        chosen = tl.load(ids + (t * TOPK + j), mask=t < m, other=0)
        chosen = tl.minimum(tl.maximum(chosen, 0), E - 1).to(tl.int64)
        own = tl.load(bias + (chosen[:, None] * H + n[None, :]), mask=(n < H)[None, :], other=0.0)
        total += (part + own) * share[:, None]
    residual_tile = tl.make_block_ptr(residual, (m, H), (H, 1), (row, col), (BM, BH), (1, 0))
    r = tl.load(residual_tile, boundary_check=(0, 1), padding_option="zero")
    out_tile = tl.make_block_ptr(out, (m, H), (H, 1), (row, col), (BM, BH), (1, 0))
    tl.store(out_tile, r + total * SCALE, boundary_check=(0, 1))
