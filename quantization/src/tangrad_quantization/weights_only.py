"""Linear layers whose weights alone are quantized, with torchao's call: `quantize_(model, config)`.

What reads a weight once per number, as language models do when they write text, waits for memory:
with 8 or 4 bits to a weight there is less to wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tangrad
from tangrad import nn
from tangrad_quantization import functional
from tangrad_quantization.layouts import layout
from tangrad_quantization.weights import groups
from tangrad_quantization.weights.packed import PackedLinear

__all__ = [
    "Float8WeightOnlyConfig",
    "Int4WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig",
    "Int8WeightOnlyConfig",
    "quantize_",
]


@dataclass(frozen=True)
class Int8WeightOnlyConfig:
    """Weights of 8 bits.

    Attributes:
        group_size: neighbours in a row that share a scale; None for whole rows.
        symmetric: take the middle for zero instead of a zero point of each group.
    """

    group_size: int | None = None
    symmetric: bool = True


@dataclass(frozen=True)
class Int4WeightOnlyConfig:
    """Weights of 4 bits.

    Attributes:
        group_size: neighbours in a row that share a scale, a multiple of 32.
        symmetric: take the middle for zero instead of a zero point of each group.
    """

    group_size: int = 128
    symmetric: bool = False


@dataclass(frozen=True)
class Int8DynamicActivationInt8WeightConfig:
    """Weights of 8 bits with a scale per row; inputs are quantized by their range in each call.

    Attributes:
        reduce_range: leave one bit of inputs unused.
    """

    reduce_range: bool = False


@dataclass(frozen=True)
class Float8WeightOnlyConfig:
    """Weights of 8 bits in floating point.

    Attributes:
        weight_dtype: tangrad.float8_e4m3fn (the default) or float8_e5m2.
        group_size: neighbours in a row that share a scale; None for whole rows.
    """

    weight_dtype: Any = None
    group_size: int | None = None


def quantize_(
    model: Any,
    config: Any,
    filter_fn: Callable[[Any, str], bool] | None = None,
    device: Any = None,
) -> None:
    """Quantize the weights of a model's linear layers, in place.

    Args:
        model: the model; its linear layers become layers for inference.
        config: one of the configurations of this module.
        filter_fn: says of (module, name) whether it is quantized; every `nn.Linear` by default.
        device: where the model is moved to first.

    Raises:
        TypeError: the configuration is none of them.
        ValueError: a layer's rows do not divide into groups.
        RuntimeError: no layer was found, or a weight holds NaN or infinity.
    """
    if type(config) not in _CONVERSIONS:
        names = ", ".join(kind.__name__ for kind in _CONVERSIONS)
        raise TypeError(f"quantize_: config must be one of {names}, not {type(config).__name__}")
    if device is not None:
        model.to(device)
    chosen = filter_fn or (lambda module, name: type(module) is nn.Linear)
    found = [(name, module) for name, module in model.named_modules() if chosen(module, name)]
    if not found:
        raise RuntimeError("quantize_: the model has no linear layer that filter_fn chooses")
    for name, module in found:
        _check(name, module)
    for name, module in found:
        _CONVERSIONS[type(config)](name, module, config)


def _check(name: str, module: Any) -> None:
    if isinstance(module, _Inference):
        raise RuntimeError(f"quantize_: '{name}' is quantized already")
    if not isinstance(module, nn.Linear):
        raise TypeError(f"quantize_: '{name}' is no nn.Linear, but {type(module).__name__}")
    if not bool(module.weight.isfinite().all()):
        raise RuntimeError(f"quantize_: the weight of '{name}' holds NaN or infinity")


class _Inference(nn.Linear):
    """A linear layer that has given its weight away.

    Attributes:
        weight: quantized; by groups or, of `DynamicLinear`, by rows.
    """

    def _become(self: Any, kind: Any, weight: Any) -> None:
        """Change the class, and hold this tensor in place of the weight."""
        del self._parameters["weight"]
        bias = self._parameters.pop("bias", None)
        self.__class__ = kind
        self.register_buffer("weight", weight)
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.eval()

    def _apply(self: Any, fn: Any, *rest: Any) -> Any:
        """Move the weight with the module; what it is quantized to stays."""
        weight = self._buffers.pop("weight")
        try:
            made = super()._apply(fn, *rest)
            place = fn(tangrad.empty(0, dtype=tangrad.uint8, device=weight.device)).device
        finally:
            self._buffers["weight"] = weight
        self._buffers["weight"] = weight if place == weight.device else weight.to(place)
        return made

    def _load_from_state_dict(self: Any, state_dict: Any, prefix: str, *rest: Any) -> None:
        given, own = state_dict.get(prefix + "weight", self.weight), self.weight
        if (given.dtype, given.shape, given.layout) != (own.dtype, own.shape, own.layout):
            raise RuntimeError(
                f"load_state_dict: '{prefix}weight' of {type(self).__name__} must be "
                f"{own.dtype}{list(own.shape)} of {own.layout}, got {given.dtype}"
                f"{list(given.shape)} of {given.layout}; load the state of a float model before "
                f"quantize_, and that of a quantized one into a model quantized by the same "
                f"configuration"
            )
        super()._load_from_state_dict(state_dict, prefix, *rest)


class GroupedLinear(_Inference):
    """A linear layer whose weight has 8 or 4 bits, in groups that share a scale."""

    _kept: groups.Kept

    def forward(self, input: Any) -> Any:
        """Apply the layer to numbers; nothing is recorded for a gradient."""
        return groups.linear(input, self.weight, self.bias, self._kept)

    def extra_repr(self) -> str:
        size = groups.group_size(self.weight)
        return f"{super().extra_repr()}, dtype={self.weight.dtype}, group_size={size}"


class Float8Linear(GroupedLinear):
    """A linear layer whose weight has 8 bits in floating point, in groups that share a scale."""


class DynamicLinear(_Inference):
    """A linear layer of int8 rows, whose input is quantized in each call."""

    reduce_range: bool
    _packed: Any

    def forward(self, input: Any) -> Any:
        """Apply the layer to numbers; nothing is recorded for a gradient."""
        if self._packed is None or self._packed.source is not self.weight:
            self._packed = PackedLinear(self.weight, None)
        made = functional.linear_dynamic(input, self._packed, self.reduce_range)
        if self.bias is not None:
            made = made + self.bias.to(made.dtype)
        return made.to(input.dtype)


def _grouped(
    name: str, module: Any, kind: Any, size: int | None, dtype: Any, symmetric: bool
) -> None:
    depth = module.in_features
    size = depth if size is None else size
    groups.require_groups("quantize_", f"'{name}'", depth, size, dtype)
    weight = groups.quantize_per_group(module.weight.detach().float(), size, dtype, symmetric)
    _Inference._become(module, kind, weight)
    module._kept = groups.Kept()


def _to_int8(name: str, module: Any, config: Any) -> None:
    _grouped(name, module, GroupedLinear, config.group_size, tangrad.qint8, config.symmetric)


def _to_int4(name: str, module: Any, config: Any) -> None:
    _grouped(name, module, GroupedLinear, config.group_size, tangrad.quint4x2, config.symmetric)


def _to_float8(name: str, module: Any, config: Any) -> None:
    dtype = config.weight_dtype or tangrad.float8_e4m3fn
    _grouped(name, module, Float8Linear, config.group_size, dtype, True)


def _to_dynamic(name: str, module: Any, config: Any) -> None:
    weight = module.weight.detach().float()
    scales = (weight.abs().amax(1) / 127).clamp(min=2.0**-100)
    zeros = tangrad.zeros(len(scales), dtype=tangrad.int64)
    quantized = layout.quantize_per_channel(
        weight.contiguous(), scales.double(), zeros, 0, tangrad.qint8
    )
    _Inference._become(module, DynamicLinear, quantized)
    module._packed = None
    module.reduce_range = config.reduce_range


_CONVERSIONS: dict[type, Callable[[str, Any, Any], None]] = {
    Int8WeightOnlyConfig: _to_int8,
    Int4WeightOnlyConfig: _to_int4,
    Int8DynamicActivationInt8WeightConfig: _to_dynamic,
    Float8WeightOnlyConfig: _to_float8,
}
