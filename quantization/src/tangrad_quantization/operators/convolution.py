"""Convolutions of quantized tensors, and of numbers with a quantized weight."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tangrad_quantization import functional
from tangrad_quantization.layouts import layout
from tangrad_quantization.weights.packed import PackedConv, PackedTransposedConv

__all__: list[str] = ["conv2d_add", "conv2d_add_relu", "conv_prepack", "conv_unpack"]


def _require(packed: Any, name: str, kind: Any, places: int) -> Any:
    if not isinstance(packed, kind) or packed.places != places:
        place = "_transpose" if kind is PackedTransposedConv else ""
        wanted = f"conv{place}{places}d_prepack"
        found = type(packed).__name__
        raise TypeError(
            f"quantized::{name}(): the weight must be packed by quantized.{wanted}, got {found}"
        )
    return packed


def _named(name: str, doc: str, function: Callable[..., Any]) -> None:
    """Show a function under a name of PyTorch."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    globals()[name] = function
    if name not in __all__:
        __all__.append(name)


def _ends(name: str, rest: tuple[Any, ...]) -> tuple[float, int]:
    # The older form repeats the geometry, which is part of the packed weight.
    if len(rest) not in (2, 6):
        raise TypeError(
            f"quantized::{name}(): takes (qx, packed_weight, output_scale, output_zero_point)"
        )
    return float(rest[-2]), int(rest[-1])


def _static(name: str, places: int, relu: bool) -> Callable[..., Any]:
    def convolve(qx: Any, packed_weight: Any, *rest: Any, **ends: Any) -> Any:
        packed = _require(packed_weight, name, PackedConv, places)
        given = (
            *rest,
            *(ends[key] for key in ("output_scale", "output_zero_point") if key in ends),
        )
        return functional.conv(qx, packed, *_ends(name, given), relu=relu)

    given = ("qx", Any), ("packed_weight", Any), ("output_scale", float), ("output_zero_point", int)
    convolve.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # as scripts call it
        [
            inspect.Parameter(
                key, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind.__name__
            )
            for key, kind in given
        ]
    )
    return convolve


def _geometry(name: str, weight: Any, places: int, **given: Any) -> list[tuple[int, ...]]:
    """Return extents as tuples of one number for each place.

    Raises:
        RuntimeError: the weight or one of them has other dimensions.
    """
    if weight.dim() != places + 2:
        raise RuntimeError(
            f"quantized::{name}: the weight must have {places + 2} dimensions, got shape "
            f"{list(weight.shape)}"
        )
    made = []
    for what, values in given.items():
        found = (values,) * places if isinstance(values, int) else tuple(values)
        if len(found) != places:
            raise RuntimeError(
                f"quantized::{name}: {what} must have {places} numbers, got {list(found)}"
            )
        made.append(found)
    return made


