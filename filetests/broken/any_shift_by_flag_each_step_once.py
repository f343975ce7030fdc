#: sibling: any_shift_by_flag_each_step
#: mistake: each step is shifted by the tile's largest number, in an inner loop of one turn whatever the flag
#: fails: guard
#: replay: differs
"""A row's sum, step by step; where the flag is 1, each step is shifted by its own largest number."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# text = ["BN"]
# [params]
# x = "in 0 f32"
# rows = "rows"
# out = "out 0 f32"
# N = "dim 1..1048576"
# FLAG = "dim 0..1"
# [constants]
# BM = 4
# BN = 16
# [shapes]
# x = ["rows", "N"]
# out = ["rows"]
# ///
@triton.jit
def kernel(x, rows, out, N, FLAG, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    x_tile = tl.make_block_ptr(x, (m, N), (N, 1), (row, 0), (BM, BN), (1, 0))
    total = tl.zeros((BM,), tl.float32)
    for _ in range(0, N, BN):
        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        most = tl.max(v, 1)
        shift = tl.zeros((BM,), tl.float32)
        for _ in range(FLAG, FLAG + 1):
            shift = most + tl.max(most, 0)
            most = most + 1.0
        part = tl.sum(v, 1)
        if tl.max(shift, 0) > 1.0:
            part = part * 2.0
        else:
            part = part * 2.0
        total += part - shift
        x_tile = tl.advance(x_tile, (0, BN))
    out_tile = tl.make_block_ptr(out, (m,), (1,), (row,), (BM,), (0,))
    tl.store(out_tile, total, boundary_check=(0,))
