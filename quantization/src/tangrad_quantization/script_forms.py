"""Quantized modules as the code of archives, and their packed weights as archives hold them.

PyTorch loads them: the ops are those of its `torch.ops.quantized`, the classes those of
`torch.classes.quantized`.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import tangrad
from tangrad import Tensor, library, nn
from tangrad_quantization.layers.float_functional import FloatFunctional
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.intrinsic import quantized as nniq
from tangrad_quantization.nn.quantized.modules.linear import LinearPackedParams
from tangrad_quantization.stubs import DeQuantStub, QuantStub
from tangrad_quantization.weights.packed import PackedConv, PackedLinear

__all__ = ["form_of", "packing"]

_Attributes = dict[str, tuple[str, Any]]


class _ConvParams(PackedConv):
    """The packed weight of a convolution over two or three dimensions."""

    def __getstate__(self) -> tuple[str, list[Tensor], list[Tensor | None]]:
        """Return the format's version, the geometry and the weight, the bias."""
        extents = (self.stride, self.padding, self.dilation, (0, 0, 0))
        numbers = [n for extent in extents for n in extent[-self.places :]]
        geometry = tangrad.tensor([self.places, *numbers, self.groups, 0], dtype=tangrad.int16)
        return "2", [geometry, self.weight], [self.bias]

    def __setstate__(self, state: tuple[str, list[Tensor], list[Tensor | None]]) -> None:
        """Pack a weight anew.

        Raises:
            RuntimeError: the state is of another version, or of a transposed convolution.
        """
        version, (geometry, weight), (bias,) = state
        numbers = geometry.tolist()
        places = numbers[0] if numbers else 0
        if version != "2" or places not in (2, 3) or len(numbers) != 4 * places + 3 or numbers[-1]:
            raise RuntimeError(
                f"the packed weight has the version {version!r} and the geometry {numbers}; "
                "convolutions over 2 or 3 dimensions of version '2' are read"
            )
        stride, padding, dilation = (
            numbers[1 + k * places : 1 + (k + 1) * places] for k in range(3)
        )
        _ConvParams.__init__(self, weight, bias, stride, padding, dilation, numbers[-2])

    def unpack(self) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias."""
        return self.weight, self.bias


class _LinearParams(PackedLinear):
    """The packed weight of a linear layer."""

    def __getstate__(self) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias."""
        return self.weight, self.bias

    def __setstate__(self, state: tuple[Tensor, Tensor | None]) -> None:
        """Pack a weight anew."""
        _LinearParams.__init__(self, *state)


_CONVS = {
    places: library.register_class(f"quantized::Conv{places}dPackedParamsBase", _ConvParams)
    for places in (2, 3)
}
_LINEAR = library.register_class("quantized::LinearPackedParamsBase", _LinearParams)


def _held(cls: type, packed: Any) -> tuple[str, Any]:
    """Return the type and an object of a class of `tangrad.classes` with what is packed."""
    made = cls.__new__(cls)
    vars(made).update(vars(packed))
    return f"{cls.__module__}.{cls.__name__}", made


def packing(name: str, pack: Any) -> Any:
    """Return an op that packs weights as one whose results scripts can hold, or the op itself.

    Args:
        name: of the op.
        pack: the op.
    """
    cls = _PACKED.get(name)
    if cls is None:
        return pack

    @wraps(pack)
    def packed(*args: Any, **kwargs: Any) -> Any:
        made = pack(*args, **kwargs)
        return made if isinstance(made, tuple) else _held(cls, made)[1]

    packed.script_result = cls  # type: ignore[attr-defined]
    return packed


_PACKED = {
    **{f"conv{places}d_prepack": cls for places, cls in _CONVS.items()},
    "conv_prepack": _CONVS[2],
    "linear_prepack": _LINEAR,
    "linear_prepack_fp16": _LINEAR,
}


def _forward(op: str, *rest: str) -> str:
    given = ", ".join(["input", *rest])
    return f"  def forward(self: NAME, input: Tensor) -> Tensor:\n    return {op}({given})\n"


def _ends(module: Any) -> _Attributes:
    """Return the scale and the zero point of results, of modules that hold them as numbers."""
    return {
        "scale": ("float", float(module.scale)),
        "zero_point": ("int", int(module.zero_point)),
    }


_OWN = "self.scale", "self.zero_point"
_BUFFERS = "float(self.scale)", "int(self.zero_point)"
_PAIR = "x: Tensor, y: Tensor"
_METHODS = {
    **dict.fromkeys(("add", "mul", "add_relu", "matmul"), (_PAIR, "x, y", True)),
    **dict.fromkeys(("add_scalar", "mul_scalar"), ("x: Tensor, y: float", "x, y", False)),
    "cat": ("x: List[Tensor], dim: int=0", "x, dim", True),
}


