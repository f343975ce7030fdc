#: sibling: any_expert_glu
#: mistake: an index outside of the experts has no program, and its cells are never written
#: fails: coverage
#: replay: differs
"""The gated unit of the experts that a row chose: `out[t, j] = act(x[t] gate^T) * (x[t] up^T)` of expert `ids[t, j]`.

A program computes a tile of rows for one expert, and stores a row where it chose that expert. An index outside of the experts
counts as the nearest one.
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
# ACT = "dim 0..1"
# [constants]
# TOPK = 3
# BM = 16
# BN = 16
# BK = 16
# [shapes]
# x = ["rows", "K"]
# ids = ["rows", "TOPK"]
# w = ["E", "2 * N", "K"]
# out = ["rows", "TOPK", "N"]
# ///
@triton.jit
def kernel(x, ids, rows, w, out, K, N, E, ACT, TOPK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    expert = tl.program_id(2)
    own = w + expert.to(tl.int64) * 2 * N * K
    x_tile = tl.make_block_ptr(x, (m, K), (K, 1), (row, 0), (BM, BK), (1, 0))
    gate_tile = tl.make_block_ptr(own, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    up_tile = tl.make_block_ptr(own + N.to(tl.int64) * K, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    gate = tl.zeros((BM, BN), tl.float32)
    up = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        g = tl.load(gate_tile, boundary_check=(0, 1), padding_option="zero")
        u = tl.load(up_tile, boundary_check=(0, 1), padding_option="zero")
        gate = tl.dot(a, g, gate, input_precision="ieee")
        up = tl.dot(a, u, up, input_precision="ieee")
        x_tile = tl.advance(x_tile, (0, BK))
        gate_tile = tl.advance(gate_tile, (BK, 0))
        up_tile = tl.advance(up_tile, (BK, 0))
    z = gate
    if ACT == 1:
        z = 1.5957691216057308 * (gate + 0.044715 * (gate * gate * gate))
    y = (gate / (1.0 + tl.exp(-z)) * up).to(out.dtype.element_ty)
    t = row + tl.arange(0, BM)
    n = col + tl.arange(0, BN)
    for j in tl.static_range(TOPK):
        entry = t * TOPK + j
        chosen = tl.load(ids + entry, mask=t < m, other=0)
        mine = (t < m) & (chosen == expert)
        tl.store(out + (entry.to(tl.int64)[:, None] * N + n[None, :]), y, mask=mine[:, None] & (n < N)[None, :])
