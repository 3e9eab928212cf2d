"""Gradients of convolutions, as functions of their own: `torch.nn.grad`."""

from __future__ import annotations

from typing import Any

from tangrad.ops.convolution import convolution_input, convolution_weight

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
]


def _numbers(value: Any, count: int) -> tuple[int, ...]:
    """Return one number for each spatial dimension."""
    return (value,) * count if isinstance(value, int) else tuple(value)


def _geometry(count: int, *values: Any) -> list[tuple[int, ...]]:
    return [_numbers(value, count) for value in values]


def conv1d_input(
    input_size: Any,
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Return the gradient of `conv1d` in its input.

    Args:
        input_size: the input's shape, (N, C, L).
        weight: (O, C / groups, *kernel).
        grad_output: the gradient of the result, (N, O, ...).
        stride: of the convolution; so are `padding`, `dilation` and `groups`.

    Raises:
        RuntimeError: the shapes do not belong together.
    """
    geometry = _geometry(1, stride, padding, dilation)
    return convolution_input(weight, grad_output, tuple(input_size), *geometry, groups)


def conv1d_weight(
    input: Any,
    weight_size: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Return the gradient of `conv1d` in its weight.

    Args:
        input: (N, C, L).
        weight_size: the weight's shape, (O, C / groups, *kernel).
        grad_output: the gradient of the result, (N, O, ...).
        stride: of the convolution; so are `padding`, `dilation` and `groups`.

    Raises:
        RuntimeError: the shapes do not belong together.
    """
    geometry = _geometry(1, stride, padding, dilation)
    return convolution_weight(input, grad_output, tuple(weight_size), *geometry, groups)


def conv2d_input(
    input_size: Any,
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Return the gradient of `conv2d` in its input.

    Args:
        input_size: the input's shape, (N, C, H, W).
        weight: (O, C / groups, *kernel).
        grad_output: the gradient of the result, (N, O, ...).
        stride: of the convolution; so are `padding`, `dilation` and `groups`.

    Raises:
        RuntimeError: the shapes do not belong together.
    """
    geometry = _geometry(2, stride, padding, dilation)
    return convolution_input(weight, grad_output, tuple(input_size), *geometry, groups)


def conv2d_weight(
    input: Any,
    weight_size: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Return the gradient of `conv2d` in its weight.

    Args:
        input: (N, C, H, W).
        weight_size: the weight's shape, (O, C / groups, *kernel).
        grad_output: the gradient of the result, (N, O, ...).
        stride: of the convolution; so are `padding`, `dilation` and `groups`.

    Raises:
        RuntimeError: the shapes do not belong together.
    """
    geometry = _geometry(2, stride, padding, dilation)
    return convolution_weight(input, grad_output, tuple(weight_size), *geometry, groups)


def conv3d_input(
    input_size: Any,
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Return the gradient of `conv3d` in its input.

    Args:
        input_size: the input's shape, (N, C, D, H, W).
        weight: (O, C / groups, *kernel).
        grad_output: the gradient of the result, (N, O, ...).
        stride: of the convolution; so are `padding`, `dilation` and `groups`.

    Raises:
        RuntimeError: the shapes do not belong together.
    """
    geometry = _geometry(3, stride, padding, dilation)
    return convolution_input(weight, grad_output, tuple(input_size), *geometry, groups)


def conv3d_weight(
    input: Any,
    weight_size: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Return the gradient of `conv3d` in its weight.

    Args:
        input: (N, C, D, H, W).
        weight_size: the weight's shape, (O, C / groups, *kernel).
        grad_output: the gradient of the result, (N, O, ...).
        stride: of the convolution; so are `padding`, `dilation` and `groups`.

    Raises:
        RuntimeError: the shapes do not belong together.
    """
    geometry = _geometry(3, stride, padding, dilation)
    return convolution_weight(input, grad_output, tuple(weight_size), *geometry, groups)
