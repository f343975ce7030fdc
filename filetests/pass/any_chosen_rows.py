"""Rows of a table that the input's own integers choose: `out[t] = table[ids[t]]`. An index outside of the table counts as the
nearest one."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)"]
# [params]
# ids = "in 0 i32"
# rows = "rows"
# table = "weight 0"
# out = "out 0"
# N = "dim 1..1048576"
# E = "dim 1..4096"
# [constants]
# BM = 4
# BN = 16
# [shapes]
# ids = ["rows", "1"]
# table = ["E", "N"]
# out = ["rows", "N"]
# ///
@triton.jit
def kernel(ids, rows, table, out, N, E, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    live = (t < m)[:, None] & (n < N)[None, :]
    chosen = tl.load(ids + t, mask=t < m, other=0)
    chosen = tl.minimum(tl.maximum(chosen, 0), E - 1)
    v = tl.load(table + (chosen.to(tl.int64)[:, None] * N + n[None, :]), mask=live, other=0.0)
    tl.store(out + (t.to(tl.int64)[:, None] * N + n[None, :]), v, mask=live)
