"""Arrays of any library as the bytes that a safetensors file has: checked before any of them is used."""
from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence, Tuple

import numpy as np

#: NumPy's types for the elements that a tensor is rounded to.
FLOATS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
#: Bytes of an element of the types that are stored unchanged.
CODES = {"F8_E4M3": 1, "U8": 1, "I8": 1, "I32": 4, "I64": 8}

Wanted = Sequence[Tuple[str, str, Sequence[int]]]


def elements(tensors: Mapping[str, Any], wanted: Wanted) -> Iterator[Tuple[str, bytes]]:
    """Each wanted tensor's bytes. Names and shapes are checked before the first."""
    missing = [name for name, _, _ in wanted if name not in tensors]
    if missing:
        raise ValueError(f"{_list(missing)} missing")
    extra = sorted(set(tensors) - {name for name, _, _ in wanted})
    if extra:
        raise ValueError(f"{_list(extra)} not in the model's files")
    for name, _, shape in wanted:
        found = tuple(getattr(tensors[name], "shape", ()))
        if found != tuple(shape):
            raise ValueError(f"tensor {name} has shape {found}: it must be {tuple(shape)}")
    for name, dtype, _ in wanted:
        yield name, _stored(name, _array(name, tensors[name]), dtype).tobytes()


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more are" if len(names) > 1 else " is"
    return f"tensor {names[0]}{more}"


def _array(name: str, tensor: Any) -> np.ndarray:
    """A NumPy array of a tensor of NumPy, JAX, torch or any other library with DLPack; none of them is imported."""
    if isinstance(tensor, np.ndarray):
        return tensor
    try:
        for method in ("detach", "cpu"):
            tensor = getattr(tensor, method, lambda same=tensor: same)()
        # torch's BF16 has no NumPy type; FP32 represents each of its numbers exactly.
        if str(getattr(tensor, "dtype", "")) == "torch.bfloat16":
            tensor = tensor.float()
        if hasattr(tensor, "numpy"):
            return tensor.numpy()
        return np.asarray(tensor) if hasattr(tensor, "__array__") else np.from_dlpack(tensor)
    except (AttributeError, TypeError, BufferError, RuntimeError) as why:
        raise ValueError(f"tensor {name} is not an array: {why}") from why


def _stored(name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    """The array in the type of the model's file, rounded to nearest with ties to even."""
    if dtype not in FLOATS:
        if array.dtype.itemsize != CODES.get(dtype) or array.dtype.kind == "f":
            raise ValueError(f"tensor {name} has type {array.dtype}: the model's file has {dtype}, which is not converted")
        return array
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(f"tensor {name} has type {array.dtype}: it must be floating-point")
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = array.astype("<f2" if dtype == "F16" else "<f4")
    if dtype == "BF16":
        bits = np.ascontiguousarray(rounded).view("<u4")
        rounded = ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype("<u2")
        finite = (rounded & 0x7F80) != 0x7F80
        # A NaN's bits may have wrapped.
        finite &= (bits & 0x7F800000) != 0x7F800000
    else:
        finite = np.isfinite(rounded)
    if not finite.all():
        place = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"tensor {name} is not finite at {place}, in {dtype}")
    return rounded
