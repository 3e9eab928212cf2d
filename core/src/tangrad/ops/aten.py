"""`tangrad.ops.aten.NAME` and `tangrad.ops.aten.NAME.OVERLOAD`: our ops by PyTorch's inner names.

An overload is the op itself, whatever its name says: one op here serves all signatures. So
`ops.aten.mm.default` is what `__torch_dispatch__` receives for a product of matrices; `out` and
what is in `_TOLD_APART` are objects of their own, as their arguments differ. The few names that
PyTorch's public functions do not have, and whose arguments differ, stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.dispatch import python_dispatch
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
_ALL = slice(None)  # before the op of this name is looked up here
_TOLD_APART = {"sort": ("stable",), "squeeze": ("dim", "dims")}


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


def _at(self: Any, indices: Any) -> Any:
    return self[tuple(_ALL if index is None else index for index in indices)]


def _copied(self: Any, *, layout: Any = None, pin_memory: Any = None, **options: Any) -> Any:
    options.pop("non_blocking", None)
    made = registry.find("_to_copy")(self, **options)
    if layout not in (None, made.layout):
        made = made.to_dense() if layout is tangrad.strided else made.to_sparse(layout=layout)
    return made.pin_memory() if pin_memory else made


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


def _takes_out(op: Any) -> bool:
    # `any` and other names of builtins are packets here, once a program has asked for them.
    forms = (op, *(getattr(op, "overloads", None) or ()))
    return True in {getattr(form, "takes_out", False) for form in forms}


class Overload:
    """One overload that handlers tell apart from the op of its name; else as the op."""

    def __init__(self, packet: Packet, name: str, op: Any, function: Any = None) -> None:
        self.overloadpacket, self._overloadname, self._op = packet, name, op
        self.__name__ = self.__qualname__ = f"{packet.__name__}.{name}"
        self._function = function or op

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op."""
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_op":
            raise AttributeError(name)
        return getattr(self._op, name)

    def __reduce__(self) -> Any:
        return getattr, (self.overloadpacket, self._overloadname)

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        packet = self.overloadpacket.__name__
        return f"<OpOverload(op='aten.{packet}', overload='{self._overloadname}')>"


class Packet:
    """All overloads of a name; calling it calls the op."""

    def __init__(self, name: str, op: Callable[..., Any]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "tangrad.ops.aten"
        self.__wrapped__: Any = op
        if name in _WRAPPED:
            self.__wrapped__ = Overload(self, "default", op, _WRAPPED[name])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op."""
        return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, overload: str) -> Any:
        out = overload.endswith("out") and _takes_out(self.__wrapped__)
        if overload not in _OVERLOADS and not out:
            raise AttributeError(f"the op 'aten.{self.__name__}' has no overload '{overload}'")
        if not out and overload not in _TOLD_APART.get(self.__name__, ()):
            return self.__wrapped__
        name = "out" if out else overload
        if name not in self.__dict__:
            self.__dict__[name] = Overload(self, name, self.__wrapped__)
        return self.__dict__[name]

    def overloads(self) -> list[str]:
        """Return the names of the overloads: one, as the op serves all signatures."""
        return ["default"]

    def __reduce__(self) -> str:
        # By name: there is one packet of each, so copies are itself.
        return self.__name__

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


# Whose arguments are PyTorch's where those of our op are fewer: it copies, it reads at positions.
_WRAPPED: dict[str, Callable[..., Any]] = {"_to_copy": _copied, "index": _at}


def handed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> tuple[Any, ...]:
    """Return what handlers get for a call: (overload, args, kwargs)."""
    name, overload = func.name, "default"
    if name.startswith("_index_put"):  # the form that the public op is lowered to
        name = name.removeprefix("_")
    elif name == "squeeze" and len(args) > 1:
        one = len(args[1]) == 1
        args, overload = (args[0], args[1][0] if one else args[1]), "dim" if one else "dims"
    elif name == "sort" and len(args) > 3:
        names, overload = ("dim", "descending", "stable"), "stable"
        args, kwargs = args[:1], {**dict(zip(names, args[1:], strict=True)), **kwargs}
    if out is not None:
        overload, kwargs = "out", {**kwargs, "out": out}
    elif name not in ("index_put", "index_put_", *_TOLD_APART, *_WRAPPED):
        return func, args, kwargs
    packet = globals().get(name) or __getattr__(name)
    return getattr(packet, overload), args, kwargs


python_dispatch.handed = handed


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
