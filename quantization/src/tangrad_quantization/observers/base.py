"""What observers have in common: the base classes, and constructors with arguments given."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import tangrad
from tangrad import nn
from tangrad_quantization import qparams
from tangrad_quantization.dtypes import limits
from tangrad_quantization.observers.granularity import Granularity, MappingType, ZeroPointDomain

EPS = 2.0**-23  # the distance of 1 and the next number of float32

_SYMMETRIC = (tangrad.per_tensor_symmetric, tangrad.per_channel_symmetric)
_FLOAT_ZERO = tangrad.per_channel_affine_float_qparams
_SCHEMES = (
    tangrad.per_tensor_affine,
    tangrad.per_channel_affine,
    *_SYMMETRIC,
    _FLOAT_ZERO,
)


class _PartialWrapper:
    """A constructor with some of its arguments given, and some made anew at each call."""

    def __init__(self, p: Any) -> None:
        self.p = p
        self.callable_args: dict[str, Callable[[], Any]] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        made = {key: make() for key, make in self.callable_args.items() if key not in keywords}
        return self.p(*args, **keywords, **made)

    def __repr__(self) -> str:
        return f"{self.p!r}{self.callable_args!r}"

    def with_args(self, **kwargs: Any) -> _PartialWrapper:
        return _with_args(self, **kwargs)

    def with_callable_args(self, **kwargs: Callable[[], Any]) -> _PartialWrapper:
        wrapper = _PartialWrapper(self.p)
        wrapper.callable_args = {**self.callable_args, **kwargs}
        return wrapper


def _with_args(constructor: Any, **kwargs: Any) -> _PartialWrapper:
    """Return a constructor that has these arguments already."""
    return _PartialWrapper(partial(constructor, **kwargs))


def _with_callable_args(constructor: Any, **kwargs: Callable[[], Any]) -> _PartialWrapper:
    """Return a constructor that makes these arguments by calling functions, at each use."""
    return _PartialWrapper(partial(constructor)).with_callable_args(**kwargs)


class ObserverBase(ABC, nn.Module):
    """A module that watches numbers pass; `calculate_qparams` says what fits them.

    Args:
        dtype: the quantized dtype that is aimed at.
        is_dynamic: whether the numbers are quantized anew in each call.

    Attributes:
        path: where the observer stands in its model, for messages; `prepare` sets it.
    """

    with_args = classmethod(_with_args)
    with_callable_args = classmethod(_with_callable_args)
    path = ""

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Watch a tensor, and return it."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return scales and zero points."""

    def refuse_what_is_not_finite(self, low: Any, high: Any) -> None:
        """Refuse calibration data with NaN or infinity, which would widen a range to nothing.

        Raises:
            ValueError: an end of the range is not finite.
        """
        if bool((low - high).isfinite().all()):
            return
        where = f" at '{self.path}'" if self.path else ""
        raise ValueError(
            f"{type(self).__name__}{where}: the observed tensor holds NaN or infinity (range "
            f"{low.min().item()} to {high.max().item()}); look for the layer that makes them "
            f"with tangrad.autograd.detect_anomaly, or leave such inputs out of the calibration"
        )


