"""The second launch of split attention: one row's partial results, folded split by split in order.

A row at position p takes the splits s with s * SPLIT <= p, from the first on; rows of its tile that take more splits do
not change it. The first launch has written the output of rows at positions below SPLIT, which this kernel leaves alone.
SINKS is as in `attend`.
"""
import triton
import triton.language as tl


@triton.jit
def state(parts, at, first, end, HEADS, WIDTH, BQ: tl.constexpr, ROOM: tl.constexpr):
    """Partial results of the rows `first` to `end` of a tile: WIDTH numbers of each, in a tile with room for ROOM. `at` is the
    number of heads in front of the wanted head in row 0."""
    CHECK: tl.constexpr = (0,) if ROOM == 1 else (0, 1)
    tile = tl.make_block_ptr(parts + at * WIDTH, (end, WIDTH), (HEADS * WIDTH, 1), (first, 0), (BQ, ROOM), (1, 0))
    return tl.load(tile, boundary_check=CHECK, padding_option="zero")


# /// contract
# shape = "attend_combine"
# grid = ["tiles", "HEADS", "above(length, SPLIT)"]
# where = ["D <= DP", "HEIGHT <= BQ"]
# [params]
# tile_row = "tile_row"
# tile_rows = "tile_rows"
# tile_pos = "tile_pos"
# sinks = "weight 0 f32"
# tops = "scratch 0 f32"
# totals = "scratch 1 f32"
# accs = "scratch 2 f32"
# out = "out 0"
# HEADS = "dim 1..4096"
# KV_HEADS = "dim 1..4096"
# D = "dim 1..512"
# HEIGHT = "dim 1..64"
# SINKS = "dim 0..1"
# [shapes]
# sinks = ["HEADS"]
# tops = ["splits", "ROWS", "HEADS"]
# totals = ["splits", "ROWS", "HEADS"]
# accs = ["splits", "ROWS", "HEADS", "D"]
# out = ["rows", "HEADS", "D"]
# ///
@triton.jit
def attend_combine(tile_row, tile_rows, tile_pos, sinks, tops, totals, accs, out, HEADS, KV_HEADS, D, HEIGHT, SINKS,
                   SPLIT: tl.constexpr, ROWS: tl.constexpr, BQ: tl.constexpr, DP: tl.constexpr):
    # Only `attend` uses KV_HEADS. A tile here has up to HEIGHT rows, and need not be one of `attend`'s tiles.
    tile = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)

    # The tile's rows at positions from SPLIT on; if there are none, `first` is at least `end`.
    skipped = tl.maximum(SPLIT - start, 0)
    first = row + skipped
    end = row + count
    p = start + skipped + tl.arange(0, BQ)[:, None]  # each row's logical position

    # Every row sees keys of the first split, so the sum begins with that split's state.
    top = state(tops, head, first, end, HEADS, 1, BQ, 1)
    total = state(totals, head, first, end, HEADS, 1, BQ, 1)
    acc = state(accs, head, first, end, HEADS, D, BQ, DP)
    for s in range(1, tl.where(count > 0, (start + count + (SPLIT - 1)) // SPLIT, 0)):
        at = s.to(tl.int64) * (ROWS * HEADS) + head
        part_top = state(tops, at, first, end, HEADS, 1, BQ, 1)
        part_total = state(totals, at, first, end, HEADS, 1, BQ, 1)
        part_acc = state(accs, at, first, end, HEADS, D, BQ, DP)
        new_top = tl.maximum(top, part_top)
        decay = tl.exp2(top - new_top)
        weight = tl.exp2(part_top - new_top)
        new_total = total * decay + part_total * weight
        new_acc = acc * decay + part_acc * weight

        # A split that begins behind a row does not change the row's state, bit for bit.
        touched = s * SPLIT <= p
        top = tl.where(touched, new_top, top)
        total = tl.where(touched, new_total, total)
        acc = tl.where(touched, new_acc, acc)

    sink = tl.load(sinks + head, mask=SINKS == 1, other=0.0)
    total += tl.where(SINKS == 1, tl.exp2(sink - top), 0.0)
    result = acc / total + 0.0
    out_tile = tl.make_block_ptr(out + head * D, (end, D), (HEADS * D, 1), (first, 0), (BQ, DP), (1, 0))
    tl.store(out_tile, result.to(out.dtype.element_ty), boundary_check=(0, 1))
