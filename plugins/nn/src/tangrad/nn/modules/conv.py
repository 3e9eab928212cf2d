"""Convolutions."""

from __future__ import annotations

import math
from typing import Any, cast

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn import init
from tangrad.nn.modules.lazy import LazyModuleMixin
from tangrad.nn.modules.module import Module
from tangrad.nn.modules.utils import _ntuple, _reverse_repeat_tuple
from tangrad.nn.parameter import Parameter, UninitializedParameter

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """Hold what convolutions of any number of dimensions share; see `Conv2d`."""

    _dimensions: int
    _function: str
    _transposed = False
    weight: Tensor
    bias: Tensor | None

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
        self.transposed = self._transposed
        self.output_padding = spread(0)
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        self._reversed_padding_repeated_twice = self._padding_of_input()
        self.weight = Parameter(tangrad.empty(self._weight_shape(), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(tangrad.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        if self.transposed:
            return (self.in_channels, self.out_channels // self.groups, *self.kernel_size)
        return (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

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

    def forward(self, input: Tensor) -> Tensor:
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


class Conv3d(_ConvNd):
    """Correlate volumes (N, C, D, H, W) with learned filters.

    Arguments and attributes are those of `Conv2d`, for three dimensions.
    """

    _dimensions = 3
    _function = "conv3d"


class _ConvTransposeNd(_ConvNd):
    """Apply the adjoint of a convolution; see `ConvTranspose2d`."""

    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(
                f'Only "zeros" padding mode is supported for {type(self).__name__}, got '
                f"{padding_mode!r}"
            )
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )
        self.output_padding = _ntuple(self._dimensions)(output_padding)

    def _output_padding(self, input: Any, output_size: Any) -> tuple[int, ...]:
        """Return what must be added at the far end for a result of the wanted size."""
        if output_size is None:
            return tuple(self.output_padding)
        rank = self._dimensions
        lead = 2 if input.dim() == rank + 2 else 1
        wanted = tuple(output_size)
        wanted = wanted[lead:] if len(wanted) == lead + rank else wanted
        if len(wanted) != rank:
            raise ValueError(
                f"{type(self).__name__}: for {input.dim()}D input, output_size must have {rank} "
                f"or {lead + rank} elements (got {len(wanted)})"
            )
        sizes = zip(
            tuple(input.shape)[lead:],
            self.stride,
            self.padding,
            self.dilation,
            self.kernel_size,
            strict=True,
        )
        least = tuple((n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in sizes)
        most = tuple(n + s - 1 for n, s in zip(least, self.stride, strict=True))
        if any(not a <= n <= b for a, n, b in zip(least, wanted, most, strict=True)):
            raise ValueError(
                f"requested an output size of {wanted}, but valid sizes range from {least} to "
                f"{most} (for an input of {tuple(input.shape)[lead:]})"
            )
        return tuple(n - a for n, a in zip(wanted, least, strict=True))

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """Map (N, in_channels, *) to (N, out_channels, *); N may be missing.

        Args:
            input: the input.
            output_size: of the result, where the stride leaves several possible.
        """
        return getattr(F, self._function)(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self._output_padding(input, output_size),
            self.groups,
            self.dilation,
        )


class ConvTranspose1d(_ConvTransposeNd):
    """Apply the adjoint of `Conv1d` in its input.

    Arguments and attributes are those of `ConvTranspose2d`, for one dimension.
    """

    _dimensions = 1
    _function = "conv_transpose1d"


class ConvTranspose2d(_ConvTransposeNd):
    """Apply the adjoint of `Conv2d` in its input, which enlarges images.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window.
        stride: step between windows, by which the output is larger than the input.
        padding: elements left out on both sides.
        output_padding: elements added at the far end.
        groups: number of groups of channels that do not mix.
        bias: whether to add a learned number to each channel of the output.
        dilation: step between the elements of a window.
        padding_mode: ``"zeros"``.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Attributes:
        weight: of shape (in_channels, out_channels / groups, *kernel_size).
        bias: of shape (out_channels); None without bias.
    """

    _dimensions = 2
    _function = "conv_transpose2d"


class ConvTranspose3d(_ConvTransposeNd):
    """Apply the adjoint of `Conv3d` in its input.

    Arguments and attributes are those of `ConvTranspose2d`, for three dimensions.
    """

    _dimensions = 3
    _function = "conv_transpose3d"


# Convolutions that take the number of channels from their first input -----------------------------


class _LazyConvXdMixin(LazyModuleMixin):
    """Declare and make the parameters of a lazy convolution."""

    _dimensions: int
    bias: Tensor | None
    weight: Tensor
    groups: int
    in_channels: int
    out_channels: int

    def _declare(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, if they are made."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Any, *args: Any, **kwargs: Any) -> None:
        """Make the parameters for an input (N, in_channels, *); N may be missing.

        Raises:
            RuntimeError: the input has another number of dimensions.
            ValueError: its channels are not divisible by the groups.
        """
        if not self.has_uninitialized_params():
            return
        rank, made = self._dimensions, cast(Any, self)
        if input.dim() not in (rank + 1, rank + 2):
            raise RuntimeError(
                f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {tuple(input.shape)}"
            )
        self.in_channels = input.shape[input.dim() - rank - 1]
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        with tangrad.no_grad():
            self.weight.materialize(made._weight_shape())
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))
            self.reset_parameters()


class _LazyConvNd(_LazyConvXdMixin, _ConvNd):
    def __init__(
        self,
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
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._declare(out_channels, bias, device, dtype)


class _LazyConvTransposeNd(_LazyConvXdMixin, _ConvTransposeNd):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0,
            0,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            False,
            dilation,
            padding_mode,
        )
        self._declare(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConvNd, Conv1d):
    """A `Conv1d` that takes `in_channels` from its first input.

    Arguments are those of `Conv1d`, without `in_channels`.
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvNd, Conv2d):
    """A `Conv2d` that takes `in_channels` from its first input.

    Arguments are those of `Conv2d`, without `in_channels`.
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvNd, Conv3d):
    """A `Conv3d` that takes `in_channels` from its first input.

    Arguments are those of `Conv3d`, without `in_channels`.
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTransposeNd, ConvTranspose1d):
    """A `ConvTranspose1d` that takes `in_channels` from its first input.

    Arguments are those of `ConvTranspose1d`, without `in_channels`.
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTransposeNd, ConvTranspose2d):
    """A `ConvTranspose2d` that takes `in_channels` from its first input.

    Arguments are those of `ConvTranspose2d`, without `in_channels`.
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTransposeNd, ConvTranspose3d):
    """A `ConvTranspose3d` that takes `in_channels` from its first input.

    Arguments are those of `ConvTranspose3d`, without `in_channels`.
    """

    cls_to_become = ConvTranspose3d
