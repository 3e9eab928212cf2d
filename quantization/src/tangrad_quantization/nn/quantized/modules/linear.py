"""Linear layers of quantized tensors."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn.modules.linear import NonDynamicallyQuantizableLinear
from tangrad.nn.utils.fusion import fuse_linear_bn_weights
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
from tangrad_quantization.weights.packed import PackedLinear


class LinearPackedParams(nn.Module):
    """The weight of a linear layer, packed, and its bias.

    Args:
        dtype: qint8, or float16 for weights that are only stored shorter.
    """

    _version = 3

    def __init__(self, dtype: Any = None) -> None:
        super().__init__()
        self.dtype = tangrad.qint8 if dtype is None else dtype
        self._packed_params: Any = None

    def set_weight_bias(self, weight: Any, bias: Any) -> None:
        """Pack a quantized weight, or keep a float one in half precision.

        Raises:
            RuntimeError: the dtype is neither qint8 nor float16.
        """
        if self.dtype == tangrad.qint8:
            self._packed_params = PackedLinear(weight, bias)
        elif self.dtype == tangrad.float16:
            largest = 65504.0
            short = weight.detach().float().clamp(-largest, largest).half()
            self._packed_params = (short, None if bias is None else bias.detach())
        else:
            raise RuntimeError("Unsupported dtype on dynamic quantized linear!")

    def _weight_bias(self) -> tuple[Any, Any]:
        if self.dtype == tangrad.qint8:
            return self._packed_params.weight, self._packed_params.bias
        return self._packed_params[0].float(), self._packed_params[1]

    def forward(self, x: Any) -> Any:
        """Return the argument: this module only holds something."""
        return x

    def _apply(self, fn: Any, *rest: Any) -> Any:
        made = super()._apply(fn, *rest)
        move_packed(self, fn)
        return made

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._weight_bias()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *rest: Any
    ) -> None:
        self.dtype = state_dict.pop(prefix + "dtype", tangrad.qint8)
        if prefix + "_packed_params" in state_dict:
            weight, bias = state_dict.pop(prefix + "_packed_params")
            state_dict |= {prefix + "weight": weight, prefix + "bias": bias}
        bias = pop_bias(state_dict, prefix)
        if self.dtype == tangrad.qint8:
            weight = pop_quantized(state_dict, prefix + "weight", self)
        else:
            weight = state_dict.pop(prefix + "weight")
        self.set_weight_bias(weight, bias)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *rest)

    def __repr__(self) -> str:
        return repr(self._weight_bias())


class Linear(WeightedQuantizedModule):
    """A linear layer of quantized tensors.

    Args:
        in_features: size of each input vector.
        out_features: size of each output vector.
        bias_: whether there is one.
        dtype: of the weight, qint8.

    Attributes:
        scale: of the output.
        zero_point: of the output.
    """

    _version = 3
    _FLOAT_MODULE: Any = (nn.Linear, NonDynamicallyQuantizableLinear)
    _QAT: Any = ()
    _name = "QuantizedLinear"

    def __init__(
        self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = None
    ) -> None:
        super().__init__()
        dtype = tangrad.qint8 if dtype is None else dtype
        self.in_features, self.out_features = in_features, out_features
        if dtype not in (tangrad.qint8, tangrad.float16):
            raise RuntimeError("Unsupported dtype specified for quantized Linear!")
        weight = tangrad.zeros(out_features, in_features)
        if dtype == tangrad.qint8:
            weight = layout.per_tensor(weight.to(tangrad.int8), 1.0, 0, dtype)
        self._packed_params = LinearPackedParams(dtype)
        self.set_weight_bias(weight, tangrad.zeros(out_features) if bias_ else None)
        self.scale = 1.0
        self.zero_point = 0

    def _get_name(self) -> str:
        return self._name

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"scale={self.scale}, zero_point={self.zero_point}, "
            f"qscheme={self.weight().qscheme()}"
        )

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def forward(self, x: Any) -> Any:
        """Apply the layer to a quantized tensor."""
        return functional.linear(x, self._packed_params._packed_params, self.scale, self.zero_point)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        save_scale(self, destination, prefix)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *rest: Any
    ) -> None:
        take_scale(self, state_dict, prefix)
        if local_metadata.get("version") in (None, 1) and prefix + "weight" in state_dict:
            for name in ("weight", "bias"):  # before the parameters were a module
                state_dict[f"{prefix}_packed_params.{name}"] = state_dict.pop(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *rest)

    def _weight_bias(self) -> tuple[Any, Any]:
        return self._packed_params._weight_bias()

    def weight(self) -> Any:
        """Return the quantized weight."""
        return self._weight_bias()[0]

    def bias(self) -> Any:
        """Return the bias, float32, or None."""
        return self._weight_bias()[1]

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Replace weight and bias."""
        self._packed_params.set_weight_bias(w, b)

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
            scale, zero_point = output_scale(mod)
            if isinstance(mod, nniqat.LinearBn1d):
                fold_norm(mod, fuse_linear_bn_weights)
        else:
            require_float(cls, mod, cls._FLOAT_MODULE)
            scale, zero_point = output_scale(mod)
            source = mod[0] if isinstance(mod, nni._FusedModule) else mod
            observer = mod.qconfig.weight()
        weight = observed_weight(source, observer, use_precomputed_fake_quant)
        made = cls(source.in_features, source.out_features)
        made.set_weight_bias(weight, source.bias)
        made.scale, made.zero_point = scale, zero_point
        return made

    @classmethod
    def from_reference(cls, ref_qlinear: Any, output_scale: float, output_zero_point: int) -> Any:
        """Return the quantized module for a reference one."""
        made = cls(ref_qlinear.in_features, ref_qlinear.out_features)
        made.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made
