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
from tangrad.nn import functional as F
from tangrad_quantization import functional, layout, ops
from tangrad_quantization.packed import PackedLinear

__all__ = [
    "Float8WeightOnlyConfig",
    "Int4WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig",
    "Int8WeightOnlyConfig",
    "quantize_",
]


@dataclass(frozen=True)
class Int8WeightOnlyConfig:
    """Weights of 8 bits, symmetric.

    Attributes:
        group_size: neighbours in a row that share a scale; None for whole rows.
    """

    group_size: int | None = None


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
    """Weights of 8 bits in floating point, with a scale per row.

    Attributes:
        weight_dtype: tangrad.float8_e4m3fn (the default) or float8_e5m2.
    """

    weight_dtype: Any = None


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
    """A linear layer that has given its weight away."""

    def _become(self: Any, kind: Any, **tensors: Any) -> None:
        """Change the class, and hold these tensors in place of the weight."""
        del self._parameters["weight"]
        bias = self._parameters.pop("bias", None)
        self.__class__ = kind
        for name, tensor in {**tensors, "bias": bias}.items():
            self.register_buffer(name, None if tensor is None else tensor.detach())
        self.eval()

    def _load_from_state_dict(self: Any, state_dict: Any, prefix: str, *rest: Any) -> None:
        given = state_dict.get(prefix + "weight", self.weight)
        if given.dtype != self.weight.dtype or given.shape != self.weight.shape:
            raise RuntimeError(
                f"load_state_dict: '{prefix}weight' of {type(self).__name__} must be "
                f"{self.weight.dtype}{list(self.weight.shape)}, got {given.dtype}"
                f"{list(given.shape)}; load the state of a float model before quantize_, and that "
                f"of a quantized one into a model quantized by the same configuration"
            )
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _finished(self: Any, made: Any, x: Any) -> Any:
        if self.bias is not None:
            made = made + self.bias.to(made.dtype)
        return made.reshape(*x.shape[:-1], self.out_features).to(x.dtype)

    def _rows(self: Any, x: Any) -> Any:
        if x.dim() == 0 or x.shape[-1] != self.in_features:
            raise RuntimeError(
                f"{type(self).__name__}: the input's last dimension must be {self.in_features}, "
                f"got shape {list(x.shape)}"
            )
        return x.detach().reshape(-1, self.in_features).to(tangrad.float32).contiguous()


class GroupedLinear(_Inference):
    """A linear layer whose weight has 8 or 4 bits, in groups that share a scale.

    Attributes:
        weight: int8, or two 4-bit integers to a byte.
        scales: float32 [rows, groups].
        zeros: float32 zero points, or None.
        bits: 8 or 4.
        group: elements of a group.
    """

    bits: int
    group: int

    def forward(self, input: Any) -> Any:
        """Apply the layer to numbers; nothing is recorded for a gradient."""
        made = ops.grouped_linear(
            self._rows(input), self.weight, self.scales, self.zeros, self.bits, self.group
        )
        return self._finished(made, input)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bits={self.bits}, group={self.group}"


class DynamicLinear(_Inference):
    """A linear layer of int8 rows, whose input is quantized in each call."""

    reduce_range: bool

    def forward(self, input: Any) -> Any:
        """Apply the layer to numbers; nothing is recorded for a gradient."""
        if self._packed is None or self._packed.source is not self.weight:
            self._packed = PackedLinear(self.weight, None)
        made = functional.linear_dynamic(self._rows(input), self._packed, self.reduce_range)
        return self._finished(made, input)


class Float8Linear(_Inference):
    """A linear layer whose weight has 8 bits in floating point, with a scale per row."""

    def forward(self, input: Any) -> Any:
        """Apply the layer to numbers, in float32; nothing is recorded for a gradient."""
        made = F.linear(self._rows(input), self.weight.to(tangrad.float32)) * self.scales
        return self._finished(made, input)


def _groups(name: str, module: Any, size: int | None, multiple: int) -> Any:
    """Return the weight as [rows, groups, elements], float32.

    Raises:
        ValueError: rows do not divide into groups.
    """
    depth = module.in_features
    size = depth if size is None else size
    if size < 1 or depth % size or size % multiple:
        raise ValueError(
            f"quantize_: group_size {size} does not suit '{name}' with {depth} inputs: it must "
            f"divide them{f' and be a multiple of {multiple}' if multiple > 1 else ''}; leave "
            f"the layer out by filter_fn, or choose another size"
        )
    return module.weight.detach().float().reshape(module.out_features, -1, size)


def _to_int8(name: str, module: Any, config: Any) -> None:
    groups = _groups(name, module, config.group_size, 1)
    scales = (groups.abs().amax(-1) / 127).clamp(min=2.0**-126)
    values = (groups / scales[:, :, None]).round().clamp(-127, 127).to(tangrad.int8)
    rows, size = module.out_features, groups.shape[2]
    _Inference._become(
        module, GroupedLinear, weight=values.reshape(rows, -1), scales=scales, zeros=None
    )
    module.bits, module.group = 8, size


def _to_int4(name: str, module: Any, config: Any) -> None:
    groups = _groups(name, module, config.group_size, 32)
    zeros = None
    if config.symmetric:
        scales = (groups.abs().amax(-1) / 7.5).clamp(min=2.0**-126)
        middle: Any = 8.0
    else:
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scales = ((high - low) / 15).clamp(min=2.0**-126)
        zeros = (-low / scales).round().clamp(0, 15)
        middle = zeros[:, :, None]
    values = ((groups / scales[:, :, None]).round() + middle).clamp(0, 15)
    packed = ops.pack_halves(values.reshape(module.out_features, -1))
    size = groups.shape[2]
    _Inference._become(module, GroupedLinear, weight=packed, scales=scales, zeros=zeros)
    module.bits, module.group = 4, size


def _to_dynamic(name: str, module: Any, config: Any) -> None:
    weight = module.weight.detach().float()
    scales = (weight.abs().amax(1) / 127).clamp(min=2.0**-100)
    zeros = tangrad.zeros(len(scales), dtype=tangrad.int64)
    quantized = layout.quantize_per_channel(
        weight.contiguous(), scales.double(), zeros, 0, tangrad.qint8
    )
    _Inference._become(module, DynamicLinear, weight=quantized)
    module._packed = None
    module.reduce_range = config.reduce_range


def _to_float8(name: str, module: Any, config: Any) -> None:
    dtype = config.weight_dtype or tangrad.float8_e4m3fn
    largest = tangrad.finfo(dtype).max
    weight = module.weight.detach().float()
    scales = (weight.abs().amax(1) / largest).clamp(min=2.0**-126)
    _Inference._become(
        module, Float8Linear, weight=(weight / scales[:, None]).to(dtype), scales=scales
    )


_CONVERSIONS: dict[type, Callable[[str, Any, Any], None]] = {
    Int8WeightOnlyConfig: _to_int8,
    Int4WeightOnlyConfig: _to_int4,
    Int8DynamicActivationInt8WeightConfig: _to_dynamic,
    Float8WeightOnlyConfig: _to_float8,
}
