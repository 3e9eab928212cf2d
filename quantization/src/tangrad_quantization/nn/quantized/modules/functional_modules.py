"""Modules for sums and products, which need an observer as layers do."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.overrides import has_torch_function
from tangrad_quantization import functional
from tangrad_quantization.layers.float_functional import FloatFunctional
from tangrad_quantization.layers.float_functional import FXFloatFunctional as FXFloatFunctional
from tangrad_quantization.nn.quantized.modules.weights import (
    has_seen,
    output_scale,
    save_scale,
    take_scale,
)


def _recorded(name: str, *args: Any) -> Any:
    """Call an op by its public name, by which graphs know it."""
    return getattr(tangrad.ops.quantized, name)(*args)


class QFunctional(nn.Module):
    """Sums, products and concatenations of quantized tensors.

    Attributes:
        scale: of the results.
        zero_point: of the results.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.zero_point = 0
        self.activation_post_process = nn.Identity()

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def forward(self, x: Any) -> Any:
        """Refuse: call one of the methods.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "Functional is not intended to use the 'forward'. Please use the underlying "
            "operation, such as add"
        )

    def add(self, x: Any, y: Any) -> Any:
        """Return x + y."""
        if has_torch_function((x, y)):
            return _recorded("add", x, y, self.scale, self.zero_point)
        return functional.add(x, y, self.scale, self.zero_point)

    def add_scalar(self, x: Any, y: float) -> Any:
        """Return x + y."""
        if has_torch_function((x,)):
            return _recorded("add_scalar", x, y)
        return functional.add_scalar(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """Return x * y."""
        if has_torch_function((x, y)):
            return _recorded("mul", x, y, self.scale, self.zero_point)
        return functional.mul(x, y, self.scale, self.zero_point)

    def mul_scalar(self, x: Any, y: float) -> Any:
        """Return x * y."""
        if has_torch_function((x,)):
            return _recorded("mul_scalar", x, y)
        return functional.mul_scalar(x, y)

    def cat(self, x: Any, dim: int = 0) -> Any:
        """Return the tensors joined."""
        if has_torch_function(x):
            return _recorded("cat", x, dim, self.scale, self.zero_point)
        return functional.cat(x, dim, self.scale, self.zero_point)

    def add_relu(self, x: Any, y: Any) -> Any:
        """Return relu(x + y)."""
        if has_torch_function((x, y)):
            return _recorded("add_relu", x, y, self.scale, self.zero_point)
        return functional.add(x, y, self.scale, self.zero_point, relu=True)

    def matmul(self, x: Any, y: Any) -> Any:
        """Return x @ y."""
        if has_torch_function((x, y)):
            return _recorded("matmul", x, y, self.scale, self.zero_point)
        return functional.matmul(x, y, self.scale, self.zero_point)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        save_scale(self, destination, prefix)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *rest: Any
    ) -> None:
        take_scale(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *rest)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the quantized module for an observed `FloatFunctional`."""
        if type(mod) is not FloatFunctional:
            raise AssertionError(
                f"QFunctional.from_float expects an instance of FloatFunctional, got "
                f"{type(mod).__name__}"
            )
        made = cls()
        if mod.took_numbers and not has_seen(mod.activation_post_process):
            return made
        made.scale, made.zero_point = output_scale(mod)
        return made
