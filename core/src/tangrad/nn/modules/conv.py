"""Convolutions."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad.nn import init
from tangrad.nn.modules.module import Module
from tangrad.nn.modules.utils import _ntuple, _reverse_repeat_tuple
from tangrad.nn.parameter import Parameter

__all__ = ["Conv1d", "Conv2d"]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """Hold what convolutions of any number of dimensions share; see `Conv2d`."""

    _dimensions: int
    _function: str
    weight: Any
    bias: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        spread = _ntuple(self._dimensions)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = spread(kernel_size)
        self.stride = spread(stride)
        self.padding = padding if isinstance(padding, str) else spread(padding)
        self.dilation = spread(dilation)
        self.transposed = False
        self.output_padding = spread(0)
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        self._reversed_padding_repeated_twice = self._padding_of_input()
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(tangrad.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(tangrad.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _check(self) -> None:
        if self.groups <= 0:
            raise ValueError("groups must be a positive integer")
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise ValueError(f"{name} must be divisible by groups")
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(
                    f"Invalid padding string {self.padding!r}, should be one of 'same', 'valid'"
                )
            if self.padding == "same" and any(step != 1 for step in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if self.padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {set(_PADDING_MODES)}, "
                f"but got padding_mode='{self.padding_mode}'"
            )

    def _padding_of_input(self) -> list[int]:
        """Return the padding as `F.pad` takes it: for the padding modes that the op lacks."""
        if not isinstance(self.padding, str):
            return list(_reverse_repeat_tuple(self.padding, 2))
        sides = [0] * (2 * self._dimensions)
        if self.padding == "same":
            windows = zip(reversed(self.dilation), reversed(self.kernel_size), strict=True)
            for position, (step, size) in enumerate(windows):
                total = step * (size - 1)
                sides[2 * position] = total // 2
                sides[2 * position + 1] = total - total // 2
        return sides

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        if self.weight.numel() == 0:
            return
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        convolve = getattr(F, self._function)
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Any) -> Any:
        """Map (N, in_channels, *) to (N, out_channels, *); N may be missing."""
        return self._conv_forward(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Show the sizes, and the options that are not at their default."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        ones = (1,) * self._dimensions
        zeros = (0,) * self._dimensions
        if self.padding != zeros:
            text += f", padding={self.padding}"
        if self.dilation != ones:
            text += f", dilation={self.dilation}"
        if self.output_padding != zeros:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class Conv1d(_ConvNd):
    """Correlate sequences (N, C, L) with learned filters.

    Arguments and attributes are those of `Conv2d`, for one dimension.
    """

    _dimensions = 1
    _function = "conv1d"


class Conv2d(_ConvNd):
    """Correlate images (N, C, H, W) with learned filters.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window: one number, or one for each dimension.
        stride: step between windows.
        padding: elements added on both sides, or ``"valid"`` (none) or ``"same"`` (output as
            large as the input; stride 1 only).
        dilation: step between the elements of a window.
        groups: number of groups of channels that do not mix.
        bias: whether to add a learned number to each channel of the output.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Raises:
        ValueError: if channels and groups, or the padding, do not fit.

    Attributes:
        weight: of shape (out_channels, in_channels / groups, *kernel_size), drawn uniformly
            from (-k, k) where k = sqrt(groups / (in_channels prod(kernel_size))).
        bias: of shape (out_channels), drawn like the weight; None without bias.
    """

    _dimensions = 2
    _function = "conv2d"
