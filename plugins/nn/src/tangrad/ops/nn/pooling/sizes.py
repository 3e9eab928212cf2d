"""Where windows lie: what sizes, strides, paddings and dilations may be, and how many fit."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tangrad.ops.nn.convolution import repeated
from tangrad.plugin import Ints, at_all_sizes


@at_all_sizes
def _pooled_size(n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    """Count window positions; with ceil_mode a last one may reach out, if it starts inside."""
    reach = n + 2 * p - d * (k - 1) - 1
    count = (reach + (s - 1 if ceil_mode else 0)) // s + 1
    return count - 1 if ceil_mode and (count - 1) * s >= n + p else count


def pooled_sizes(
    sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Ints:
    each = zip(sizes, kernel, stride, padding, dilation, strict=True)
    return tuple([_pooled_size(n, k, s, p, d, ceil_mode) for n, k, s, p, d in each])


def check_pool(
    name: str,
    self: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> None:
    if self.dtype.name == "bool" or self.dtype.is_complex:
        raise NotImplementedError(f"{name} is not implemented for {self.dtype}")
    check_windows(name, self.shape, kernel_size, stride, padding, dilation, ceil_mode)


def check_windows(
    name: str,
    shape: Ints,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> None:
    spatial = len(kernel_size)
    if len(shape) not in (spatial + 1, spatial + 2):
        raise RuntimeError(
            f"{name}: Expected {spatial + 1}D or {spatial + 2}D tensor, but got: {list(shape)}"
        )
    if 0 in shape[1 if len(shape) == spatial + 2 else 0 :]:
        raise RuntimeError(
            f"{name}: Expected {spatial + 1}D or {spatial + 2}D (batch mode) tensor with non-batch "
            f"dimensions of positive length, but got: {list(shape)}"
        )
    for k, s, p, d in zip(kernel_size, stride, padding, dilation, strict=True):
        if k < 1 or s < 1 or p < 0 or p > k // 2 or d < 1:
            _refuse_windows(name, kernel_size, stride, padding, dilation)
    out = pooled_sizes(shape[-spatial:], kernel_size, stride, padding, dilation, ceil_mode)
    for n in out:
        if n < 1:
            raise RuntimeError(
                f"{name}: Given input size: {list(shape)}. Calculated output size: "
                f"{list(out)}. Output size is too small"
            )


def _refuse_windows(
    name: str, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> None:
    if any(s < 1 for s in stride):
        raise RuntimeError(f"{name}: stride must be greater than zero, got {list(stride)}")
    if any(k < 1 for k in kernel_size):
        raise RuntimeError(
            f"{name}: kernel_size must be greater than zero, got {list(kernel_size)}"
        )
    if any(d < 1 for d in dilation):
        raise RuntimeError(f"dilation should be greater than zero, got {list(dilation)} ({name})")
    if any(p < 0 or p > k // 2 for p, k in zip(padding, kernel_size, strict=True)):
        raise RuntimeError(
            "pad should be at most half of effective kernel size, but got "
            f"pad={list(padding)}, kernel_size={list(kernel_size)} ({name})"
        )


POOL_ERRORS = "kernel size|stride should not be zero|greater than zero|positive"


def _steps(stride: Any, kernel: Ints, spatial: int) -> Ints:
    """Return the strides; where none are given, windows do not overlap."""
    if stride is None or (isinstance(stride, (tuple, list)) and not stride):
        return kernel
    return repeated("stride", stride, spatial)


def hashable(*arguments: Any) -> Any:
    """Return arguments with tuples in place of lists."""
    return tuple([tuple(each) if isinstance(each, list) else each for each in arguments])


def windows_of(
    spatial: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return kernel size, stride, padding and dilation for every dimension."""
    if list in (type(kernel_size), type(stride), type(padding), type(dilation)):
        return known_windows(spatial, *hashable(kernel_size, stride, padding, dilation))
    return known_windows(spatial, kernel_size, stride, padding, dilation)


@lru_cache(maxsize=256, typed=True)
def known_windows(
    spatial: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Ints, Ints, Ints, Ints]:
    kernel = repeated("kernel_size", kernel_size, spatial)
    return (
        kernel,
        _steps(stride, kernel, spatial),
        repeated("padding", padding, spatial),
        repeated("dilation", dilation, spatial),
    )
