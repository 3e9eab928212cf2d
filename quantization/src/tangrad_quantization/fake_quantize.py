"""Modules that round what passes to quantized values, so that training sees the loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import tangrad
from tangrad import nn
from tangrad_quantization import qparams
from tangrad_quantization.dtypes import limits
from tangrad_quantization.observer import (
    FixedQParamsObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    _PartialWrapper,
    _with_args,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)
from tangrad_quantization.observers.histogram import HistogramObserver

__all__ = [
    "FakeQuantize",
    "FakeQuantizeBase",
    "FixedQParamsFakeQuantize",
    "FusedMovingAvgObsFakeQuantize",
    "default_affine_fixed_qparams_fake_quant",
    "default_dynamic_fake_quant",
    "default_embedding_fake_quant",
    "default_embedding_fake_quant_4bit",
    "default_fake_quant",
    "default_fixed_qparams_range_0to1_fake_quant",
    "default_fixed_qparams_range_neg1to1_fake_quant",
    "default_fused_act_fake_quant",
    "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant",
    "default_histogram_fake_quant",
    "default_per_channel_weight_fake_quant",
    "default_symmetric_fixed_qparams_fake_quant",
    "default_weight_fake_quant",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
    "fused_wt_fake_quant_range_neg_127_to_127",
]

_PER_CHANNEL = (
    tangrad.per_channel_affine,
    tangrad.per_channel_symmetric,
    tangrad.per_channel_affine_float_qparams,
)
_PER_TENSOR = (tangrad.per_tensor_affine, tangrad.per_tensor_symmetric)


class FakeQuantizeBase(ABC, nn.Module):
    """A module that observes what passes and rounds it; each can be switched off."""

    def __init__(self) -> None:
        super().__init__()
        # Buffers, so that they travel with the state, and bytes, as PyTorch's.
        self.register_buffer("fake_quant_enabled", tangrad.tensor([1], dtype=tangrad.uint8))
        self.register_buffer("observer_enabled", tangrad.tensor([1], dtype=tangrad.uint8))

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Observe and round a tensor."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return scales and zero points."""

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Round what passes, or leave it."""
        self.fake_quant_enabled[0] = 1 if enabled else 0

    def disable_fake_quant(self) -> None:
        """Leave what passes as it is."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Observe what passes, or keep the scale as it is."""
        self.observer_enabled[0] = 1 if enabled else 0

    def disable_observer(self) -> None:
        """Keep the scale as it is."""
        self.enable_observer(False)

    @classmethod
    def with_args(cls, **kwargs: Any) -> _PartialWrapper:
        """Return a constructor that has these arguments already."""
        return _with_args(cls, **kwargs)


