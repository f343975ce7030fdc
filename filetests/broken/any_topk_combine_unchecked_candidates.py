#: sibling: any_topk_combine
#: mistake: lanes behind the last candidate read the next row
#: fails: in-bounds
#: replay: differs
"""The second launch of top-k: the K largest of a row's candidates, which are K of each stretch of its columns."""
import triton
import triton.language as tl

NONE = tl.constexpr(16777216.0)


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
# [constants]
# K = 4
# BM = 4
# BN = 16
# [shapes]
# x = ["rows", "N"]
# at = ["rows", "N"]
# values = ["rows", "K"]
# columns = ["rows", "K"]
# ///
@triton.jit
def kernel(x, at, rows, values, columns, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    x_tile = tl.make_block_ptr(x, (m, N), (N, 1), (row, 0), (BM, BN), (1, 0))
    at_tile = tl.make_block_ptr(at, (m, N), (N, 1), (row, 0), (BM, BN), (1, 0))
    v = tl.load(x_tile, boundary_check=(0,), padding_option="nan")
    column = tl.load(at_tile, boundary_check=(0, 1), padding_option="nan")
    place = tl.arange(0, K).to(tl.float32)[None, :]
    found = tl.full((BM, K), float("-inf"), tl.float32)
    stands = tl.full((BM, K), NONE, tl.float32)
    for _ in range(0, K):
        largest = tl.maximum(tl.max(v, 1), float("-inf"))[:, None]
        first = tl.min(tl.where(largest <= v, column, NONE), 1)[:, None]
        found = tl.where(place == 0.0, largest, found)
        stands = tl.where(place == 0.0, first, stands)
        place -= 1.0
        # It has been taken.
        v = tl.where(column == first, float("nan"), v)
    values_tile = tl.make_block_ptr(values, (m, K), (K, 1), (row, 0), (BM, K), (1, 0))
    tl.store(values_tile, found, boundary_check=(0,))
    columns_tile = tl.make_block_ptr(columns, (m, K), (K, 1), (row, 0), (BM, K), (1, 0))
    tl.store(columns_tile, stands, boundary_check=(0,))
