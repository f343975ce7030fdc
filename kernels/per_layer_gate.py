"""A layer's own input, times the GELU of a gate: `out = gelu(gate) * (embedded + projected * rsqrt(mean(projected^2) + EPS) * w)`.

Gemma 4 E2B and E4B give each layer LAYER of LAYERS H numbers of a second embedding table, and the norm of H numbers of a projection of the
first embedding. GELU is in its tanh form, as in `linear_glu`; squares are summed as in `rmsnorm`.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# text = ["BH"]
# where = ["LAYER + 1 <= LAYERS"]
# [params]
# gate = "in 0"
# projected = "in 1"
# embedded = "in 2 f32"
# rows = "rows"
# w = "weight 0 f32"
# out = "out 0"
# LAYERS = "dim 1..1024"
# LAYER = "dim 0..1023"
# H = "dim 1..1048576"
# EPS = "number"
# [shapes]
# gate = ["rows", "H"]
# projected = ["rows", "LAYERS", "H"]
# embedded = ["rows", "LAYERS", "H"]
# w = ["H"]
# out = ["rows", "H"]
# ///
@triton.jit
def per_layer_gate(gate, projected, embedded, rows, w, out, LAYERS, LAYER, H, EPS, BM: tl.constexpr,
                   BH: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    first = LAYER * H
    width = LAYERS * H
    x_tile = tl.make_block_ptr(projected + first, (m, H), (width, 1), (row, 0), (BM, BH), (1, 0))
    squares = tl.zeros((BM, BH), tl.float32)
    for _ in range(0, H, BH):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        squares += v * v
        x_tile = tl.advance(x_tile, (0, BH))
    scale = tl.rsqrt(tl.sum(squares, 1) / H + EPS)

    x_tile = tl.make_block_ptr(projected + first, (m, H), (width, 1), (row, 0), (BM, BH), (1, 0))
    e_tile = tl.make_block_ptr(embedded + first, (m, H), (width, 1), (row, 0), (BM, BH), (1, 0))
    g_tile = tl.make_block_ptr(gate, (m, H), (H, 1), (row, 0), (BM, BH), (1, 0))
    w_tile = tl.make_block_ptr(w, (H,), (1,), (0,), (BH,), (0,))
    out_tile = tl.make_block_ptr(out, (m, H), (H, 1), (row, 0), (BM, BH), (1, 0))
    for _ in range(0, H, BH):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        e = tl.load(e_tile, boundary_check=(0, 1), padding_option="zero")
        g = tl.load(g_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        weight = tl.load(w_tile, boundary_check=(0,), padding_option="zero")
        z = 1.5957691216057308 * (g + 0.044715 * (g * g * g))
        y = g / (1.0 + tl.exp(-z)) * (e + v * scale[:, None] * weight[None, :])
        tl.store(out_tile, y.to(out.dtype.element_ty), boundary_check=(0, 1))
        x_tile = tl.advance(x_tile, (0, BH))
        e_tile = tl.advance(e_tile, (0, BH))
        g_tile = tl.advance(g_tile, (0, BH))
        w_tile = tl.advance(w_tile, (BH,))
        out_tile = tl.advance(out_tile, (0, BH))
