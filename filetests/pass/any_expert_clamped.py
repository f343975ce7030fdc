"""The clamped unit of the experts that a row chose, as of gpt-oss: gate and up have a bias, the gate is at most 7, up is within 7 of
zero, and `out[t, j] = gate / (1 + exp(-1.702 gate)) * (up + 1)` of expert `ids[t, j]`.

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
# bias = "weight 1 f32"
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
# x = ["rows", "K"]
# ids = ["rows", "TOPK"]
# w = ["E", "2 * N", "K"]
# bias = ["E", "2 * N"]
# out = ["rows", "TOPK", "N"]
# ///
@triton.jit
def kernel(x, ids, rows, w, bias, out, K, N, E, TOPK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    expert = tl.program_id(2)
    n = col + tl.arange(0, BN)
    own_bias = bias + expert.to(tl.int64) * 2 * N + n
    gate_bias = tl.load(own_bias, mask=n < N, other=0.0)
    up_bias = tl.load(own_bias + N, mask=n < N, other=0.0)
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
    gate = gate + gate_bias[None, :]
    up = up + up_bias[None, :]
    gate = tl.where(gate > 7.0, 7.0, gate)
    up = tl.where(up > 7.0, 7.0, tl.where(up < -7.0, -7.0, up)) + 1.0
    y = (gate / (1.0 + tl.exp(-1.702 * gate)) * up).to(out.dtype.element_ty)
    t = row + tl.arange(0, BM)
    for j in tl.static_range(TOPK):
        entry = t * TOPK + j
        chosen = tl.load(ids + entry, mask=t < m, other=0)
        chosen = tl.minimum(tl.maximum(chosen, 0), E - 1)
        mine = (t < m) & (chosen == expert)
        tl.store(out + (entry.to(tl.int64)[:, None] * N + n[None, :]), y, mask=mine[:, None] & (n < N)[None, :])
