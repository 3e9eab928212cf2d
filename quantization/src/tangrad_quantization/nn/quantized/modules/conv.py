"""Convolutions of quantized tensors."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad.nn.utils.fusion import fuse_conv_bn_weights
from tangrad_quantization import functional
from tangrad_quantization.layouts import layout
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn.intrinsic import qat as nniqat
from tangrad_quantization.nn.quantized.modules.weights import (
    WeightedQuantizedModule,
    fold_norm,
    move_packed,
    observed_weight,
    output_scale,
    pop_bias,
    pop_quantized,
    require_float,
    save_scale,
    take_scale,
)
from tangrad_quantization.weights.packed import PackedConv, PackedTransposedConv


def _extents(value: Any, places: int) -> tuple[int, ...]:
    return (value,) * places if isinstance(value, int) else tuple(value)


class _ConvNd(WeightedQuantizedModule):
    """What the classes below share."""

    _places: int
    _FLOAT_MODULE: Any
    _QAT_WITH_BN: Any = ()
    _name: str
    _relu = False
    transposed = False

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
        self._geometry(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode
        )
        self.output_padding = (0,) * self._places
        self._fill(bias)

    def _geometry(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        padding_mode: str,
    ) -> None:
        if out_channels <= 0:
            raise ValueError(f"out_channels must be greater than 0, got {out_channels}")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name} must be divisible by groups, got {channels}, {groups}")
        if padding_mode not in ("zeros", "reflect"):
            raise ValueError(
                f"'padding_mode' {padding_mode} is not supported by quantized convolution"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = _extents(kernel_size, self._places)
        self.stride = _extents(stride, self._places)
        self.dilation = _extents(dilation, self._places)
        self.padding = self._whole_padding(padding)
        self.padding_mode = padding_mode
        self.scale, self.zero_point = 1.0, 0

    def _whole_padding(self, padding: Any) -> tuple[int, ...]:
        if padding == "valid":
            return (0,) * self._places
        if padding != "same":
            return _extents(padding, self._places)
        both = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        if any(size % 2 for size in both):
            raise ValueError(
                f"padding='same' would need {both} places in all, and quantized convolutions pad "
                f"both sides alike; take a kernel of odd size"
            )
        return tuple(size // 2 for size in both)

    def _fill(self, bias: bool) -> None:
        first, second = self.out_channels, self.in_channels // self.groups
        if self.transposed:
            first, second = self.in_channels, self.out_channels // self.groups
        zeros = tangrad.zeros(first, second, *self.kernel_size, dtype=tangrad.int8)
        self.set_weight_bias(
            layout.per_tensor(zeros, 1.0, 0, tangrad.qint8),
            tangrad.zeros(self.out_channels) if bias else None,
        )

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Replace weight and bias."""
        padding = self.padding if self.padding_mode == "zeros" else (0,) * self._places
        self._packed_params = PackedConv(w, b, self.stride, padding, self.dilation, self.groups)

    def _apply(self, fn: Any, *rest: Any) -> Any:
        made = super()._apply(fn, *rest)
        move_packed(self, fn)
        return made

    def _weight_bias(self) -> tuple[Any, Any]:
        return self._packed_params.weight, self._packed_params.bias

    def weight(self) -> Any:
        """Return the quantized weight."""
        return self._packed_params.weight

    def bias(self) -> Any:
        """Return the bias, float32, or None."""
        return self._packed_params.bias

    def _get_name(self) -> str:
        return self._name

    def extra_repr(self) -> str:
        said = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, scale={self.scale}, zero_point={self.zero_point}"
        ]
        for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            value = getattr(self, name)
            if value != (usual,) * len(value):
                said.append(f"{name}={value}")
        if self.groups != 1:
            said.append(f"groups={self.groups}")
        if self.bias() is None:
            said.append("bias=False")
        return ", ".join(said)

    def forward(self, input: Any) -> Any:
        """Apply the convolution to a quantized tensor."""
        if self.padding_mode != "zeros":
            input = self._reflected(input)
        return functional.conv(input, self._packed_params, self.scale, self.zero_point, self._relu)

    def _reflected(self, input: Any) -> Any:
        ends = [size for size in reversed(self.padding) for _ in range(2)]
        values = layout.values_of(input)
        wide = F.pad(values.to(tangrad.float32), ends, mode=self.padding_mode)
        return layout.with_values(input, wide.to(values.dtype))

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        weight, bias = self._weight_bias()
        destination[prefix + "weight"] = weight
        destination[prefix + "bias"] = bias
        save_scale(self, destination, prefix)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *rest: Any
    ) -> None:
        weight = pop_quantized(state_dict, prefix + "weight", self)
        self.set_weight_bias(weight, pop_bias(state_dict, prefix))
        take_scale(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *rest)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the quantized module for an observed float one, or one trained for it.

        Raises:
            AssertionError: the module is of another type, or not prepared.
            RuntimeError: its observer saw nothing.
        """
        scale, zero_point = 1.0, 0
        if hasattr(mod, "weight_fake_quant"):
            source, observer = mod, mod.weight_fake_quant
            if isinstance(mod, cls._QAT_WITH_BN):
                fold_norm(mod, fuse_conv_bn_weights)
        else:
            require_float(cls, mod, (cls._FLOAT_MODULE,))
            source = mod[0] if isinstance(mod, nni._FusedModule) else mod
            observer = mod.qconfig.weight()
        scale, zero_point = cls._output(mod)
        made = cls(**cls._arguments(source))
        made.set_weight_bias(
            observed_weight(source, observer, use_precomputed_fake_quant), source.bias
        )
        made.scale, made.zero_point = scale, zero_point
        return made

    @classmethod
    def from_reference(cls, ref_qconv: Any, output_scale: float, output_zero_point: int) -> Any:
        """Return the quantized module for a reference one."""
        made = cls(**cls._arguments(ref_qconv))
        made.set_weight_bias(ref_qconv.get_quantized_weight(), ref_qconv.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made

    @classmethod
    def _output(cls, mod: Any) -> tuple[float, int]:
        return output_scale(mod)

    @classmethod
    def _arguments(cls, source: Any) -> dict[str, Any]:
        names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation")
        given = {name: getattr(source, name) for name in (*names, "groups", "padding_mode")}
        return {**given, "bias": source.bias is not None}


class Conv1d(_ConvNd):
    """A convolution over one dimension of quantized tensors; arguments as of `nn.Conv1d`."""

    _places, _FLOAT_MODULE, _name = 1, nn.Conv1d, "QuantizedConv1d"
    _QAT_WITH_BN = nniqat.ConvBn1d


class Conv2d(_ConvNd):
    """A convolution over two dimensions of quantized tensors; arguments as of `nn.Conv2d`."""

    _places, _FLOAT_MODULE, _name = 2, nn.Conv2d, "QuantizedConv2d"
    _QAT_WITH_BN = nniqat.ConvBn2d


class Conv3d(_ConvNd):
    """A convolution over three dimensions of quantized tensors; arguments as of `nn.Conv3d`."""

    _places, _FLOAT_MODULE, _name = 3, nn.Conv3d, "QuantizedConv3d"
    _QAT_WITH_BN = nniqat.ConvBn3d


class _ConvTransposeNd(_ConvNd):
    """What transposed convolutions share."""

    transposed = True

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
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        nn.Module.__init__(self)
        self._geometry(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode
        )
        self.output_padding = _extents(output_padding, self._places)
        self._fill(bias)

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Replace weight and bias."""
        self._packed_params = PackedTransposedConv(
            w, b, self.stride, self.padding, self.output_padding, self.dilation, self.groups
        )

    def forward(self, input: Any) -> Any:
        """Apply the transposed convolution to a quantized tensor."""
        return functional.conv_transposed(input, self._packed_params, self.scale, self.zero_point)

    @classmethod
    def _arguments(cls, source: Any) -> dict[str, Any]:
        return {**super()._arguments(source), "output_padding": source.output_padding}


class ConvTranspose1d(_ConvTransposeNd):
    """A transposed convolution over one dimension of quantized tensors."""

    _places, _FLOAT_MODULE, _name = 1, nn.ConvTranspose1d, "QuantizedConvTranspose1d"


class ConvTranspose2d(_ConvTransposeNd):
    """A transposed convolution over two dimensions of quantized tensors."""

    _places, _FLOAT_MODULE, _name = 2, nn.ConvTranspose2d, "QuantizedConvTranspose2d"


class ConvTranspose3d(_ConvTransposeNd):
    """A transposed convolution over three dimensions of quantized tensors."""

    _places, _FLOAT_MODULE, _name = 3, nn.ConvTranspose3d, "QuantizedConvTranspose3d"
