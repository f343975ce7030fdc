"""The sum of a linear layer's loop, `acc[t, n] += sum_k a[t, k] * b[k, n]`, in one of two orientations.

If SWAP is 1, rows t lie on the matrix instruction's axis N, and `acc` is kept transposed: b^T a^T. Matrix instructions have
64 or more rows M and 8 to 256 columns N, so that tiles of few tokens and of many use one family of instructions. Kernels
of several heights then need one assumption less than with two families.
"""
import triton
import triton.language as tl


@triton.jit
def start(BM: tl.constexpr, BN: tl.constexpr, SWAP: tl.constexpr):
    if SWAP == 1:
        acc = tl.zeros((BN, BM), tl.float32)
    else:
        acc = tl.zeros((BM, BN), tl.float32)
    return acc


@triton.jit
def plus(acc, a, b, SWAP: tl.constexpr):
    if SWAP == 1:
        acc = tl.dot(tl.trans(b), tl.trans(a), acc, input_precision="ieee")
    else:
        acc = tl.dot(a, b, acc, input_precision="ieee")
    return acc


@triton.jit
def upright(tile, SWAP: tl.constexpr):
    if SWAP == 1:
        tile = tl.trans(tile)
    return tile


@triton.jit
def halves(acc, BM: tl.constexpr, BN: tl.constexpr):
    """The upper and the lower half of the rows t of an `acc` that is kept transposed, upright."""
    rows = tl.reshape(tl.trans(acc), (2, BM // 2, BN))
    first, second = tl.split(tl.permute(rows, (1, 2, 0)))
    return first, second


@triton.jit
def along(vector, SWAP: tl.constexpr):
    """A vector over columns n, to meet `acc`."""
    if SWAP == 1:
        tile = vector[:, None]
    else:
        tile = vector[None, :]
    return tile
