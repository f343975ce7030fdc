#: sibling: any_gate_rows
#: mistake: a row is multiplied by the gate of the row behind it
#: fails: guard
#: replay: differs
"""Rows, each times the sigmoid of a number of its own: `out[t, n] = x[t, n] * sigmoid(gate[t])`, as beside a mixture of experts."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# [params]
# x = "in 0"
# gate = "in 1 f32"
# rows = "rows"
# out = "out 0"
# N = "dim 1..1048576"
# [constants]
# BM = 4
# BN = 16
# [shapes]
# x = ["rows", "N"]
# gate = ["rows"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(x, gate, rows, out, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    t = row + tl.arange(0, BM)
    own = tl.load(gate + t + 1, mask=t + 1 < m, other=0.0)
    x_tile = tl.make_block_ptr(x, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    value = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
    y = value / (1.0 + tl.exp(-own))[:, None]
    out_tile = tl.make_block_ptr(out, (m, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(out_tile, y.to(out.dtype.element_ty), boundary_check=(0, 1))
