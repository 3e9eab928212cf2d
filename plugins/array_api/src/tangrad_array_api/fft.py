"""Fourier transforms: the standard's extension `fft`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad_array_api import dtypes
from tangrad_array_api.array import Array, wrap

__all__ = """
    fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift
""".split()


def along_axis(name: str, accepted: str) -> Callable[..., Array]:
    """Return a transform along one axis."""

    def function(
        x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Array:
        dtypes.require(name, accepted, x)
        return wrap(getattr(tangrad.fft, name)(x.tensor, n, axis, norm))

    function.__doc__ = f"Transform along one axis by {name}; takes {accepted} dtypes."
    function.__name__ = function.__qualname__ = name
    return function


def along_axes(name: str, accepted: str) -> Callable[..., Array]:
    """Return a transform along several axes."""

    def function(
        x: Array,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: str = "backward",
    ) -> Array:
        dtypes.require(name, accepted, x)
        return wrap(getattr(tangrad.fft, name)(x.tensor, s, axes, norm))

    function.__doc__ = f"Transform along axes, or all, by {name}; takes {accepted} dtypes."
    function.__name__ = function.__qualname__ = name
    return function


fft, ifft = along_axis("fft", "floating"), along_axis("ifft", "floating")
rfft, irfft = along_axis("rfft", "real floating"), along_axis("irfft", "floating")
hfft, ihfft = along_axis("hfft", "floating"), along_axis("ihfft", "real floating")
fftn, ifftn = along_axes("fftn", "floating"), along_axes("ifftn", "floating")
rfftn, irfftn = along_axes("rfftn", "real floating"), along_axes("irfftn", "floating")


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """Return the frequencies of `fft`, for samples at distance d."""
    return wrap(tangrad.fft.fftfreq(n, d, dtype=dtype, device=device))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """Return the frequencies of `rfft`, for samples at distance d."""
    return wrap(tangrad.fft.rfftfreq(n, d, dtype=dtype, device=device))


def fftshift(x: Array, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """Move frequency zero to the middle."""
    dtypes.require("fftshift", "floating", x)
    return wrap(tangrad.fft.fftshift(x.tensor, axes))


def ifftshift(x: Array, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """Move frequency zero to the front: undo `fftshift`."""
    dtypes.require("ifftshift", "floating", x)
    return wrap(tangrad.fft.ifftshift(x.tensor, axes))
