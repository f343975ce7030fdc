#: sibling: any_embed
#: mistake: a launcher reads `H * 0 + 1` as one program, and whoever splits it at `*` first as H of them
#: fails: contract
#: replay: none
"""One row of the embedding table per token, scaled in FP32."""
import triton
import triton.language as tl


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "H * 0 + 1"]
# text = ["BH"]
# [params]
# tokens = "tokens"
# rows = "rows"
# w = "weight 0"
# out = "out 0"
# V = "dim 1..2097152"
# H = "dim 1..1048576"
# SCALE = "number"
# [constants]
# BM = 16
# BH = 1
# [shapes]
# w = ["V", "H"]
# out = ["rows", "H"]
# ///
@triton.jit
def kernel(tokens, rows, w, out, V, H, SCALE, BM: tl.constexpr,
          BH: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BH
    t = row + tl.arange(0, BM)
    h = col + tl.arange(0, BH)
    token = tl.load(tokens + t, mask=t < m, other=0)
    cell = token.to(tl.int64)[:, None] * H + h[None, :]
    x = tl.load(w + cell, mask=(t < m)[:, None] & (h < H)[None, :], other=0.0).to(tl.float32) * SCALE
    out_tile = tl.make_block_ptr(out, (m, H), (H, 1), (row, col), (BM, BH), (1, 0))
    tl.store(out_tile, x.to(out.dtype.element_ty), boundary_check=(0, 1))
