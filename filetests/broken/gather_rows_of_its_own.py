#: sibling: gather
#: mistake: what is gathered is declared to have as many rows as are chosen
#: fails: contract
#: replay: none
"""Chosen rows: reads packed row `row_index[i]` of the attention's output and of the residual stream, writes compact row i.

What follows on the last layer's attention is computed for these rows alone: in a prefill, for one of hundreds.
"""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)"]
# text = ["BH"]
# [params]
# x = "in 0"
# residual = "in 1 f32"
# row_index = "row_index"
# rows = "rows"
# out = "out 0"
# stream = "out 1 f32"
# [constants]
# K = 24
# H = 40
# BM = 4
# BH = 16
# [shapes]
# x = ["rows", "K"]
# residual = ["packed", "H"]
# out = ["rows", "K"]
# stream = ["rows", "H"]
# ///
@triton.jit
def kernel(x, residual, row_index, rows, out, stream, K: tl.constexpr, H: tl.constexpr, BM: tl.constexpr,
           BH: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    i = row + tl.arange(0, BM)
    source = tl.load(row_index + i, mask=i < m, other=0).to(tl.int64)[:, None]

    out_tile = tl.make_block_ptr(out, (m, K), (K, 1), (row, 0), (BM, BH), (1, 0))
    for start in range(0, K, BH):
        h = start + tl.arange(0, BH)
        live = (i < m)[:, None] & (h < K)[None, :]
        tl.store(out_tile, tl.load(x + (source * K + h[None, :]), mask=live, other=0.0), boundary_check=(0, 1))
        out_tile = tl.advance(out_tile, (0, BH))

    stream_tile = tl.make_block_ptr(stream, (m, H), (H, 1), (row, 0), (BM, BH), (1, 0))
    for start in range(0, H, BH):
        h = start + tl.arange(0, BH)
        live = (i < m)[:, None] & (h < H)[None, :]
        tl.store(stream_tile, tl.load(residual + (source * H + h[None, :]), mask=live, other=0.0), boundary_check=(0, 1))
        stream_tile = tl.advance(stream_tile, (0, BH))
