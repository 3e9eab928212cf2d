"""Gradients of convolutions, as functions of their own: `torch.nn.grad`."""

from __future__ import annotations

from typing import Any

from tangrad.ops.nn.convolution import convolution_input, convolution_weight

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
]

_SHAPES = ("(N, C, L)", "(N, C, H, W)", "(N, C, D, H, W)")


def _geometry(dims: int, *values: Any) -> list[tuple[int, ...]]:
    """Return one number for each spatial dimension, of every value."""
    return [(value,) * dims if isinstance(value, int) else tuple(value) for value in values]


def _named(function: Any, dims: int, operand: str, arguments: str) -> Any:
    function.__name__ = function.__qualname__ = f"conv{dims}d_{operand}"
    function.__doc__ = f"""Return the gradient of `conv{dims}d` in its {operand}.

    Args:
{arguments.format(shape=_SHAPES[dims - 1])}
        grad_output: the gradient of the result, (N, O, ...).
        stride: of the convolution; so are `padding`, `dilation` and `groups`.

    Raises:
        RuntimeError: the shapes do not belong together.
    """
    return function


def _in_input(dims: int) -> Any:
    def gradient(
        input_size: Any,
        weight: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        geometry = _geometry(dims, stride, padding, dilation)
        return convolution_input(weight, grad_output, tuple(input_size), *geometry, groups)

    arguments = """        input_size: the input's shape, {shape}.
        weight: (O, C / groups, *kernel)."""
    return _named(gradient, dims, "input", arguments)


def _in_weight(dims: int) -> Any:
    def gradient(
        input: Any,
        weight_size: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        geometry = _geometry(dims, stride, padding, dilation)
        return convolution_weight(input, grad_output, tuple(weight_size), *geometry, groups)

    arguments = """        input: {shape}.
        weight_size: the weight's shape, (O, C / groups, *kernel)."""
    return _named(gradient, dims, "weight", arguments)


conv1d_input, conv2d_input, conv3d_input = (_in_input(dims) for dims in (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = (_in_weight(dims) for dims in (1, 2, 3))
