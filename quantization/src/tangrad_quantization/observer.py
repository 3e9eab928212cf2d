"""Observers: modules that watch numbers pass and say which scale and zero point fit them.

`observers` has what these stand on, and two of its files are shown here, where PyTorch has them:
`HistogramObserver` and the vocabulary of granularities.
"""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from typing import Any

import tangrad
from tangrad_quantization import qparams
from tangrad_quantization.observers.base import (
    EPS,
    AffineQuantizedObserverBase,
    ObserverBase,
    UniformQuantizationObserverBase,
)
from tangrad_quantization.observers.base import _PartialWrapper as _PartialWrapper
from tangrad_quantization.observers.base import _with_args as _with_args
from tangrad_quantization.observers.base import _with_callable_args as _with_callable_args
from tangrad_quantization.observers.granularity import (
    Granularity,
    MappingType,
    PerAxis,
    PerBlock,
    PerGroup,
    PerRow,
    PerTensor,
    PerToken,
    TorchAODType,
    ZeroPointDomain,
    get_block_size,
)
from tangrad_quantization.observers.histogram import HistogramObserver as HistogramObserver
from tangrad_quantization.observers.histogram import (
    default_histogram_observer as default_histogram_observer,
)

__all__ = [
    "AffineQuantizedObserverBase",
    "FixedQParamsObserver",
    "Granularity",
    "MappingType",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerAxis",
    "PerBlock",
    "PerChannelMinMaxObserver",
    "PerGroup",
    "PerRow",
    "PerTensor",
    "PerToken",
    "PlaceholderObserver",
    "RecordingObserver",
    "ReuseInputObserver",
    "TorchAODType",
    "UniformQuantizationObserverBase",
    "ZeroPointDomain",
    "default_affine_fixed_qparams_observer",
    "default_debug_observer",
    "default_dynamic_quant_observer",
    "default_fixed_qparams_range_0to1_observer",
    "default_fixed_qparams_range_neg1to1_observer",
    "default_float_qparams_observer",
    "default_float_qparams_observer_4bit",
    "default_observer",
    "default_per_channel_weight_observer",
    "default_placeholder_observer",
    "default_reuse_input_observer",
    "default_symmetric_fixed_qparams_observer",
    "default_weight_observer",
    "get_block_size",
    "get_observer_state_dict",
    "load_observer_state_dict",
    "per_channel_weight_observer_range_neg_127_to_127",
    "weight_observer_range_neg_127_to_127",
]


