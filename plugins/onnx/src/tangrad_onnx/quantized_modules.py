"""Quantized models with floats in the place of quantized tensors, for files that say so.

Each quantized module becomes the layer on floats, whose weight and result are rounded to the
values that quantized ones have: the file then has `QuantizeLinear` and `DequantizeLinear` there.
Modules that fake quantization round by the scales that they have.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import tangrad
from tangrad import Tensor, nn
from tangrad.nn import functional as F
from tangrad_onnx.errors import OnnxExporterError

__all__ = ["on_floats"]

_LEVELS = {"quint8": (0, 255), "qint8": (-128, 127)}


def on_floats(model: nn.Module) -> nn.Module:
    """Return a module with floats in the place of quantized tensors; one without any as it is.

    Raises:
        OnnxExporterError: a quantized module has no such form; names its path and class.
    """
    if not any(_is_quantized(part) for part in model.modules()):
        return model
    made = copy.deepcopy(model)
    if _is_quantized(made):
        return _form(made, "")
    for path, part in list(_outermost(made, "")):
        above, _, last = path.rpartition(".")
        setattr(made.get_submodule(above), last, _form(part, path))
    return made


def _is_quantized(module: nn.Module) -> bool:
    return ".quantized." in type(module).__module__ or hasattr(module, "fake_quant_enabled")


def _outermost(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        place = f"{path}.{name}" if path else name
        if _is_quantized(child):
            yield place, child
        else:
            yield from _outermost(child, place)


def _levels(dtype: Any) -> tuple[int, int]:
    return _LEVELS[dtype.name]


class _Rounded(nn.Module):
    """Round to the values of a quantized tensor.

    Args:
        scale: of the tensor.
        zero_point: of the tensor.
        dtype: of the tensor, quint8 or qint8.
        levels: the least and the greatest; those of the dtype by default.
    """

    def __init__(
        self, scale: Any, zero_point: Any, dtype: Any = tangrad.quint8, levels: Any = None
    ) -> None:
        super().__init__()
        self.scale, self.zero_point = float(scale), int(zero_point)
        ends: Any = levels or _levels(dtype)
        self.low, self.high = ends

    def forward(self, x: Tensor) -> Tensor:
        """Round."""
        return tangrad.fake_quantize_per_tensor_affine(
            x, self.scale, self.zero_point, self.low, self.high
        )


class _RoundedChannels(nn.Module):
    """Round to the values of a tensor that is quantized by channels.

    Args:
        scale, zero_point: of each channel.
        axis: of the channels.
        low, high: the levels.
    """

    def __init__(self, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int) -> None:
        super().__init__()
        self.register_buffer("scale", scale.detach().float())
        self.register_buffer("zero_point", zero_point.detach().int())
        self.axis, self.low, self.high = axis, low, high

    def forward(self, x: Tensor) -> Tensor:
        """Round."""
        given = self.scale, self.zero_point, self.axis, self.low, self.high
        return tangrad.fake_quantize_per_channel_affine(x, *given)


class _Layer(nn.Module):
    """A layer whose weight and result are rounded.

    Args:
        compute: of the input, the rounded weight, the bias and further inputs: the result.
        weight: quantized.
        bias: of floats, or None.
        result: rounds the result.
    """

    def __init__(
        self, compute: Callable[..., Tensor], weight: Any, bias: Any, result: nn.Module
    ) -> None:
        super().__init__()
        self.compute, self.result = compute, result
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.register_buffer("weight", weight.dequantize())
        self.round_weight = _of_weight(weight)

    def forward(self, x: Tensor, *further: Tensor) -> Tensor:
        """Compute, and round the result."""
        return self.result(self.compute(x, self.round_weight(self.weight), self.bias, *further))


def _of_weight(weight: Any) -> nn.Module:
    """Return what rounds a weight to what it is."""
    if weight.qscheme() not in (tangrad.per_channel_affine, tangrad.per_channel_symmetric):
        return _Rounded(weight.q_scale(), weight.q_zero_point(), weight.dtype)
    low, high = _levels(weight.dtype)
    given = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
    return _RoundedChannels(*given, weight.q_per_channel_axis(), low, high)


class _Functional(nn.Module):
    """Sums and products whose results are rounded: what stands for a `QFunctional`."""

    def __init__(self, result: nn.Module) -> None:
        super().__init__()
        self.result = result

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + y."""
        return self.result(x + y)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """Return relu(x + y)."""
        return self.result(F.relu(x + y))

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x * y."""
        return self.result(x * y)

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x @ y."""
        return self.result(x @ y)

    def cat(self, x: Any, dim: int = 0) -> Tensor:
        """Return the tensors joined."""
        return self.result(tangrad.cat(x, dim))


class _Then(nn.Module):
    """A function of floats, and the rounding of its result."""

    def __init__(self, compute: Callable[..., Tensor], result: nn.Module) -> None:
        super().__init__()
        self.compute, self.result = compute, result

    def forward(self, x: Tensor) -> Tensor:
        """Compute, and round the result."""
        return self.result(self.compute(x))


