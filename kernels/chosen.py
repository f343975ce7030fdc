"""Whether an entry of a mixture's list of chosen experts is an expert; the experts' products use it."""
import triton
import triton.language as tl


@triton.jit
def chose(ids, live, expert, E):
    """Which live entries are `expert`. An index outside of the experts counts as the nearest one."""
    chosen = tl.load(ids, mask=live, other=0)
    return live & (tl.minimum(tl.maximum(chosen, 0), E - 1) == expert)