class MinMaxObserver(UniformQuantizationObserverBase):
    """Keep the smallest and the largest number; arguments as of the base, per tensor."""

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
        if qscheme not in (tangrad.per_tensor_affine, tangrad.per_tensor_symmetric):
            raise NotImplementedError(
                f"{type(self).__name__} observes per tensor, and qscheme is {qscheme}; "
                f"take PerChannelMinMaxObserver"
            )
        super().__init__(
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            factory_kwargs,
            eps,
            is_dynamic,
            **kwargs,
        )
        made = factory_kwargs or {}
        self.register_buffer("min_val", tangrad.tensor(math.inf, **made))
        self.register_buffer("max_val", tangrad.tensor(-math.inf, **made))

    def forward(self, x: Any) -> Any:
        """Watch a tensor, and return it."""
        if x.numel():
            low, high = tangrad.aminmax(x.detach().to(self.min_val.dtype))
            self.refuse_what_is_not_finite(low, high)
            self._keep(low, high)
        return x

    def _keep(self, low: Any, high: Any) -> None:
        self.min_val.copy_(tangrad.minimum(low, self.min_val))
        self.max_val.copy_(tangrad.maximum(high, self.max_val))

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return a scale and a zero point, each a tensor of one element."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val.fill_(math.inf)
        self.max_val.fill_(-math.inf)


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Keep moving averages of the smallest and largest numbers.

    Args:
        averaging_constant: the part that a new tensor has; at 1 nothing is remembered.
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: Any = None,
        qscheme: Any = tangrad.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_dynamic and averaging_constant != 1:
            raise NotImplementedError(
                "MovingAverageMinMaxObserver doesn't support dynamic quantization for "
                f"averaging constant of {averaging_constant}"
            )
        self.averaging_constant = averaging_constant
        super().__init__(
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            eps=eps,
            is_dynamic=is_dynamic,
            **kwargs,
        )

    def _keep(self, low: Any, high: Any) -> None:
        if bool(self.min_val == math.inf) and bool(self.max_val == -math.inf):
            self.min_val.copy_(low)
            self.max_val.copy_(high)
            return
        self.min_val.add_(self.averaging_constant * (low - self.min_val))
        self.max_val.add_(self.averaging_constant * (high - self.max_val))


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """Keep the smallest and largest number of each index of one dimension.

    Args:
        ch_axis: the dimension.
    """

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: Any = None,
        qscheme: Any = tangrad.per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if qscheme in (tangrad.per_tensor_affine, tangrad.per_tensor_symmetric):
            raise NotImplementedError(
                f"{type(self).__name__} observes per channel, and qscheme is {qscheme}; "
                f"take MinMaxObserver"
            )
        if is_dynamic:
            raise NotImplementedError(f"{type(self).__name__} doesn't support dynamic quantization")
        super().__init__(
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            factory_kwargs,
            eps,
            is_dynamic,
            **kwargs,
        )
        self.ch_axis = ch_axis
        self.register_buffer("min_val", tangrad.tensor([], **(factory_kwargs or {})))
        self.register_buffer("max_val", tangrad.tensor([], **(factory_kwargs or {})))
        if qscheme == tangrad.per_channel_affine_float_qparams and reduce_range:
            warnings.warn("reduce_range has no effect on zero points in float", stacklevel=2)

    def forward(self, x: Any) -> Any:
        """Watch a tensor, and return it.

        Raises:
            IndexError: the tensor lacks the dimension.
            RuntimeError: the number of channels is not that of earlier tensors.
        """
        if x.numel():
            self._keep(*self._ends(x.detach().to(self.min_val.dtype)))
        return x

    def _ends(self, x: Any) -> tuple[Any, Any]:
        if not -x.dim() <= self.ch_axis < x.dim():
            raise IndexError(
                f"{type(self).__name__}: ch_axis {self.ch_axis} is no dimension of a tensor of "
                f"shape {list(x.shape)}"
            )
        rows = x.transpose(0, self.ch_axis).flatten(1) if x.dim() > 1 else x[:, None]
        low, high = tangrad.aminmax(rows, dim=1)
        if self.min_val.numel() not in (0, low.numel()):
            raise RuntimeError(
                f"{type(self).__name__}: observed {self.min_val.numel()} channels before and "
                f"{low.numel()} now (shape {list(x.shape)}, ch_axis {self.ch_axis}); call "
                f"reset_min_max_vals() first"
            )
        self.refuse_what_is_not_finite(low, high)
        return low, high

    def _keep(self, low: Any, high: Any) -> None:
        if self.min_val.numel():
            low = tangrad.minimum(low, self.min_val)
            high = tangrad.maximum(high, self.max_val)
        self._store(low, high)

    def _store(self, low: Any, high: Any) -> None:
        self.min_val.resize_(low.shape).copy_(low)
        self.max_val.resize_(high.shape).copy_(high)

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return the scale and the zero point of each channel."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        old = local_metadata.get("version") in (1, 2)
        for name in ("min_val", "max_val"):
            if old and prefix + name + "s" in state_dict:
                state_dict[prefix + name] = state_dict.pop(prefix + name + "s")
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val = tangrad.rand(0, device=self.min_val.device)
        self.max_val = tangrad.rand(0, device=self.max_val.device)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Keep moving averages of each channel's smallest and largest number.

    Args:
        averaging_constant: the part that a new tensor has; at 1 nothing is remembered.
        ch_axis: the dimension.
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: Any = None,
        qscheme: Any = tangrad.per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            ch_axis,
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            eps=eps,
            is_dynamic=is_dynamic,
            **kwargs,
        )
        self.averaging_constant = averaging_constant

    def _keep(self, low: Any, high: Any) -> None:
        if self.min_val.numel():
            low = self.min_val + self.averaging_constant * (low - self.min_val)
            high = self.max_val + self.averaging_constant * (high - self.max_val)
        self._store(low, high)


