"""Sample inputs of ops, independent of any tensor library.

A definition says `samples=lambda s: [s(s.tensor(3, 4)), s(s.tensor(0), alpha=2)]`. Here `s` is a
`Sampler` for one dtype. What it makes holds NumPy arrays only, so that one set of inputs can be
given to tangrad on any device and to the library that a test compares it with: `materialise` maps
the arrays through the constructor of either.

All values are generated from a seed, so two calls give the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOATING = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGRAL = SIGNED + UNSIGNED
ALL = ("bool", *INTEGRAL, *FLOATING, *COMPLEX)


@dataclass(frozen=True, eq=False)
class SampleTensor:
    """Hold the values of one tensor argument.

    Attributes:
        array: the values. bfloat16, which NumPy lacks, is held as float32 values that bfloat16
            represents exactly.
        dtype: name of the tensor's dtype.
        strided: whether the tensor must be a view that is neither contiguous nor dense.
    """

    array: np.ndarray
    dtype: str
    strided: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the tensor's shape."""
        return self.array.shape


@dataclass(frozen=True)
class SampleDtype:
    """Name a dtype argument (each library has dtype objects of its own)."""

    name: str


@dataclass(frozen=True, eq=False)
class Sample:
    """Hold the arguments of one call of an op."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


class Sampler:
    """Generate sample inputs of one dtype.

    Args:
        dtype: name of the dtype under test; the default of every tensor made here.
        seed: of the generator.

    Raises:
        ValueError: if `dtype` is not one of `ALL`.
    """

    def __init__(self, dtype: str = "float32", seed: int = 0) -> None:
        if dtype not in ALL:
            raise ValueError(f"no samples for dtype {dtype!r}; choose one of {', '.join(ALL)}")
        self.dtype = dtype
        self._random = np.random.Generator(np.random.Philox([seed, ALL.index(dtype)]))

    def __call__(self, *args: Any, **kwargs: Any) -> Sample:
        """Make a sample: the arguments of one call."""
        return Sample(args, kwargs)

    @property
    def is_bool(self) -> bool:
        """Tell whether the dtype under test is bool."""
        return self.dtype == "bool"

    @property
    def is_integral(self) -> bool:
        """Tell whether the dtype under test is an integer (bool is not)."""
        return self.dtype in INTEGRAL

    @property
    def is_floating(self) -> bool:
        """Tell whether the dtype under test is a real floating-point dtype."""
        return self.dtype in FLOATING

    @property
    def is_complex(self) -> bool:
        """Tell whether the dtype under test is complex."""
        return self.dtype in COMPLEX

    def tensor(
        self,
        *shape: int,
        low: float | None = None,
        high: float | None = None,
        dtype: str | None = None,
        nonzero: bool = False,
        strided: bool = False,
    ) -> SampleTensor:
        """Draw a tensor uniformly from [low, high).

        Args:
            shape: its sizes; none for a zero-dimensional tensor.
            low: lower bound. Default: -3 for floating and complex dtypes, -9 for signed integers,
                0 for unsigned ones. Complex dtypes apply both bounds to each part.
            high: upper bound. Default: 3, or 10 for integers.
            dtype: name of the tensor's dtype. Default: the dtype under test.
            nonzero: keep every element at least 0.25 (integers: 1) away from zero.
            strided: make a view that is neither contiguous nor dense.
        """
        name = dtype or self.dtype
        values = self._draw(name, shape, low, high)
        if nonzero:
            values = _away_from_zero(values)
        return SampleTensor(_as_stored(values, name), name, strided)

    def integers(
        self, low: int, high: int, *shape: int, dtype: str = "int64", strided: bool = False
    ) -> SampleTensor:
        """Draw an integer tensor uniformly from [low, high), for example of indices."""
        values = self._random.integers(low, high, size=shape)
        return SampleTensor(_as_stored(values, dtype), dtype, strided)

    def mask(self, *shape: int, strided: bool = False) -> SampleTensor:
        """Draw a bool tensor."""
        return self.tensor(*shape, dtype="bool", strided=strided)

    def permutation(self, *shape: int, dtype: str | None = None) -> SampleTensor:
        """Draw a tensor whose elements all differ: no ties, so that a result is unique.

        The elements are 0, 1, 2, ... in random order, which every dtype but bool represents.
        """
        name = dtype or self.dtype
        count = int(np.prod(shape, dtype=np.int64))
        values = self._random.permutation(count).reshape(shape)
        return SampleTensor(_as_stored(values, name), name)

    def values(self, values: Any, *, dtype: str | None = None) -> SampleTensor:
        """Make a tensor of the given numbers (a nested list), rounded to the dtype."""
        name = dtype or self.dtype
        return SampleTensor(_as_stored(np.asarray(values), name), name)

    def specials(self) -> SampleTensor:
        """Make the values at which ops go wrong: NaN, infinities, signed zeros, extremes."""
        return SampleTensor(_as_stored(_special_values(self.dtype), self.dtype), self.dtype)

    def scalar(self, low: float = -3, high: float = 3) -> bool | int | float | complex:
        """Draw a Python number of the kind of the dtype under test from [low, high)."""
        if self.is_bool:
            return bool(self._random.integers(0, 2))
        if self.is_integral:
            start = max(low, 0) if self.dtype in UNSIGNED else low
            return int(self._random.integers(int(start), int(high)))
        real = float(self._random.uniform(low, high))
        return complex(real, float(self._random.uniform(low, high))) if self.is_complex else real

    def as_dtype(self, name: str) -> SampleDtype:
        """Make a dtype argument."""
        return SampleDtype(name)

    def unary(
        self, low: float | None = None, high: float | None = None, *, specials: bool = True
    ) -> list[Sample]:
        """Make the usual samples of an op of one tensor whose domain is [low, high)."""
        bounds: dict[str, Any] = {"low": low, "high": high}
        samples = [
            self(self.tensor(3, 4, **bounds)),
            self(self.tensor(**bounds)),
            self(self.tensor(2, 0, 3, **bounds)),
            self(self.tensor(2, 3, 4, strided=True, **bounds)),
        ]
        return [*samples, self(self.specials())] if specials else samples

    def binary(
        self,
        low: float | None = None,
        high: float | None = None,
        *,
        nonzero: bool = False,
        number: bool = True,
        **kwargs: Any,
    ) -> list[Sample]:
        """Make the usual samples of an op of two tensors.

        Args:
            low: lower bound of the elements.
            high: upper bound of the elements.
            nonzero: keep the second operand's elements away from zero.
            number: whether the second operand may also be a Python number.
            kwargs: further arguments, given to every call.
        """
        bounds: dict[str, Any] = {"low": low, "high": high}
        second = {**bounds, "nonzero": nonzero}
        samples = [
            self(self.tensor(3, 4, **bounds), self.tensor(3, 4, **second), **kwargs),
            self(self.tensor(2, 1, 3, **bounds), self.tensor(4, 1, **second), **kwargs),
            self(self.tensor(**bounds), self.tensor(3, **second), **kwargs),
            self(self.tensor(0, 3, **bounds), self.tensor(3, **second), **kwargs),
            self(
                self.tensor(2, 5, strided=True, **bounds),
                self.tensor(2, 5, strided=True, **second),
                **kwargs,
            ),
        ]
        if number:
            samples.append(self(self.tensor(4, **bounds), 2, **kwargs))
        return samples

    def _draw(
        self, name: str, shape: Sequence[int], low: float | None, high: float | None
    ) -> np.ndarray:
        if name == "bool":
            return self._random.integers(0, 2, size=shape) == 1
        if name in INTEGRAL:
            first, end = _integer_bounds(name, low, high)
            return self._random.integers(first, end, size=shape)
        start, stop = (-3.0 if low is None else low), (3.0 if high is None else high)
        real = self._random.uniform(start, stop, size=shape)
        if name in FLOATING:
            return np.asarray(real)
        return real + 1j * self._random.uniform(start, stop, size=shape)


def materialise(
    sample: Sample,
    make_tensor: Callable[[np.ndarray, str], Any],
    make_dtype: Callable[[str], Any] | None = None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn a sample into the arguments of a real call.

    Args:
        sample: what to call the op with.
        make_tensor: makes a tensor of an array and the name of its dtype. Its tensors must have
            `permute` and take slices, for the strided ones are views of it.
        make_dtype: makes a dtype object of its name. Default: the name itself.

    Returns:
        The positional and the keyword arguments.
    """
    make_dtype = make_dtype or (lambda name: name)

    def convert(value: Any) -> Any:
        if isinstance(value, SampleTensor):
            return _make(value, make_tensor)
        if isinstance(value, SampleDtype):
            return make_dtype(value.name)
        if isinstance(value, (list, tuple)):
            return type(value)(convert(item) for item in value)
        return value

    args = tuple(convert(value) for value in sample.args)
    return args, {name: convert(value) for name, value in sample.kwargs.items()}


