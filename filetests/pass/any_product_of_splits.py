"""A second launch of split attention that multiplies what the first split came to by numbers of later splits.

A row takes a split in which it does not see its last key as the factor 1, which leaves the product as it was: no number that
arithmetic gives is denormal, and a denormal operand is zero.
"""
import triton
import triton.language as tl


@triton.jit
def state(parts, at, first, end, HEADS, BQ: tl.constexpr, WIDTH: tl.constexpr):
    """Partial results for the rows `first` to `end` of a tile; `at` counts heads before the wanted one's in row 0."""
    tile = tl.make_block_ptr(parts + at * WIDTH, (end, WIDTH), (HEADS * WIDTH, 1), (first, 0), (BQ, WIDTH), (1, 0))
    return tl.load(tile, boundary_check=(0,), padding_option="zero")


# /// contract
# shape = "attend_combine"
# grid = ["tiles", "HEADS", "above(length, SPLIT)"]
# [params]
# tile_row = "tile_row"
# tile_rows = "tile_rows"
# tile_pos = "tile_pos"
# tops = "scratch 0 f32"
# accs = "scratch 1 f32"
# out = "out 0 f32"
# HEADS = "dim 1..4096"
# KV_HEADS = "dim 1..4096"
# [constants]
# D = 16
# SPLIT = 8
# ROWS = 64
# BQ = 16
# [shapes]
# tops = ["splits", "ROWS", "HEADS"]
# accs = ["splits", "ROWS", "HEADS", "D"]
# out = ["rows", "HEADS", "D"]
# ///
@triton.jit
def kernel(tile_row, tile_rows, tile_pos, tops, accs, out, HEADS, KV_HEADS, D: tl.constexpr,
                   SPLIT: tl.constexpr, ROWS: tl.constexpr, BQ: tl.constexpr):
    # KV_HEADS is there for the tile's height, which is `attend_part`'s.
    tile = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.load(tile_row + tile)
    count = tl.load(tile_rows + tile)
    start = tl.load(tile_pos + tile)

    # The tile's rows at position SPLIT and after it; where there are none, `first` is no less than `end`.
    skipped = tl.maximum(SPLIT - start, 0)
    first = row + skipped
    end = row + count
    p = start + skipped + tl.arange(0, BQ)[:, None]  # each row's logical position

    # `+ 0.0` makes a zero of a denormal number.
    product = state(accs, head, first, end, HEADS, BQ, D) + 0.0
    for s in range(1, tl.where(count > 0, (start + count + (SPLIT - 1)) // SPLIT, 0) - 1):
        at = s.to(tl.int64) * (ROWS * HEADS) + head
        factor = state(tops, at, first, end, HEADS, BQ, 1)
        product = product * tl.where((s + 1) * SPLIT <= p, factor, 1.0)

    out_tile = tl.make_block_ptr(out + head * D, (end, D), (HEADS * D, 1), (first, 0), (BQ, D), (1, 0))
    tl.store(out_tile, product, boundary_check=(0,))
