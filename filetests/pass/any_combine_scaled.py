"""The outputs of a row's experts, each times its share and its expert's factor, added in the order of the choice, in FP32. An index
outside of the experts counts as the nearest one."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(H, BH)"]
# [params]
# y = "in 0"
# shares = "in 1 f32"
# ids = "in 2 i32"
# rows = "rows"
# factor = "weight 0 f32"
# out = "out 0 f32"
# H = "dim 1..1048576"
# TOPK = "dim 1..64"
# E = "dim 1..4096"
# [constants]
# BM = 4
# BH = 16
# [shapes]
# y = ["rows", "TOPK", "H"]
# shares = ["rows", "TOPK"]
# ids = ["rows", "TOPK"]
# factor = ["E"]
# out = ["rows", "H"]
# ///
@triton.jit
def kernel(y, shares, ids, rows, factor, out, H, TOPK, E, BM: tl.constexpr, BH: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BH
    t = row + tl.arange(0, BM)
    stride = H.to(tl.int64) * TOPK
    total = tl.zeros((BM, BH), tl.float32)
    for j in range(0, TOPK):
        y_tile = tl.make_block_ptr(y + H.to(tl.int64) * j, (m, H), (stride, 1), (row, col), (BM, BH), (1, 0))
        part = tl.load(y_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        share = tl.load(shares + (t * TOPK + j), mask=t < m, other=0.0)
        chosen = tl.load(ids + (t * TOPK + j), mask=t < m, other=0)
        chosen = tl.minimum(tl.maximum(chosen, 0), E - 1)
        total += part * (share * tl.load(factor + chosen))[:, None]
    out_tile = tl.make_block_ptr(out, (m, H), (H, 1), (row, col), (BM, BH), (1, 0))
    tl.store(out_tile, total, boundary_check=(0, 1))