def _make(tensor: SampleTensor, make_tensor: Callable[[np.ndarray, str], Any]) -> Any:
    if not tensor.strided or tensor.array.ndim == 0:
        return make_tensor(np.array(tensor.array, order="C"), tensor.dtype)
    # Elements of the last axis two apart, axes stored in reverse. The gaps hold a value that
    # would be noticed in a result.
    gaps = np.full(tensor.array.shape, 77 if tensor.array.dtype != bool else True)
    wide = np.stack([tensor.array, gaps.astype(tensor.array.dtype)], axis=-1)
    wide = wide.reshape(*tensor.array.shape[:-1], 2 * tensor.array.shape[-1])
    reversed_axes = tuple(range(wide.ndim))[::-1]
    stored = make_tensor(np.array(wide.transpose(reversed_axes), order="C"), tensor.dtype)
    return stored.permute(reversed_axes)[..., ::2]


def _integer_bounds(name: str, low: float | None, high: float | None) -> tuple[int, int]:
    lowest = 0 if name in UNSIGNED else -9
    start = lowest if low is None else int(low)
    if name in UNSIGNED:
        start = max(start, 0)
    stop = 10 if high is None else int(high)
    return start, max(stop, start + 1)


def _away_from_zero(values: np.ndarray) -> np.ndarray:
    if values.dtype == bool:
        return np.ones_like(values)
    if values.dtype.kind in "iu":
        return np.where(values == 0, 1, values)
    if values.dtype.kind == "c":
        return np.where(np.abs(values) < 0.25, 0.5 + values, values)
    return np.where(np.abs(values) < 0.25, np.copysign(np.abs(values) + 0.25, values), values)


