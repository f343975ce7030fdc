#: sibling: any_expert_down_whole
#: mistake: an expert is multiplied only if no row of the tile chose the next one
#: fails: loop-range
#: replay: differs
"""The second matrix of the experts that a row chose: `out[t, j] = x[t, j] w^T` of expert `ids[t, j]`, by a device that computes
whole tiles: a lane is a row, which reads the choice that is the expert, and an expert that no row of a tile chose is not multiplied.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)", "E"]
# text = ["BK"]
# [params]
# x = "in 0"
# ids = "in 1 i32"
# rows = "rows"
# w = "weight 0"
# out = "out 0"
# K = "dim 1..1048576"
# N = "dim 1..1048576"
# E = "dim 1..4096"
# [constants]
# TOPK = 3
# BM = 16
# BN = 16
# BK = 16
# [shapes]
# x = ["rows", "TOPK", "K"]
# ids = ["rows", "TOPK"]
# w = ["E", "N", "K"]
# out = ["rows", "TOPK", "N"]
# ///
@triton.jit
def kernel(x, ids, rows, w, out, K, N, E, TOPK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    expert = tl.program_id(2)
    own = w + expert.to(tl.int64) * N * K
    w_tile = tl.make_block_ptr(own, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    n = col + tl.arange(0, BN)
    t = row + tl.arange(0, BM)
    place = tl.zeros((BM,), tl.int32)
    wanted = t < 0
    for j in tl.static_range(TOPK):
        chosen = tl.load(ids + t * TOPK + j, mask=t < m, other=0)
        mine = (t < m) & (tl.minimum(tl.maximum(chosen, 0), E - 1) == expert)
        place = tl.where(mine, j, place)
        wanted |= mine
    x_row = x + (t * TOPK + place).to(tl.int64)[:, None] * K
    others = tl.load(ids + t * TOPK, mask=t < m, other=0)
    limit = tl.where(tl.max(((t < m) & (others == expert + 1)).to(tl.int32), 0) > 0, 0, K)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, limit, BK):
        k = first + tl.arange(0, BK)
        a = tl.load(x_row + k[None, :], mask=(t < m)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(w_tile, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc, input_precision="ieee")
        w_tile = tl.advance(w_tile, (BK, 0))
    y = acc.to(out.dtype.element_ty)
    for j in tl.static_range(TOPK):
        entry = t * TOPK + j
        chosen = tl.load(ids + entry, mask=t < m, other=0)
        mine = (t < m) & (tl.minimum(tl.maximum(chosen, 0), E - 1) == expert)
        tl.store(out + (entry.to(tl.int64)[:, None] * N + n[None, :]), y, mask=mine[:, None] & (n < N)[None, :])
