"""Element types and layouts of plugins: finding them by name, and converting by their codecs."""

from __future__ import annotations

from typing import Any

# Programs ask whether a tensor has one of these; what makes such tensors comes in packages.
SPARSE_LAYOUTS = ("sparse_bsc", "sparse_bsr", "sparse_coo", "sparse_csc", "sparse_csr")


def find_registered(name: str) -> Any:
    """Return the dtype or layout of that name, asking the plugins for it; None if there is none."""
    from tangrad import _C
    from tangrad.discovery.hooks import call_hook_once

    call_hook_once("tangrad_register_dtypes")
    call_hook_once("tangrad_register_layouts")
    try:
        return _C.dtype_by_name(name)
    except TypeError:
        pass
    if name in ("complex32", "chalf"):
        from tangrad.tensor import complex_half

        return complex_half.register()
    if name.startswith(("int", "uint", "bits", "float4_", "float8_e8m0")):
        from tangrad.tensor import small_dtypes

        return small_dtypes.register(name) if name in small_dtypes.NAMES else None
    if name.startswith("float8_"):
        from tangrad.tensor import float8

        return float8.register(name) if name in float8.FORMATS else None
    if name in SPARSE_LAYOUTS:
        return _C.register_layout(name)
    return next((found for found in _C.registered_layouts() if found.name == name), None)


def convert(dst: Any, src: Any) -> None:
    """Write src, converted and broadcast, into dst, where one of them has a foreign dtype."""
    import numpy as np

    from tangrad.tensor import arrays

    arrays.store(dst, np.broadcast_to(arrays.values(src), tuple(dst.shape)))


def decode_element(dtype: Any, raw: bytes) -> Any:
    """Return one element of a dtype with a codec as a Python number."""
    import numpy as np

    with np.errstate(all="ignore"):
        return np.asarray(dtype.codec[0](np.frombuffer(raw, _raw_type(dtype)))).item()


def encode_element(dtype: Any, value: Any) -> bytes:
    """Return a Python number as the bytes of one element of a dtype with a codec."""
    import numpy as np

    with np.errstate(all="ignore"):
        return np.asarray(dtype.codec[1](np.asarray([value]))).astype(_raw_type(dtype)).tobytes()


def _raw_type(dtype: Any) -> str:
    return f"u{dtype.itemsize}"