class FakeQuantize(FakeQuantizeBase):
    """Observe a tensor and round it to the values that it would have quantized.

    Args:
        observer: constructor of the observer.
        quant_min: the lowest integer.
        quant_max: the highest.
        is_dynamic: whether the numbers are quantized anew in each call.
        observer_kwargs: arguments of the observer.
    """

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__()
        if quant_min is not None and quant_max is not None:
            _check_levels(observer, observer_kwargs, quant_min, quant_max)
            observer_kwargs |= {"quant_min": quant_min, "quant_max": quant_max}
        observer_kwargs["is_dynamic"] = is_dynamic
        self.activation_post_process = watching = observer(**observer_kwargs)
        self.quant_min, self.quant_max = watching.quant_min, watching.quant_max
        self.is_dynamic = watching.is_dynamic
        self.dtype, self.qscheme = watching.dtype, watching.qscheme
        if self.qscheme not in _PER_CHANNEL + _PER_TENSOR:
            raise AssertionError(f"fake quantization cannot follow qscheme {self.qscheme}")
        self.is_per_channel = self.qscheme in _PER_CHANNEL
        self.ch_axis = getattr(watching, "ch_axis", -1)
        broken = self.qscheme == tangrad.per_channel_affine_float_qparams
        kind = tangrad.float32 if broken else tangrad.int32
        self.register_buffer("scale", tangrad.tensor([1.0], dtype=tangrad.float32))
        self.register_buffer("zero_point", tangrad.tensor([0], dtype=kind))

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return what the observer says."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, x: Any) -> Any:
        """Observe and round a tensor; the gradient passes between the outer values."""
        if self.observer_enabled[0] == 1:
            self.activation_post_process(x.detach())
            self._set(*self.calculate_qparams())
        return self._rounded(x) if self.fake_quant_enabled[0] == 1 else x

    def _set(self, scale: Any, zero_point: Any) -> None:
        for own, new in ((self.scale, scale), (self.zero_point, zero_point)):
            if own.shape != new.shape:
                own.resize_(new.shape)
            own.copy_(new)

    def _rounded(self, x: Any) -> Any:
        low, high = self.activation_post_process.quant_min, self.activation_post_process.quant_max
        if self.is_per_channel:
            return tangrad.fake_quantize_per_channel_affine(
                x, self.scale, self.zero_point, self.ch_axis, low, high
            )
        return tangrad.fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, low, high)

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, "
            f"observer_enabled={self.observer_enabled}, "
            f"quant_min={self.activation_post_process.quant_min}, "
            f"quant_max={self.activation_post_process.quant_max}, "
            f"dtype={self.dtype}, qscheme={self.qscheme}, ch_axis={self.ch_axis}, "
            f"scale={self.scale}, zero_point={self.zero_point}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name in ("scale", "zero_point"):
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _check_levels(observer: Any, kwargs: Any, low: int, high: int) -> None:
    if low > high:
        raise AssertionError("quant_min must be less than or equal to quant_max")
    given = getattr(getattr(observer, "p", None), "keywords", {}).get("dtype")
    dtype = given or kwargs.get("dtype", tangrad.quint8)
    least, most = limits(dtype) or (low, high)
    if low < least:
        raise AssertionError(f"quant_min out of bound: {low} for {dtype}")
    if high > most:
        raise AssertionError(f"quant_max out of bound: {high} for {dtype}")