def levels(
    dtype: Any, quant_min: int | None, quant_max: int | None, reduce_range: bool
) -> tuple[int, int]:
    """Return the lowest and highest integer that is used.

    Args:
        dtype: the quantized dtype.
        quant_min: the lowest, or None for all of the dtype.
        quant_max: the highest.
        reduce_range: leave one bit unused.

    Raises:
        AssertionError: the range is empty, lacks zero, or is wider than the dtype.
    """
    low, high = limits(dtype) or (0, 15)
    if quant_min is None or quant_max is None:
        if not reduce_range or high - low != 255:
            return low, high
        return low // 2, high // 2
    if not quant_min <= 0 <= quant_max:
        raise AssertionError(
            f"quantization range must include 0, got quant_min={quant_min}, quant_max={quant_max}"
        )
    if quant_min >= quant_max:
        raise AssertionError(
            f"quant_min must be less than quant_max, got {quant_min} and {quant_max}"
        )
    if dtype in _signed_dtypes() and quant_max - quant_min > high - low:
        raise AssertionError(
            f"quantization range {quant_min} to {quant_max} exceeds the range of {dtype}, "
            f"{high - low + 1} integers"
        )
    return (quant_min // 2, quant_max // 2) if reduce_range else (quant_min, quant_max)


def _signed_dtypes() -> tuple[Any, ...]:
    return tangrad.qint8, tangrad.int8, tangrad.qint32, tangrad.int32


class UniformQuantizationObserverBase(ObserverBase):
    """An observer of values at equal distances.

    Args:
        dtype: the quantized dtype.
        qscheme: per tensor or per channel, affine or symmetric.
        reduce_range: leave one bit unused, which kernels without VNNI once needed.
        quant_min: the lowest integer.
        quant_max: the highest.
        factory_kwargs: device and dtype of the statistics.
        eps: the smallest scale.
        is_dynamic: whether the numbers are quantized anew in each call.
    """

    __module__ = "tangrad_quantization.observer"  # where PyTorch has it
    _version = 3

    def __init__(
        self,
        dtype: Any = None,
        qscheme: Any = tangrad.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(tangrad.quint8 if dtype is None else dtype, is_dynamic, **kwargs)
        self.qscheme = qscheme
        if reduce_range:
            warnings.warn(
                "Please use quant_min and quant_max to specify the range for observers. "
                "reduce_range will be deprecated in a future release of PyTorch.",
                stacklevel=2,
            )
        self.reduce_range = reduce_range
        self.register_buffer("eps", tangrad.tensor([eps], **(factory_kwargs or {})))
        if qscheme not in _SCHEMES:
            raise AssertionError(f"{type(self).__name__}: unknown qscheme {qscheme}")
        if limits(self.dtype) is None:
            raise AssertionError(
                f"{type(self).__name__}: dtype must be a quantized or an integral one, "
                f"not {self.dtype}"
            )
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        self.quant_min, self.quant_max = levels(self.dtype, quant_min, quant_max, reduce_range)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        if local_metadata.get("version") in (None, 1):  # before eps was a buffer
            state_dict.setdefault(prefix + "eps", tangrad.tensor([EPS]))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _calculate_qparams(self, min_val: Any, max_val: Any) -> tuple[Any, Any]:
        """Return scales and zero points for ranges, with one element at least each."""
        if not qparams.has_range(min_val, max_val):
            device = min_val.device
            return tangrad.tensor([1.0], device=device), tangrad.tensor([0], device=device)
        low, high = min_val.clamp(max=0), max_val.clamp(min=0)
        steps = float(self.quant_max - self.quant_min)
        if self.qscheme in _SYMMETRIC:
            scale = tangrad.maximum(tangrad.maximum(-low, high) / (steps / 2), self.eps)
            zero_point = tangrad.full_like(scale, self._middle(), dtype=tangrad.int64)
        elif self.qscheme == _FLOAT_ZERO:
            scale = (max_val - min_val) / steps
            scale = tangrad.where(scale > self.eps, scale, tangrad.ones_like(scale))
            zero_point = -1 * min_val / scale
        else:
            scale = tangrad.maximum((high - low) / steps, self.eps)
            zero_point = self.quant_min - tangrad.round(low / scale).to(tangrad.int32)
            zero_point = zero_point.clamp(self.quant_min, self.quant_max)
        return tangrad.atleast_1d(scale), tangrad.atleast_1d(zero_point)

    def _middle(self) -> int:
        """Return the zero point of symmetric values."""
        if self.dtype in (tangrad.quint8, tangrad.uint8):
            return (self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128
        return 2**15 if self.dtype == tangrad.uint16 else 0


class AffineQuantizedObserverBase(ABC, nn.Module):
    """Base of observers that are described by granularity and mapping, for packages to derive.

    Args:
        mapping_type: how numbers are laid over the integers.
        target_dtype: the dtype of the integers.
        granularity: what shares one scale.
        quant_min: the lowest integer.
        quant_max: the highest.
        eps: the smallest scale.
        scale_dtype: dtype of the scales.
        zero_point_dtype: dtype of the zero points.
        preserve_zero: whether zero is a value exactly.
        zero_point_domain: what zero points are.
    """

    __module__ = "tangrad_quantization.observer"  # where PyTorch has it
    with_args = classmethod(_with_args)

    def __init__(
        self,
        mapping_type: MappingType,
        target_dtype: Any,
        granularity: Granularity,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float | None = None,
        scale_dtype: Any = None,
        zero_point_dtype: Any = None,
        preserve_zero: bool = True,
        zero_point_domain: ZeroPointDomain | None = ZeroPointDomain.INT,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if granularity is None:
            raise AssertionError("granularity is None")
        self.mapping_type = mapping_type
        self.target_dtype = target_dtype
        self.granularity = granularity
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.eps = eps
        self.scale_dtype = scale_dtype
        self.zero_point_dtype = zero_point_dtype
        self.preserve_zero = preserve_zero
        self.zero_point_domain = zero_point_domain
        self.block_size: tuple[int, ...] | None = None
        self.original_dtype: Any = None

    @abstractmethod
    def forward(self, input: Any) -> Any:
        """Watch a tensor, and return it."""

    @abstractmethod
    def calculate_qparams(self) -> tuple[Any, Any]:
        """Return scales and zero points."""
