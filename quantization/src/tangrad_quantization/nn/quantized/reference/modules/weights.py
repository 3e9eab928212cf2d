"""How a float weight and the numbers that quantize it lie side by side in a module."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_quantization.layouts import layout
from tangrad_quantization.observer import PlaceholderObserver

_PER_CHANNEL = (tangrad.per_channel_affine, tangrad.per_channel_affine_float_qparams)
_SCHEMES = (None, tangrad.per_tensor_affine, *_PER_CHANNEL)
_AFFINE = {
    tangrad.per_tensor_symmetric: tangrad.per_tensor_affine,
    tangrad.per_channel_symmetric: tangrad.per_channel_affine,
}


def qparams_of(observer: Any) -> dict[str, Any]:
    """Return what an observer of a weight found, as reference modules take it.

    Args:
        observer: an observer or a fake quantization that has seen the weight.
    """
    if isinstance(observer, PlaceholderObserver):
        return {"qscheme": None, "dtype": observer.dtype}
    scheme = getattr(observer, "qscheme", None)
    found: dict[str, Any] = {"qscheme": _AFFINE.get(scheme, scheme), "dtype": observer.dtype}
    for bound in ("quant_min", "quant_max"):
        found[bound] = getattr(observer, bound, None)
    if scheme is not None:
        found["scale"], found["zero_point"] = observer.calculate_qparams()
    if found["qscheme"] in _PER_CHANNEL:
        found["axis"] = observer.ch_axis
    return found


def _as_tensor(value: Any, dtype: Any) -> Any:
    if isinstance(value, tangrad.Tensor):
        return value.detach().clone()
    return tangrad.tensor(value, dtype=dtype)


def hold_qparams(module: Any, name: str, given: dict[str, Any] | None) -> None:
    """Give a module the numbers that quantize its weight of that name, as buffers.

    Raises:
        AssertionError: the scheme is not affine.
    """
    given = given or {"qscheme": tangrad.per_tensor_affine, "dtype": tangrad.quint8}
    scheme, dtype = given["qscheme"], given["dtype"]
    if scheme not in _SCHEMES:
        raise AssertionError(
            f"qscheme: {scheme} is not supported in reference quantized {type(module).__name__}"
        )
    setattr(module, f"{name}_qscheme", scheme)
    setattr(module, f"{name}_dtype", dtype)
    scale = _as_tensor(given.get("scale", 1.0), tangrad.float32)
    zero_point = _as_tensor(given.get("zero_point", 0), tangrad.int32)
    axis = given.get("axis", 0) if scheme in _PER_CHANNEL else 0
    module.register_buffer(f"{name}_scale", scale)
    module.register_buffer(f"{name}_zero_point", zero_point)
    module.register_buffer(f"{name}_axis", _as_tensor(axis, tangrad.int32))
    setattr(module, f"{name}_axis_int", int(axis))


def quantized_weight_of(module: Any, name: str) -> Any:
    """Return a module's weight quantized; the float one where it stays float or half."""
    weight = getattr(module, name).detach().float().contiguous()
    scheme, dtype = getattr(module, f"{name}_qscheme"), getattr(module, f"{name}_dtype")
    if scheme is None or dtype in (tangrad.float16, tangrad.float32):
        return weight
    scale, zero_point = getattr(module, f"{name}_scale"), getattr(module, f"{name}_zero_point")
    if scheme == tangrad.per_tensor_affine:
        return layout.quantize_per_tensor(weight, float(scale), int(zero_point), dtype)
    floats = scheme == tangrad.per_channel_affine_float_qparams
    return layout.quantize_per_channel(
        weight,
        scale.float() if floats else scale.double(),
        zero_point.float() if floats else zero_point.long(),
        getattr(module, f"{name}_axis_int"),
        dtype,
    )


def rounded_weight_of(module: Any, name: str) -> Any:
    """Return a module's weight in float, with the values that it will have when quantized."""
    if getattr(module, f"{name}_dtype") == tangrad.float16:
        return getattr(module, name).half().float()
    made = quantized_weight_of(module, name)
    return layout.dequantize(made) if layout.is_quantized(made) else made


class ReferenceQuantizedModule:
    """What modules of one weight share; stands before the float class.

    Attributes:
        weight_qscheme: how the weight is quantized, None for not at all.
        weight_dtype: to which dtype.
        weight_scale, weight_zero_point, weight_axis: by what, buffers.
    """

    def get_weight(self) -> Any:
        """Return the weight in float, with the values that it will have when quantized."""
        return rounded_weight_of(self, "weight")

    def get_quantized_weight(self) -> Any:
        """Return the quantized weight."""
        return quantized_weight_of(self, "weight")

    def _init_weight_qparams(self, weight_qparams: Any, device: Any) -> None:
        hold_qparams(self, "weight", weight_qparams)

    def _take_over(self: Any, source: Any) -> Any:
        self.weight = tangrad.nn.Parameter(source.weight.detach(), requires_grad=False)
        if getattr(source, "bias", None) is not None:
            self.bias = tangrad.nn.Parameter(source.bias.detach(), requires_grad=False)
        return self