def _prepack(name: str, places: int) -> Callable[..., Any]:
    def prepack(
        weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Any:
        extents = _geometry(name, weight, places, stride=stride, padding=padding, dilation=dilation)
        return PackedConv(weight, bias, *extents, groups)

    return prepack


def _prepack_transposed(name: str, places: int) -> Callable[..., Any]:
    def prepack(
        weight: Any,
        bias: Any,
        stride: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
    ) -> Any:
        extents = _geometry(
            name,
            weight,
            places,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            dilation=dilation,
        )
        return PackedTransposedConv(weight, bias, *extents, groups)

    return prepack


def _transposed(name: str, places: int) -> Callable[..., Any]:
    def convolve(qx: Any, packed_weight: Any, output_scale: float, output_zero_point: int) -> Any:
        packed = _require(packed_weight, name, PackedTransposedConv, places)
        return functional.conv_transposed(qx, packed, float(output_scale), int(output_zero_point))

    return convolve


def _dynamic(name: str, kind: Any, places: int) -> Callable[..., Any]:
    def convolve(qx: Any, packed_weight: Any, reduce_range: bool = False) -> Any:
        return functional.conv_dynamic(
            qx, _require(packed_weight, name, kind, places), reduce_range
        )

    return convolve


def _unpack(name: str, kind: Any, places: int) -> Callable[..., Any]:
    def unpack(packed_weights: Any) -> tuple[Any, Any]:
        packed = _require(packed_weights, name, kind, places)
        return packed.weight, packed.bias

    return unpack


def _asked(name: str, kind: Any, places: int, what: str) -> Callable[..., Any]:
    def ask(packed_weights: Any) -> Any:
        packed = _require(packed_weights, name, kind, places)
        if what == "transpose":
            return int(kind is PackedTransposedConv)
        if what == "groups":
            return packed.groups
        extents = getattr(packed, what, None)  # a convolution pads no output
        return [0] * places if extents is None else list(extents[-places:])

    return ask


def _family(stem: str, kind: Any, places: int, words: str) -> None:
    """Make what PyTorch has for convolutions of one kind and number of dimensions."""
    for ending, doc, function in (
        ("_dynamic", f"Apply {words} to numbers, quantized by their own range.", _dynamic),
        ("_unpack", f"Return weight and bias that were packed for {words}.", _unpack),
    ):
        _named(stem + ending, doc, function(stem + ending, kind, places))
    if places == 1:
        return
    for what in ("stride", "padding", "output_padding", "dilation", "groups", "transpose"):
        name = f"{stem}_{what}"
        _named(name, f"Return the {what} packed with {words}.", _asked(name, kind, places, what))


for _places in (1, 2, 3):
    _stem = f"conv{_places}d"
    _words = f"a convolution over {_places} dimension{'s' * (_places > 1)}"
    _named(_stem, f"Apply {_words} to a quantized tensor.", _static(_stem, _places, False))
    _named(
        f"{_stem}_relu",
        f"Apply {_words} and a ReLU to a quantized tensor.",
        _static(f"{_stem}_relu", _places, True),
    )
    _named(
        f"{_stem}_prepack",
        f"Pack weight, qint8, and bias of {_words} with its geometry.",
        _prepack(f"{_stem}_prepack", _places),
    )
    _family(_stem, PackedConv, _places, _words)
    _stem = f"conv_transpose{_places}d"
    _words = f"a transposed convolution over {_places} dimension{'s' * (_places > 1)}"
    _named(_stem, f"Apply {_words} to a quantized tensor.", _transposed(_stem, _places))
    _named(
        f"{_stem}_prepack",
        f"Pack weight, qint8, and bias of {_words} with its geometry.",
        _prepack_transposed(f"{_stem}_prepack", _places),
    )
    _family(_stem, PackedTransposedConv, _places, _words)

conv_prepack, conv_unpack = globals()["conv2d_prepack"], globals()["conv2d_unpack"]


def conv2d_add(
    qx: Any, qaccum: Any, packed_weight: Any, output_scale: float, output_zero_point: int
) -> Any:
    """Apply a convolution and add a second quantized tensor; the sum is rounded once."""
    return _with_sum("conv2d_add", qx, qaccum, packed_weight, output_scale, output_zero_point)


def conv2d_add_relu(
    qx: Any, qaccum: Any, packed_weight: Any, output_scale: float, output_zero_point: int
) -> Any:
    """Apply a convolution, add a second quantized tensor, and replace negative sums by zero."""
    return _with_sum("conv2d_add_relu", qx, qaccum, packed_weight, output_scale, output_zero_point)


def _with_sum(
    name: str, qx: Any, qaccum: Any, packed_weight: Any, scale: float, zero_point: int
) -> Any:
    packed = _require(packed_weight, name, PackedConv, 2)
    extra = layout.dequantize(qaccum)

    def after(x: Any) -> Any:
        return (x + extra).relu() if name.endswith("_relu") else x + extra

    return functional.conv_then(qx, packed, after, float(scale), int(zero_point))
