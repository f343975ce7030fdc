"""The softplus of the kernels that make the inputs of layers with a state."""
import triton
import triton.language as tl


@triton.jit
def softplus(x):
    """ln(1 + exp(x)). With y = exp(-|x|) and s = y / (2 + y), ln(1 + y) is 2 s (1 + s^2 / 3 + s^4 / 5 + ..)."""
    y = tl.exp(-tl.abs(x))
    s = y / (2.0 + y)
    t = s * s
    p = t * (1.0 / 17.0) + 1.0 / 15.0
    p = t * p + 1.0 / 13.0
    p = t * p + 1.0 / 11.0
    p = t * p + 1.0 / 9.0
    p = t * p + 1.0 / 7.0
    p = t * p + 1.0 / 5.0
    p = t * p + 1.0 / 3.0
    p = t * p + 1.0
    return tl.maximum(x, 0.0) + 2.0 * s * p