class FixedQParamsFakeQuantize(FakeQuantize):
    """Round by a scale and a zero point that were given.

    Args:
        observer: constructor of a `FixedQParamsObserver`.

    Raises:
        AssertionError: it constructs another.
    """

    def __init__(self, observer: Any) -> None:
        super().__init__(observer=observer)
        if type(self.activation_post_process) is not FixedQParamsObserver:
            raise AssertionError(
                f"{type(self).__name__} needs a FixedQParamsObserver, not "
                f"{type(self.activation_post_process).__name__}"
            )
        self._observer_ctr = observer
        self.scale = self.activation_post_process.scale
        self.zero_point = self.activation_post_process.zero_point
        if self.is_per_channel:
            raise AssertionError(f"{type(self).__name__} is per tensor, not {self.qscheme}")

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return the scale and the zero point that were given."""
        return self.scale, self.zero_point


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """Observe by moving averages and round, choosing the scale as FBGEMM's kernels do.

    Args:
        observer: constructor of an observer with moving averages.
        quant_min: the lowest integer.
        quant_max: the highest.
        observer_kwargs: arguments of the observer.

    Raises:
        AssertionError: the observer has no moving averages.
    """

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int = 0,
        quant_max: int = 255,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        averaging = (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
        if not isinstance(self.activation_post_process, averaging):
            raise AssertionError(
                "FusedMovingAvgObsFakeQuantize needs an observer with moving averages, not "
                f"{type(self.activation_post_process).__name__}"
            )
        self.register_buffer("fake_quant_enabled", tangrad.tensor([1], dtype=tangrad.int64))
        self.register_buffer("observer_enabled", tangrad.tensor([1], dtype=tangrad.int64))
        self.is_symmetric_quant = self.qscheme in (
            tangrad.per_tensor_symmetric,
            tangrad.per_channel_symmetric,
        )

    def forward(self, x: Any) -> Any:
        """Observe and round a tensor; the gradient passes between the outer values."""
        if self.observer_enabled[0] == 1:
            self.activation_post_process(x.detach())
            self._set(*self._chosen())
        return self._rounded(x) if self.fake_quant_enabled[0] == 1 else x

    def extra_repr(self) -> str:
        watching = self.activation_post_process
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, "
            f"observer_enabled={self.observer_enabled}, scale={self.scale}, "
            f"zero_point={self.zero_point}, dtype={self.dtype}, "
            f"quant_min={watching.quant_min}, quant_max={watching.quant_max}, "
            f"qscheme={self.qscheme}, reduce_range={watching.reduce_range}"
        )

    def _chosen(self) -> tuple[Any, Any]:
        watching = self.activation_post_process
        ranges = zip(
            tangrad.atleast_1d(watching.min_val).tolist(),
            tangrad.atleast_1d(watching.max_val).tolist(),
            strict=True,
        )
        chosen = [
            qparams.choose(
                low,
                high,
                watching.quant_min,
                watching.quant_max,
                symmetric=self.is_symmetric_quant,
            )
            for low, high in ranges
        ]
        device = self.scale.device
        return (
            tangrad.tensor([scale for scale, _ in chosen], device=device),
            tangrad.tensor([zero for _, zero in chosen], dtype=tangrad.int32, device=device),
        )


def _moving(**kwargs: Any) -> _PartialWrapper:
    return FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, **kwargs)


def _fused(observer: Any = MovingAverageMinMaxObserver, **kwargs: Any) -> _PartialWrapper:
    return FusedMovingAvgObsFakeQuantize.with_args(observer=observer, **kwargs)


_ACTIVATION = {"quant_min": 0, "quant_max": 255, "dtype": tangrad.quint8}
_WEIGHT = {"quant_min": -128, "quant_max": 127, "dtype": tangrad.qint8}
_NARROW = {"quant_min": -127, "quant_max": 127, "dtype": tangrad.qint8, "eps": 2**-12}

default_fake_quant = _moving(**_ACTIVATION, qscheme=tangrad.per_tensor_affine, reduce_range=True)
default_weight_fake_quant = _moving(
    **_WEIGHT, qscheme=tangrad.per_tensor_symmetric, reduce_range=False
)
default_dynamic_fake_quant = _moving(**_ACTIVATION, is_dynamic=True, averaging_constant=1)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver,
    **_WEIGHT,
    qscheme=tangrad.per_channel_symmetric,
    reduce_range=False,
    ch_axis=0,
)
default_embedding_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver,
    qscheme=tangrad.per_channel_affine_float_qparams,
    **_ACTIVATION,
    ch_axis=0,
    averaging_constant=1,
)
default_embedding_fake_quant_4bit = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver,
    qscheme=tangrad.per_channel_affine_float_qparams,
    ch_axis=0,
    dtype=tangrad.quint4x2,
    averaging_constant=1,
)
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=HistogramObserver,
    **_ACTIVATION,
    qscheme=tangrad.per_tensor_affine,
    reduce_range=True,
)
default_fused_act_fake_quant = _fused(**_ACTIVATION)
default_fused_wt_fake_quant = _fused(**_WEIGHT, qscheme=tangrad.per_tensor_symmetric)
default_fused_per_channel_wt_fake_quant = _fused(
    MovingAveragePerChannelMinMaxObserver, **_WEIGHT, qscheme=tangrad.per_channel_symmetric
)
fused_wt_fake_quant_range_neg_127_to_127 = _fused(**_NARROW, qscheme=tangrad.per_tensor_symmetric)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = _fused(
    MovingAveragePerChannelMinMaxObserver, **_NARROW, qscheme=tangrad.per_channel_symmetric
)


def disable_fake_quant(mod: Any) -> None:
    """Leave what passes as it is; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_fake_quant()


def enable_fake_quant(mod: Any) -> None:
    """Round what passes; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_fake_quant()


def disable_observer(mod: Any) -> None:
    """Keep scales as they are; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_observer()


def enable_observer(mod: Any) -> None:
    """Observe what passes; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_observer()
