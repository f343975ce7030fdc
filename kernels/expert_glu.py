"""The gated unit of the experts that a row chose: `out[t, j] = act(x[t] gate^T) * (x[t] up^T)` of expert `ids[t, j]`.

An expert's matrix has N rows of gate, then N rows of up; ACT is as in `linear_glu`, or 2: then gate and up have a bias, the gate is at
most 7, up is within 7 of zero, and the unit is `g / (1 + exp(-1.702 g)) * (up + 1)`, as of gpt-oss. A program computes a tile of rows for
one expert, and stores a row where it chose that expert. If WHOLE is 1, it multiplies nothing for an expert that no row of the tile chose. If WHOLE
is 0, a processor computes only the rows that are stored. An index outside of the experts counts as the nearest one.
"""
import triton
import triton.language as tl
from chosen import chose
from product import along, plus, start, upright


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)", "E"]
# text = ["WHOLE", "BK", "SWAP"]
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
# ACT = "dim 0..2"
# [shapes]
# x = ["rows", "K"]
# ids = ["rows", "TOPK"]
# w = ["E", "2 * N", "K"]
# bias = ["E", "2 * N"]
# out = ["rows", "TOPK", "N"]
# ///
@triton.jit
def expert_glu(x, ids, rows, w, bias, out, K, N, E, ACT, TOPK: tl.constexpr, WHOLE: tl.constexpr, BM: tl.constexpr,
               BN: tl.constexpr, BK: tl.constexpr, SWAP: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    expert = tl.program_id(2)
    n = col + tl.arange(0, BN)
    own_bias = bias + expert.to(tl.int64) * 2 * N + n
    gate_bias = tl.load(own_bias, mask=(n < N) & (ACT == 2), other=0.0)
    up_bias = tl.load(own_bias + N, mask=(n < N) & (ACT == 2), other=0.0)
    own = w + expert.to(tl.int64) * 2 * N * K
    x_tile = tl.make_block_ptr(x, (m, K), (K, 1), (row, 0), (BM, BK), (1, 0))
    gate_tile = tl.make_block_ptr(own, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    up_tile = tl.make_block_ptr(own + N.to(tl.int64) * K, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    gate = start(BM, BN, SWAP)
    up = start(BM, BN, SWAP)
    t = row + tl.arange(0, BM)
    limit = K
    if WHOLE == 1:
        wanted = t < 0
        for j in tl.static_range(TOPK):
            wanted |= chose(ids + t * TOPK + j, t < m, expert, E)
        limit = tl.where(tl.max(wanted.to(tl.int32), 0) > 0, K, 0)
    for _ in range(0, limit, BK):
        a = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        g = tl.load(gate_tile, boundary_check=(0, 1), padding_option="zero")
        u = tl.load(up_tile, boundary_check=(0, 1), padding_option="zero")
        gate = plus(gate, a, g, SWAP)
        up = plus(up, a, u, SWAP)
        x_tile = tl.advance(x_tile, (0, BK))
        gate_tile = tl.advance(gate_tile, (BK, 0))
        up_tile = tl.advance(up_tile, (BK, 0))
    # A branch would double the cases of the proof, of which there is one for each flag.
    held = gate + along(gate_bias, SWAP)
    gate = tl.where(ACT == 2, tl.where(held > 7.0, 7.0, held), gate)
    held = up + along(up_bias, SWAP)
    up = tl.where(ACT == 2, tl.where(held > 7.0, 7.0, tl.where(held < -7.0, -7.0, held)) + 1.0, up)
    z = tl.where(ACT == 1, 1.5957691216057308 * (gate + 0.044715 * (gate * gate * gate)), gate)
    z = tl.where(ACT == 2, 1.702 * gate, z)
    y = upright((gate / (1.0 + tl.exp(-z)) * up).to(out.dtype.element_ty), SWAP)
    for j in tl.static_range(TOPK):
        entry = t * TOPK + j
        mine = chose(ids + entry, t < m, expert, E)
        tl.store(out + (entry.to(tl.int64)[:, None] * N + n[None, :]), y, mask=mine[:, None] & (n < N)[None, :])
