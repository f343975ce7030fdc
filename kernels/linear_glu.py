"""Gated linear unit: `out = act(x gate^T) * (x up^T)`; w has N rows of gate, then N rows of up.

If ACT is 0, act is SiLU, `g / (1 + exp(-g))`; if ACT is 1, act is GELU in its tanh form, `g / (1 + exp(-2u))` with
`u = sqrt(2 / pi) * (g + 0.044715 g^3)`.
"""
import triton
import triton.language as tl
from product import plus, start, upright


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# text = ["BK", "SWAP"]
# [params]
# x = "in 0"
# rows = "rows"
# w = "weight 0"
# out = "out 0"
# K = "dim 1..1048576"
# N = "dim 1..1048576"
# ACT = "dim 0..1"
# [shapes]
# x = ["rows", "K"]
# w = ["2 * N", "K"]
# out = ["rows", "N"]
# ///
@triton.jit
def linear_glu(x, rows, w, out, K, N, ACT, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SWAP: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    x_tile = tl.make_block_ptr(x, (m, K), (K, 1), (row, 0), (BM, BK), (1, 0))
    gate_tile = tl.make_block_ptr(w, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    up_tile = tl.make_block_ptr(w + N.to(tl.int64) * K, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    gate = start(BM, BN, SWAP)
    up = start(BM, BN, SWAP)
    for _ in range(0, K, BK):
        a = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        g = tl.load(gate_tile, boundary_check=(0, 1), padding_option="zero")
        u = tl.load(up_tile, boundary_check=(0, 1), padding_option="zero")
        gate = plus(gate, a, g, SWAP)
        up = plus(up, a, u, SWAP)
        x_tile = tl.advance(x_tile, (0, BK))
        gate_tile = tl.advance(gate_tile, (BK, 0))
        up_tile = tl.advance(up_tile, (BK, 0))
    z = gate
    if ACT == 1:
        z = 1.5957691216057308 * (gate + 0.044715 * (gate * gate * gate))
    y = gate / (1.0 + tl.exp(-z)) * up
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, upright(y.to(out.dtype.element_ty), SWAP), boundary_check=(0, 1))
