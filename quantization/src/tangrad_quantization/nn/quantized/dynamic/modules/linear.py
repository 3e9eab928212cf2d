"""A linear layer with a quantized weight, whose input is quantized in each call."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad.nn.modules.linear import NonDynamicallyQuantizableLinear
from tangrad_quantization import functional
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.qat import dynamic as nnqatd
from tangrad_quantization.nn.quantized.modules.weights import quantized_weight, require_float
from tangrad_quantization.qconfig import default_dynamic_qconfig


class Linear(nnq.Linear):
    """A linear layer of numbers with a weight of qint8, or of float16 to save memory.

    Args:
        in_features: size of each input vector.
        out_features: size of each output vector.
        bias_: whether there is one.
        dtype: qint8 or float16.
    """

    _version = 4
    _name = "DynamicQuantizedLinear"
    _relu = False

    def __init__(
        self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features, bias_, dtype)
        self.version: int | None = 4

    def forward(self, x: Any) -> Any:
        """Apply the layer to numbers; nothing is recorded for a gradient."""
        held = self._packed_params
        if held.dtype == tangrad.qint8:
            reduce_range = self.version is not None and self.version >= 4
            made = functional.linear_dynamic(x, held._packed_params, reduce_range, self._relu)
            return made.to(x.dtype)
        weight, bias = held._weight_bias()
        made = F.linear(x.float(), weight, bias)
        return (made.relu() if self._relu else made).to(x.dtype)

    def extra_repr(self) -> str:
        said = (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"dtype={self._packed_params.dtype}"
        )
        if self._packed_params.dtype == tangrad.qint8:
            said += f", qscheme={self.weight().qscheme()}"
        return said

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *rest: Any
    ) -> None:
        self.version = local_metadata.get("version")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *rest)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the quantized module for a float one; no calibration is needed."""
        kinds = (nn.Linear, NonDynamicallyQuantizableLinear, nni.LinearReLU, nnqatd.Linear)
        require_float(cls, mod, kinds)
        qconfig = mod.qconfig
        if isinstance(mod, nni.LinearReLU):
            mod = mod[0]
        given = getattr(qconfig, "weight", None) or default_dynamic_qconfig.weight
        observer = given()
        if observer.dtype not in (tangrad.qint8, tangrad.float16):
            raise AssertionError(
                "The only supported dtypes for dynamic quantized linear are qint8 and float16, "
                f"got: {observer.dtype}"
            )
        observer(mod.weight)
        made = cls(mod.in_features, mod.out_features, dtype=observer.dtype)
        if observer.dtype == tangrad.qint8:
            made.set_weight_bias(quantized_weight(mod.weight, observer), mod.bias)
        else:
            made.set_weight_bias(mod.weight.float(), mod.bias)
        return made

    @classmethod
    def from_reference(cls, ref_qlinear: Any) -> Any:  # type: ignore[override]
        """Return the quantized module for a reference one."""
        dtype = ref_qlinear.weight_dtype
        made = cls(ref_qlinear.in_features, ref_qlinear.out_features, dtype=dtype)
        made.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        return made
