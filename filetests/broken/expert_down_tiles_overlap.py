#: sibling: any_expert_down
#: mistake: a tile stores its last lanes, which are the next tile's first
#: fails: single-writer
#: replay: none
"""The second matrix of the experts that a row chose: `out[t, j] = x[t, j] w^T` of expert `ids[t, j]`.

A lane of a tile is a row and a choice. A program computes a tile for one expert, and stores the lanes that chose that expert. An
index outside of the experts counts as the nearest one.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)", "E"]
# text = ["LANES", "BK"]
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
# LANES = 64
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
def kernel(x, ids, rows, w, out, K, N, E, TOPK: tl.constexpr, LANES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):
    entries = tl.load(rows) * TOPK
    first = tl.program_id(0) * BM * TOPK
    col = tl.program_id(1) * BN
    expert = tl.program_id(2)
    own = w + expert.to(tl.int64) * N * K
    x_tile = tl.make_block_ptr(x, (entries, K), (K, 1), (first, 0), (LANES, BK), (1, 0))
    w_tile = tl.make_block_ptr(own, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    acc = tl.zeros((LANES, BN), tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(w_tile, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc, input_precision="ieee")
        x_tile = tl.advance(x_tile, (0, BK))
        w_tile = tl.advance(w_tile, (BK, 0))
    lane = tl.arange(0, LANES)
    entry = first + lane
    # A tile's last lanes may be the next tile's first.
    live = entry < entries
    chosen = tl.load(ids + entry, mask=live, other=0)
    chosen = tl.minimum(tl.maximum(chosen, 0), E - 1)
    mine = live & (chosen == expert)
    n = col + tl.arange(0, BN)
    y = acc.to(out.dtype.element_ty)
    tl.store(out + (entry.to(tl.int64)[:, None] * N + n[None, :]), y, mask=mine[:, None] & (n < N)[None, :])
