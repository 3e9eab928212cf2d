"""How near a result must be to the oracle's, by dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

# Of the dtype of the result: relative to the element, and absolute relative to the largest
# element (cancellation in sums loses what the largest summand had).
RELATIVE = {"float64": 1e-10, "complex128": 1e-10, "float32": 2e-6, "complex64": 4e-6,
            "float16": 2.0**-10, "bfloat16": 2.0**-7}  # fmt: skip
ABSOLUTE = {"float64": 1e-12, "complex128": 1e-12, "float32": 4e-7, "complex64": 8e-7,
            "float16": 2.0**-13, "bfloat16": 2.0**-10}  # fmt: skip


def agrees(actual: np.ndarray, expected: np.ndarray, dtype: str, slack: float = 1.0) -> np.ndarray:
    """Tell, element by element, whether two arrays agree within a dtype's tolerance.

    Args:
        actual: what was computed.
        expected: what the oracle says, of the same shape.
        dtype: name of the dtype of what was computed.
        slack: factor on the tolerance, for chains of several ops.
    """
    if dtype not in RELATIVE:
        return np.asarray(actual == expected)
    wide = np.complex128 if np.iscomplexobj(actual) or np.iscomplexobj(expected) else np.float64
    a, e = np.asarray(actual).astype(wide), np.asarray(expected).astype(wide)
    finite = np.isfinite(e)
    largest = float(np.abs(e[finite]).max()) if finite.any() else 0.0
    with np.errstate(all="ignore"):
        bound = slack * (RELATIVE[dtype] * np.abs(e) + ABSOLUTE[dtype] * max(largest, 1.0))
        # Beside infinity the bound is infinite, too: only infinity agrees with it.
        near = finite & (np.abs(a - e) <= bound)
    return near | (a == e) | (np.isnan(a) & np.isnan(e))


def describe_difference(actual: np.ndarray, expected: np.ndarray, good: np.ndarray) -> str:
    """Say where two arrays differ most tellingly: the first bad element."""
    where = tuple(int(i) for i in np.argwhere(~np.asarray(good))[0]) if np.ndim(good) else ()
    count = int(np.size(good) - np.count_nonzero(good))
    return (
        f"{count} of {np.size(good)} elements differ; at {where}: "
        f"got {np.asarray(actual)[where]!r}, torch has {np.asarray(expected)[where]!r}"
    )


def as_array(tensor: Any) -> np.ndarray:
    """Return a tensor's values as an array (of tangrad or torch; bfloat16 as float32)."""
    t = tensor.detach()
    if str(t.dtype).endswith(".bfloat16"):
        t = t.to(type_of(t, "float32"))
    t = t.cpu()
    return np.asarray(t.numpy(force=True))


def type_of(tensor: Any, name: str) -> Any:
    """Return the dtype object of that name of the library that a tensor belongs to."""
    import sys

    return getattr(sys.modules[type(tensor).__module__.partition(".")[0]], name)


def dtype_name(tensor: Any) -> str:
    """Return the name of a tensor's dtype, without its library."""
    return str(tensor.dtype).rpartition(".")[2]
