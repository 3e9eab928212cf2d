"""Linear layers and convolutions that are called as functions, with a weight that is constant.

They become modules that hold the weight packed.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import fx
from tangrad.nn import functional as F
from tangrad_quantization.layouts import layout
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.intrinsic import quantized as nniq
from tangrad_quantization.nn.intrinsic.quantized import dynamic as nniqd
from tangrad_quantization.nn.quantized import dynamic as nnqd

# Function to its module, and to that with a ReLU.
_STATIC: dict[Any, tuple[Any, Any]] = {
    F.linear: (nnq.Linear, nniq.LinearReLU),
    F.conv1d: (nnq.Conv1d, nniq.ConvReLU1d),
    F.conv2d: (nnq.Conv2d, nniq.ConvReLU2d),
    F.conv3d: (nnq.Conv3d, nniq.ConvReLU3d),
    F.conv_transpose1d: (nnq.ConvTranspose1d, None),
    F.conv_transpose2d: (nnq.ConvTranspose2d, None),
    F.conv_transpose3d: (nnq.ConvTranspose3d, None),
}
_CONV = ("stride", "padding", "dilation", "groups")
_TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")
_USUAL = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0}


def evaluated(model: Any, node: Any) -> Any:
    """Return the value of a node that follows from constants alone; None where it does not."""
    if not isinstance(node, fx.Node):
        return node
    if node.op == "get_attr":
        found = model
        for name in str(node.target).split("."):
            found = getattr(found, name)
        return found.detach() if isinstance(found, tangrad.Tensor) else found
    if node.op not in ("call_function", "call_method"):
        return None
    args = [evaluated(model, argument) for argument in node.args]
    if any(value is None for value in args) or node.kwargs:
        return None
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:])
    assert callable(node.target)
    scale_then_zero = node.target is tangrad.quantize_per_tensor
    if scale_then_zero:
        args[1:3] = float(args[1]), int(args[2])
    if node.target is tangrad.quantize_per_channel:
        floats = args[2].is_floating_point()
        args[1:3] = (args[1].float(), args[2].float()) if floats else (args[1], args[2].long())
    return node.target(*args)


def _arguments(call: fx.Node, names: tuple[str, ...]) -> dict[str, Any]:
    given = dict(zip(("input", "weight", "bias", *names), call.args, strict=False))
    return {**given, **call.kwargs}


def _quantized_weight(model: Any, argument: Any) -> Any:
    """Return the quantized weight behind a dequantize; None where there is none."""
    if not isinstance(argument, fx.Node) or argument.target != "dequantize":
        return None
    return evaluated(model, argument.args[0])


def static_module(model: Any, call: fx.Node, relu: bool, scale: float, zero_point: int) -> Any:
    """Return the quantized module for a call in the reference form; None where there is none.

    Args:
        model: holds the weight.
        call: of a linear layer or a convolution.
        relu: whether a ReLU follows.
        scale, zero_point: of the output.
    """
    kinds = _STATIC.get(call.target) if call.op == "call_function" else None
    kind = None if kinds is None else kinds[1 if relu else 0]
    if kind is None:
        return None
    transposed = issubclass(kind, nnq.modules.conv._ConvTransposeNd)
    names = () if call.target is F.linear else (_TRANSPOSED if transposed else _CONV)
    given = _arguments(call, names)
    weight, bias = _quantized_weight(model, given["weight"]), evaluated(model, given.get("bias"))
    if not layout.is_quantized(weight) or weight.dtype != tangrad.qint8:
        return None
    if call.target is F.linear:
        made = kind(weight.shape[1], weight.shape[0])
    else:
        made = _convolution(kind, weight, given, names, transposed)
    made.set_weight_bias(weight, bias)
    made.scale, made.zero_point = scale, zero_point
    return made


def _convolution(
    kind: Any, weight: Any, given: dict[str, Any], names: tuple[str, ...], transposed: bool
) -> Any:
    said = {name: given.get(name, _USUAL[name]) for name in names}
    first, second = weight.shape[0], weight.shape[1] * said["groups"]
    channels = (first, second) if transposed else (second, first)
    return kind(*channels, tuple(weight.shape[2:]), **said)


def dynamic_module(model: Any, call: fx.Node, relu: bool) -> Any:
    """Return the dynamically quantized module for a linear call; None where there is none.

    Args:
        model: holds the weight.
        call: of a linear layer.
        relu: whether a ReLU follows.
    """
    if call.target is not F.linear:
        return None
    given = _arguments(call, ())
    weight, bias = _quantized_weight(model, given["weight"]), evaluated(model, given.get("bias"))
    if not isinstance(weight, tangrad.Tensor):
        return None
    dtype = weight.dtype
    if dtype not in (tangrad.qint8, tangrad.float16):
        return None
    kind = nniqd.LinearReLU if relu else nnqd.Linear
    made = kind(weight.shape[1], weight.shape[0], dtype=dtype)
    made.set_weight_bias(weight.float() if dtype == tangrad.float16 else weight, bias)
    return made