class FixedQParamsObserver(ObserverBase):
    """Say a scale and a zero point that were given, whatever is seen.

    Args:
        scale: the scale.
        zero_point: the zero point.
        dtype: the quantized dtype.
        qscheme: per tensor, affine or symmetric.
        quant_min: the lowest integer.
        quant_max: the highest.
        is_dynamic: must be False.
    """

    def __init__(
        self,
        scale: float,
        zero_point: int,
        dtype: Any = None,
        qscheme: Any = tangrad.per_tensor_affine,
        quant_min: int = 0,
        quant_max: int = 255,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_dynamic:
            raise NotImplementedError("FixedQParamsObserver doesn't support dynamic quantization")
        super().__init__(tangrad.quint8 if dtype is None else dtype, is_dynamic, **kwargs)
        qparams.check_scale(type(self).__name__, scale)
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.qscheme = qscheme
        self.register_buffer("scale", tangrad.tensor([scale], dtype=tangrad.float32))
        self.register_buffer("zero_point", tangrad.tensor([zero_point], dtype=tangrad.int32))

    def forward(self, x: Any) -> Any:
        """Return the tensor."""
        return x

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return the scale and the zero point that were given."""
        return self.scale, self.zero_point


class _Passing(ObserverBase):
    """An observer that looks at nothing, so that it cannot say a scale."""

    def forward(self, x: Any) -> Any:
        """Return the tensor."""
        return x

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Refuse.

        Raises:
            Exception: always.
        """
        raise Exception(
            f"calculate_qparams should not be called for {type(self).__name__}: it keeps no "
            f"statistics"
        )


class PlaceholderObserver(_Passing):
    """Hand a configuration to the quantized module, and observe nothing.

    Args:
        dtype: what the numbers are converted to.
        custom_op_name: kept for PyTorch's programs.
        compute_dtype: deprecated; marks dynamic quantization.
        quant_min: the lowest integer.
        quant_max: the highest.
        qscheme: per tensor affine by default.
        eps: the smallest scale.
        is_dynamic: whether the numbers are quantized anew in each call.
    """

    def __init__(
        self,
        dtype: Any = tangrad.float32,
        custom_op_name: str = "",
        compute_dtype: Any = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: Any = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        self.qscheme = tangrad.per_tensor_affine if qscheme is None else qscheme
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.eps = EPS if eps is None else eps
        self.custom_op = custom_op_name
        if compute_dtype:
            warnings.warn(
                "Please use `is_dynamic` instead of `compute_dtype`. `compute_dtype` will be "
                "deprecated in a future release of PyTorch.",
                stacklevel=2,
            )

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"


class RecordingObserver(_Passing):
    """Keep every tensor that passes.

    Args:
        dtype: the quantized dtype.
    """

    def __init__(self, dtype: Any = None) -> None:
        super().__init__(tangrad.quint8 if dtype is None else dtype, False)
        self.tensor_val: list[Any] = []

    def forward(self, x: Any) -> Any:
        """Keep a copy of the tensor, and return it."""
        self.tensor_val.append(x.clone())
        return x

    def get_tensor_value(self) -> list[Any]:
        """Return what passed, in order."""
        return self.tensor_val


class NoopObserver(_Passing):
    """Observe nothing.

    Args:
        dtype: what the numbers are converted to.
        custom_op_name: kept for PyTorch's programs.
    """

    def __init__(self, dtype: Any = tangrad.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype, False)
        self.custom_op = custom_op_name


class ReuseInputObserver(_Passing):
    """Say that the output has the scale of the input, as of a reshape."""

    def __init__(self) -> None:
        super().__init__(tangrad.quint8, False)


def get_observer_state_dict(mod: Any) -> OrderedDict[str, Any]:
    """Return the part of a model's state that its observers hold."""
    state = mod.state_dict()
    found: Any = OrderedDict(
        (key, value) for key, value in state.items() if "activation_post_process" in key
    )
    found._metadata = state._metadata
    return found  # type: ignore[no-any-return]


def load_observer_state_dict(mod: Any, obs_dict: Any) -> None:
    """Load what `get_observer_state_dict` returned into a model that is prepared alike.

    Raises:
        Exception: a statistic is missing, or stands at no observer of the model.
    """
    missing: list[str] = []
    unexpected: list[str] = []
    obs_dict = OrderedDict(obs_dict)  # to which observers add what older ones did not save
    for name, module in mod.named_modules():
        if is_observer(module):
            module._load_from_state_dict(obs_dict, name + ".", {}, False, missing, unexpected, [])
    for kind, keys in (("Missing", missing), ("Unexpected", unexpected)):
        for key in keys:
            if "observer" in key or "activation_post_process" in key:
                raise Exception(f"{kind} keys for observer {key} in state_dict")


def is_observer(module: Any) -> bool:
    """Return whether a module observes, with or without rounding what passes."""
    return isinstance(module, ObserverBase) or hasattr(module, "fake_quant_enabled")


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_weight_observer = MinMaxObserver.with_args(
    dtype=tangrad.qint8, qscheme=tangrad.per_tensor_symmetric
)
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(
    dtype=tangrad.qint8,
    qscheme=tangrad.per_tensor_symmetric,
    quant_min=-127,
    quant_max=127,
    eps=2**-12,
)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=tangrad.qint8, qscheme=tangrad.per_channel_symmetric
)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(
    dtype=tangrad.qint8,
    qscheme=tangrad.per_channel_symmetric,
    quant_min=-127,
    quant_max=127,
    eps=2**-12,
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=tangrad.quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=tangrad.quint8, qscheme=tangrad.per_channel_affine_float_qparams, ch_axis=0
)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(
    dtype=tangrad.quint4x2, qscheme=tangrad.per_channel_affine_float_qparams, ch_axis=0
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, dtype=tangrad.quint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0, dtype=tangrad.quint8, quant_min=0, quant_max=255
)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_reuse_input_observer = ReuseInputObserver