def _frozen(module: Any, path: str) -> nn.Module:
    """Return what a module of fake quantization does by the scales that it has."""
    if module.observer_enabled[0] == 1:
        raise OnnxExporterError(
            f"{path or 'the model'} is a {type(module).__name__} that observes; call "
            "model.apply(tangrad.ao.quantization.disable_observer) before the export"
        )
    if module.fake_quant_enabled[0] == 0:
        return nn.Identity()
    observer = module.activation_post_process
    levels = int(observer.quant_min), int(observer.quant_max)
    if module.qscheme in (tangrad.per_channel_affine, tangrad.per_channel_symmetric):
        return _RoundedChannels(module.scale, module.zero_point, module.ch_axis, *levels)
    return _Rounded(module.scale, module.zero_point, levels=levels)


def _form(module: Any, path: str) -> nn.Module:
    name = type(module).__name__
    if hasattr(module, "fake_quant_enabled"):
        return _frozen(module, path)
    if ".dynamic." in type(module).__module__ and name in ("Linear", "LinearReLU"):
        return module  # its op has a form
    if name == "DeQuantize" or name == "Dropout":
        return nn.Identity()
    if name == "Quantize":
        return _Rounded(module.scale, module.zero_point, module.dtype)
    if name == "ReLU6":
        return nn.ReLU6()
    if name == "MaxPool2d":
        return nn.MaxPool2d(
            *(module.kernel_size, module.stride, module.padding, module.dilation),
            ceil_mode=module.ceil_mode,
        )
    is_static = hasattr(module, "scale") and ".dynamic." not in type(module).__module__
    compute = _computed(module, name) if is_static else None
    if compute is None:
        raise OnnxExporterError(
            f"{path or 'the model'} is a quantized {name}, which has no form in ONNX yet; leave it "
            "in floats, with qconfig None"
        )
    result = _Rounded(module.scale, module.zero_point)
    if name == "QFunctional":
        return _Functional(result)
    if name.startswith(("Linear", "Conv")):
        return _Layer(compute, module.weight(), module.bias(), result)
    return _Then(compute, result)


def _computed(module: Any, name: str) -> Callable[..., Tensor] | None:
    """Return what a quantized module computes, of floats."""
    found = _ELEMENTWISE.get(name)
    if found is not None:
        return found(module)
    if name.startswith("Linear"):
        then = _activation(module, name)
        return lambda x, weight, bias: then(F.linear(x, weight, bias))
    if name.startswith("Conv") and module.padding_mode == "zeros":
        return _convolution(module, name)
    return (lambda x: x) if name == "QFunctional" else None


def _activation(module: Any, name: str) -> Callable[[Tensor], Tensor]:
    if name.endswith("LeakyReLU"):
        return lambda x: F.leaky_relu(x, module.negative_slope)
    if "ReLU" in name:
        return F.relu
    return tangrad.tanh if name.endswith("Tanh") else lambda x: x


def _convolution(module: Any, name: str) -> Callable[..., Tensor]:
    then, places = _activation(module, name), name[-2:]
    if name.startswith("ConvTranspose"):
        function = getattr(F, f"conv_transpose{places}")
        given = *(module.stride, module.padding, module.output_padding), module.groups
        return lambda x, weight, bias: function(x, weight, bias, *given, module.dilation)
    function = getattr(F, f"conv{places}")
    given = module.stride, module.padding, module.dilation, module.groups
    if "Add" in name:
        return lambda x, weight, bias, y: then(function(x, weight, bias, *given) + y)
    return lambda x, weight, bias: then(function(x, weight, bias, *given))


def _normalized(module: Any) -> Callable[[Tensor], Tensor]:
    kind = type(module).__name__
    if kind.startswith(("BatchNorm", "BNReLU")):
        given = module.running_mean, module.running_var, module.weight, module.bias
        then = F.relu if kind.startswith("BNReLU") else lambda x: x
        return lambda x: then(F.batch_norm(x, *given, eps=module.eps))
    if kind == "LayerNorm":
        given = module.normalized_shape, module.weight, module.bias, module.eps
        return lambda x: F.layer_norm(x, *given)
    if kind == "GroupNorm":
        given = module.num_groups, module.weight, module.bias, module.eps
        return lambda x: F.group_norm(x, *given)
    weight, bias = module.weight, module.bias
    return lambda x: F.instance_norm(x, weight=weight, bias=bias, eps=module.eps)


_ELEMENTWISE: dict[str, Callable[[Any], Callable[[Tensor], Tensor]]] = {
    **dict.fromkeys(("BatchNorm2d", "BatchNorm3d", "BNReLU2d", "BNReLU3d"), _normalized),
    **dict.fromkeys(("LayerNorm", "GroupNorm"), _normalized),
    **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"), _normalized),
    "ELU": lambda module: lambda x: F.elu(x, module.alpha),
    "Hardswish": lambda module: F.hardswish,
    "LeakyReLU": lambda module: lambda x: F.leaky_relu(x, module.negative_slope),
    "Sigmoid": lambda module: tangrad.sigmoid,
    "Softmax": lambda module: lambda x: tangrad.softmax(x, module.dim),
}