def _special_values(name: str) -> np.ndarray:
    if name == "bool":
        return np.array([True, False])
    if name in INTEGRAL:
        limits = np.iinfo(name)
        low = [limits.min, -1] if name in SIGNED else []
        return np.array([*low, 0, 1, 2, limits.max], dtype=name)
    real = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-4, 1e4])
    if name in FLOATING:
        return real
    # Moderate ones: where complex functions overflow, libraries differ in which part is NaN.
    parts = np.array([0.0, -0.0, 1.0, -1.0, 1e-4, 20.0])
    return np.concatenate([parts, 1j * parts, [1 + 1e-4j, -2 - 0.0j, -2 + 0.0j]])


def _as_stored(values: np.ndarray, name: str) -> np.ndarray:
    """Round values to what the dtype represents, in the NumPy dtype that holds it."""
    if name.startswith("uint") and values.dtype.kind == "f":
        # C leaves a negative number as an unsigned one to the processor; of integers it wraps.
        values = values.astype(np.int64)
    if name != "bfloat16":
        return values.astype(name)
    return round_to_bfloat16(values.astype(np.float32))


def round_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 values to the nearest bfloat16 (ties to even), kept as float32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(
        0xFFFF0000
    )
    result = rounded.view(np.float32)
    # A NaN whose payload overflows would turn into an infinity.
    return np.where(np.isnan(values), np.float32(np.nan), result).reshape(values.shape)
