"""The second launch of top-k: the K largest of a row's candidates, of which each part of its columns has K."""
import triton
import triton.language as tl
from selection import select


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# where = ["N <= BN"]
# [params]
# x = "in 0 f32"
# at = "in 1 f32"
# rows = "rows"
# values = "out 0 f32"
# columns = "out 1 f32"
# N = "dim 1..1048576"
# [shapes]
# x = ["rows", "N"]
# at = ["rows", "N"]
# values = ["rows", "K"]
# columns = ["rows", "K"]
# ///
@triton.jit
def topk_combine(x, at, rows, values, columns, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    x_tile = tl.make_block_ptr(x, (m, N), (N, 1), (row, 0), (BM, BN), (1, 0))
    at_tile = tl.make_block_ptr(at, (m, N), (N, 1), (row, 0), (BM, BN), (1, 0))
    v = tl.load(x_tile, boundary_check=(0, 1), padding_option="nan")
    column = tl.load(at_tile, boundary_check=(0, 1), padding_option="nan")
    v, column = select(v, column, K, BM)
    values_tile = tl.make_block_ptr(values, (m, K), (K, 1), (row, 0), (BM, K), (1, 0))
    tl.store(values_tile, v, boundary_check=(0,))
    columns_tile = tl.make_block_ptr(columns, (m, K), (K, 1), (row, 0), (BM, K), (1, 0))
    tl.store(columns_tile, column, boundary_check=(0,))
