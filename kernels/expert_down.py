"""The second matrix of the experts that a row chose: `out[t, j] = x[t, j] w^T` of expert `ids[t, j]`.

A program computes a tile of BM rows for one expert. If WHOLE is 0, a lane is a row and one of its choices; LANES lanes hold all choices
of the rows, and those that chose the expert are stored. That suits a processor, which computes no other lane (`expert_glu`). If WHOLE
is 1, a lane is a row: it reads the choice that is the expert, and of a row that chose the expert twice, which no router does, the last
one. An index outside of the experts counts as the nearest one.
"""
import triton
import triton.language as tl
from chosen import chose
from product import plus, start, upright


# /// contract
# shape = "rowwise"
# grid = ["cdiv(rows, BM)", "cdiv(N, BN)", "E"]
# text = ["WHOLE", "LANES", "BK", "SWAP"]
# [params]
# x = "in 0"
# ids = "in 1 i32"
# rows = "rows"
# w = "weight 0"
# out = "out 0"
# K = "dim 1..1048576"
# N = "dim 1..1048576"
# E = "dim 1..4096"
# [shapes]
# x = ["rows", "TOPK", "K"]
# ids = ["rows", "TOPK"]
# w = ["E", "N", "K"]
# out = ["rows", "TOPK", "N"]
# ///
@triton.jit
def expert_down(x, ids, rows, w, out, K, N, E, TOPK: tl.constexpr, WHOLE: tl.constexpr, LANES: tl.constexpr, BM: tl.constexpr,
                BN: tl.constexpr, BK: tl.constexpr, SWAP: tl.constexpr):
    m = tl.load(rows)
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    expert = tl.program_id(2)
    own = w + expert.to(tl.int64) * N * K
    w_tile = tl.make_block_ptr(own, (K, N), (1, K), (0, col), (BK, BN), (0, 1))
    n = col + tl.arange(0, BN)
    acc = start(LANES, BN, SWAP)
    if WHOLE == 1:
        t = row + tl.arange(0, LANES)
        place = tl.zeros((LANES,), tl.int32)
        wanted = t < 0
        for j in tl.static_range(TOPK):
            mine = chose(ids + t * TOPK + j, t < m, expert, E)
            place = tl.where(mine, j, place)
            wanted |= mine
        x_row = x + (t * TOPK + place).to(tl.int64)[:, None] * K
        for first in range(0, tl.where(tl.max(wanted.to(tl.int32), 0) > 0, K, 0), BK):
            k = first + tl.arange(0, BK)
            a = tl.load(x_row + k[None, :], mask=(t < m)[:, None] & (k < K)[None, :], other=0.0)
            b = tl.load(w_tile, boundary_check=(0, 1), padding_option="zero")
            acc = plus(acc, a, b, SWAP)
            w_tile = tl.advance(w_tile, (BK, 0))
        y = upright(acc.to(out.dtype.element_ty), SWAP)
        for j in tl.static_range(TOPK):
            entry = t * TOPK + j
            mine = chose(ids + entry, t < m, expert, E)
            tl.store(out + (entry.to(tl.int64)[:, None] * N + n[None, :]), y, mask=mine[:, None] & (n < N)[None, :])
    else:
        entries = m * TOPK
        x_tile = tl.make_block_ptr(x, (entries, K), (K, 1), (row * TOPK, 0), (LANES, BK), (1, 0))
        for _ in range(0, K, BK):
            a = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
            b = tl.load(w_tile, boundary_check=(0, 1), padding_option="zero")
            acc = plus(acc, a, b, SWAP)
            x_tile = tl.advance(x_tile, (0, BK))
            w_tile = tl.advance(w_tile, (BK, 0))
        lane = tl.arange(0, LANES)
        entry = row * TOPK + lane
        # A tile's last lanes may be the next tile's first.
        mine = chose(ids + entry, (lane < BM * TOPK) & (entry < entries), expert, E)
        y = upright(acc.to(out.dtype.element_ty), SWAP)
        tl.store(out + (entry.to(tl.int64)[:, None] * N + n[None, :]), y, mask=mine[:, None] & (n < N)[None, :])
