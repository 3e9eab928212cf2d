"""`tangrad.ops.aten.NAME` and `tangrad.ops.aten.NAME.OVERLOAD`: our ops by PyTorch's inner names.

An overload is the op itself, whatever its name says: one op here serves all signatures. So
`ops.aten.mm.default` is what `__torch_dispatch__` receives for a product of matrices. The few
names that PyTorch's public functions do not have, and whose arguments differ, stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.dispatch.python_dispatch import _local_scalar_dense as _value_of
from tangrad.ops.definition import registry

_OVERLOADS = frozenset(
    "default Tensor Scalar Tensor_Scalar Scalar_Tensor Tensor_Tensor Tensor_mode Scalar_mode int "
    "int_mode self other dim dims dim_max dim_min dim_IntList dim_DimnameList correction names "
    "out dtype dtype_layout device memory_format start start_step size sizes split sections "
    "indices value src values reduce mode vec grad_input input data list Tensor_out Scalar_out "
    "ScalarOpt_dim ScalarOpt_dim_dtype low p msg shape scalar unary_out stable padding_idx "
    "two self_int self_Tensor Tensor_int".split()
)


def _without_nan(self: Any, dim: int, dtype: Any = None) -> Any:
    """Apply softmax; a row of -inf gives zeros."""
    masked = (self == -float("inf")).all(dim, keepdim=True)
    # Filled before, too: the gradient of softmax is NaN there.
    return tangrad.softmax(self.masked_fill(masked, 0.0), dim, dtype).masked_fill(masked, 0.0)


def _softmax_gradient(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """Return the gradient of softmax, in a dtype."""
    return registry.find("_softmax_backward_data")(grad_output, output, dim).to(input_dtype)


def _log_softmax_gradient(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """Return the gradient of log_softmax, in a dtype."""
    return registry.find("_log_softmax_backward_data")(grad_output, output, dim).to(input_dtype)


def _pooled_gradient(
    grad_output: Any,
    self: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Any,
) -> Any:
    """Return the gradient of max_pool2d: each one goes to where its maximum was."""
    planes = grad_output.new_zeros(self.shape).flatten(-2)
    places, values = indices.flatten(-2), grad_output.flatten(-2)
    return planes.scatter_add(-1, places, values).reshape(self.shape)


def _updating_batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """Normalize in training; no kernel of ours wants the memory that the fourth result reserves."""
    found = tangrad.native_batch_norm(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return *found, input.new_empty((0,), dtype=tangrad.uint8)


def _dtype_within(half_to_float: bool) -> Any:
    return tangrad.float32 if half_to_float else None


_FORMS: dict[str, Callable[..., Any]] = {
    "_batch_norm_with_update": _updating_batch_norm,
    "_log_softmax": lambda self, dim, half_to_float: tangrad.log_softmax(
        self, dim, _dtype_within(half_to_float)
    ),
    "_softmax": lambda self, dim, half_to_float: tangrad.softmax(
        self, dim, _dtype_within(half_to_float)
    ),
    "_local_scalar_dense": _value_of,
    "_log_softmax_backward_data": _log_softmax_gradient,
    "_safe_softmax": _without_nan,
    "_softmax_backward_data": _softmax_gradient,
    "copy": lambda self, src, non_blocking=False: src.to(self).expand(self.shape).clone(),
    "lift_fresh": lambda self: self,
    "max_pool2d_with_indices_backward": _pooled_gradient,
    "native_dropout_backward": lambda grad_output, mask, scale: grad_output * mask * scale,
    "sigmoid_backward": lambda grad_output, output: grad_output * output * (1 - output),
    "sym_size": lambda self, dim: self.shape[dim],
    "tanh_backward": lambda grad_output, output: grad_output * (1 - output * output),
    "threshold_backward": lambda grad_output, self, threshold: tangrad.where(
        self <= threshold, 0, grad_output
    ),
}


class Packet:
    """All overloads of a name; calling it calls the op."""

    def __init__(self, name: str, op: Callable[..., Any]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "tangrad.ops.aten"
        self.__wrapped__ = op

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op."""
        return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, overload: str) -> Any:
        if overload not in _OVERLOADS:
            raise AttributeError(f"the op 'aten.{self.__name__}' has no overload '{overload}'")
        return self.__wrapped__

    def overloads(self) -> list[str]:
        """Return the names of the overloads: one, as the op serves all signatures."""
        return ["default"]

    def __reduce__(self) -> str:
        # By name: there is one packet of each, so copies are itself.
        return self.__name__

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


def __getattr__(name: str) -> Any:
    op = None if name.startswith("__") else _op(name)
    if op is None:
        if tangrad.ops.stand_for_absent is not None and not name.startswith("__"):
            return tangrad.ops.stand_for_absent(name)
        raise AttributeError(f"module 'tangrad.ops.aten' has no attribute {name!r}")
    packet = globals()[name] = Packet(name, op)
    return packet


def _op(name: str) -> Any:
    if name in _FORMS:
        return _FORMS[name]
    found = registry.find(name) if registry.is_known(name) else None
    if found is not None and found.definition.function and found.definition.namespace != "nn":
        return found
    # The top level has layers and losses with the arguments of PyTorch's inner ops.
    shown = getattr(tangrad, name, None)
    return shown if callable(shown) else found