def _unchanged(module: Any) -> tuple[_Attributes, str]:
    return {}, "  def forward(self: NAME, input: Tensor) -> Tensor:\n    return input\n"


def _conv(module: Any) -> tuple[_Attributes, str] | None:
    packed, relu = module._packed_params, "_relu" * isinstance(module, _WITH_RELU)
    if module.padding_mode != "zeros" or packed.places not in (2, 3):
        return None
    attributes = {"_packed_params": _held(_CONVS[packed.places], packed), **_ends(module)}
    op = f"ops.quantized.conv{packed.places}d{relu}"
    return attributes, _forward(op, "self._packed_params", *_OWN)


def _linear(module: Any) -> tuple[_Attributes, str]:
    op = f"ops.quantized.linear{'_relu' * isinstance(module, _WITH_RELU)}"
    return _ends(module), _forward(op, "self._packed_params._packed_params", *_OWN)


def _linear_params(module: Any) -> tuple[_Attributes, str] | None:
    if module.dtype != tangrad.qint8:
        return None
    return {"_packed_params": _held(_LINEAR, module._packed_params)}, _unchanged(module)[1]


def _functional(module: Any) -> tuple[_Attributes, str] | None:
    quantized = isinstance(module, nnq.QFunctional)
    if not quantized and type(module.activation_post_process) is not nn.Identity:
        return None
    text = ""
    for name, (parameters, given, scaled) in _METHODS.items():
        ends = ", ".join(["", *_OWN]) if scaled and quantized else ""
        call = f"ops.quantized.{name}({given}{ends})"
        if not quantized:
            call = f"torch.{name.removesuffix('_scalar').removesuffix('_relu')}({given})"
            call = f"torch.relu({call})" if name == "add_relu" else call
        text += f"  def {name}(self: NAME, {parameters}) -> Tensor:\n    return {call}\n"
    return (_ends(module) if quantized else {}), text


def _quantize(module: Any) -> tuple[_Attributes, str]:
    code = {"qint8": 12, "quint8": 13, "qint32": 14}[module.dtype.name]  # as archives have dtypes
    return {}, _forward("torch.quantize_per_tensor", *_BUFFERS, str(code))


def _plain(name: str, *rest: str) -> Any:
    return lambda module: ({}, _forward(name, *rest))


def _scaled(name: str, *numbers: str) -> Any:
    """Return the form of an activation with a scale, which is a buffer of some classes."""

    def make(module: Any) -> tuple[_Attributes, str]:
        of_buffers = "scale" in module._buffers
        ends = _BUFFERS if of_buffers else _OWN
        given = [repr(float(getattr(module, number))) for number in numbers]
        if name == "leaky_relu":
            given = [*given, "False", *ends]
        else:
            given = [*ends, *given]
        return {} if of_buffers else _ends(module), _forward(f"ops.quantized.{name}", *given)

    return make


_WITH_RELU = (nniq.ConvReLU2d, nniq.ConvReLU3d, nniq.LinearReLU)
_FORMS: dict[type, Any] = {
    **dict.fromkeys((nnq.Conv2d, nnq.Conv3d, nniq.ConvReLU2d, nniq.ConvReLU3d), _conv),
    **dict.fromkeys((nnq.Linear, nniq.LinearReLU), _linear),
    LinearPackedParams: _linear_params,
    **dict.fromkeys((nnq.QFunctional, FloatFunctional), _functional),
    **dict.fromkeys((QuantStub, DeQuantStub), _unchanged),
    nnq.Quantize: _quantize,
    nnq.DeQuantize: _plain("torch.dequantize"),
    nnq.Hardswish: _scaled("hardswish"),
    nnq.Sigmoid: _scaled("sigmoid"),
    nnq.ELU: _scaled("elu", "alpha"),
    nnq.LeakyReLU: _scaled("leaky_relu", "negative_slope"),
    nnq.ReLU6: _plain("ops.quantized.relu6", "False"),
    nnq.Dropout: _unchanged,
}


def form_of(module: Any) -> tuple[_Attributes, str] | None:
    """Return what a module is in archives, or None where it has no form.

    Returns:
        Attributes beside its buffers and children, each with its type as archives write it, and
        the text of its methods, in which NAME stands for the type of `self`.
    """
    make = _FORMS.get(type(module))
    return None if make is None else make(module)
