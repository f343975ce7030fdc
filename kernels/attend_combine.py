"""The second launch of split attention: one row's partial results, folded split by split in order, for a KV head's query heads.

A row at position p takes the splits s with s * SPLIT <= p, from the first on; rows of its tile that take more splits do
not change it. The first launch has written the output of rows at positions below SPLIT, which this kernel leaves alone.
Lanes and SINKS are as in `attend`.
"""
import triton
import triton.language as tl
from online_softmax import finished, with_split


@triton.jit
def part(parts, at, first, end, HEADS, GROUP, WIDTH, BQ: tl.constexpr, GP: tl.constexpr, ROOM: tl.constexpr):
    """Partial results of the rows `first` to `end` of a tile: WIDTH numbers of each head of a group, in a tile with room for
    ROOM. `at` is the number of heads in front of the group's first one in row 0."""
    CHECK: tl.constexpr = (0, 1) if ROOM == 1 else (0, 1, 2)
    tile = tl.make_block_ptr(parts + at * WIDTH, (end, GROUP, WIDTH), (HEADS * WIDTH, WIDTH, 1), (first, 0, 0),
                             (BQ, GP, ROOM), (2, 1, 0))
    return tl.reshape(tl.load(tile, boundary_check=CHECK, padding_option="zero"), (BQ * GP, ROOM))


# /// contract
# shape = "attend_combine"
# grid = ["tiles", "KV_HEADS", "above(length, SPLIT)"]
# where = ["GROUP <= GP", "D <= DP", "HEIGHT <= BQ"]
# [params]
# tile_row = "tile_row"
# tile_rows = "tile_rows"
# tile_pos = "tile_pos"
# sinks = "weight 0 f32"
# tops = "scratch 0 f32"
# totals = "scratch 1 f32"
# accs = "scratch 2 f32"
# out = "out 0"
# KV_HEADS = "dim 1..1024"
# GROUP = "dim 1..1024"
# D = "dim 1..512"
# HEIGHT = "dim 1..128"
# SINKS = "dim 0..1"
# [shapes]
# sinks = ["KV_HEADS", "GROUP"]
# tops = ["splits", "ROWS", "KV_HEADS", "GROUP"]
# totals = ["splits", "ROWS", "KV_HEADS", "GROUP"]
# accs = ["splits", "ROWS", "KV_HEADS", "GROUP", "D"]
# out = ["rows", "KV_HEADS", "GROUP", "D"]
# ///
@triton.jit
def attend_combine(tile_row, tile_rows, tile_pos, sinks, tops, totals, accs, out, KV_HEADS, GROUP, D, HEIGHT, SINKS,
                   SPLIT: tl.constexpr, ROWS: tl.constexpr, BQ: tl.constexpr, GP: tl.constexpr, DP: tl.constexpr):
    # A tile here has up to HEIGHT rows, and need not be one of `attend`'s tiles.
    HEADS = KV_HEADS * GROUP
    LANES: tl.constexpr = BQ * GP
    tile = tl.program_id(0)
    kv = tl.program_id(1)
    row = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)

    # The tile's rows at positions from SPLIT on; if there are none, `first` is at least `end`.
    skipped = tl.maximum(SPLIT - start, 0)
    first = row + skipped
    end = row + count
    p = start + skipped + tl.arange(0, LANES) // GP  # each lane's logical position
    top = tl.full((LANES,), float("-inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    acc = tl.zeros((LANES, DP), tl.float32)
    for s in range(0, tl.where(count > 0, (start + count + (SPLIT - 1)) // SPLIT, 0)):
        at = s.to(tl.int64) * (ROWS * HEADS) + kv * GROUP
        part_top = tl.reshape(part(tops, at, first, end, HEADS, GROUP, 1, BQ, GP, 1), (LANES,))
        part_total = tl.reshape(part(totals, at, first, end, HEADS, GROUP, 1, BQ, GP, 1), (LANES,))
        part_acc = part(accs, at, first, end, HEADS, GROUP, D, BQ, GP, DP)
        top, total, acc = with_split(top, total, acc, part_top, part_total, part_acc, s, p, SPLIT)

    head = tl.arange(0, LANES) % GP
    sink = tl.load(sinks + kv * GROUP + head, mask=(head < GROUP) & (SINKS == 1), other=0.0)
    result = finished(top, total, acc, sink, SINKS)
    out_tile = tl.make_block_ptr(out + kv * (GROUP * D), (end, GROUP, D), (HEADS * D, D, 1), (first, 0, 0), (BQ, GP, DP),
                                 (2, 1, 0))
    tl.store(out_tile, tl.reshape(result.to(out.dtype.element_ty), (BQ, GP, DP)), boundary_check=(0, 1, 2))
