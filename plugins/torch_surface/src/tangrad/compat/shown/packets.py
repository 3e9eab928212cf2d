"""`ops.aten.NAME` and `ops.aten.NAME.OVERLOAD`: the functions that handlers get."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import tangrad
from tangrad.compat.shown.forms import FORMS
from tangrad.compat.shown.recorded import call_recorded_as_one
from tangrad.plugin import current, find_op, flat_tensors, handle_call, has_op, is_shown

_OVERLOADS = frozenset(
    "default Tensor Scalar Tensor_Scalar Scalar_Tensor Tensor_Tensor Tensor_mode Scalar_mode int "
    "int_mode self other dim dims dim_max dim_min dim_IntList dim_DimnameList correction names "
    "out dtype dtype_layout device memory_format start start_step size sizes split sections "
    "indices value src values reduce mode vec grad_input input data list Tensor_out Scalar_out "
    "ScalarOpt_dim ScalarOpt_dim_dtype low p msg shape scalar unary_out stable padding_idx "
    "two self_int self_Tensor Tensor_int dim_int decimals float value_reduce int_Scalar "
    "int_Tensor ScalarSelf ScalarOther to Scalar_Self Scalar_Other from_str".split()
)
# Handlers tell these overloads of a name apart; all others are the op itself.
TOLD_APART: dict[str, frozenset[str]] = {
    name: frozenset(overloads.split())
    for names, overloads in {
        "add sub rsub bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge remainder fmod "
        "masked_fill fill lerp xlogy mul": "Tensor Scalar",
        "where": "self Scalar ScalarSelf ScalarOther",
        "div": "Tensor Scalar Tensor_mode Scalar_mode",
        "floor_divide": "default Scalar",
        "pow": "Tensor_Tensor Tensor_Scalar Scalar",
        "sum mean prod any all": "default dim dims dim_IntList dim_int",
        "max min median nanmedian": "default dim other",
        "var std var_mean std_mean": "default dim correction",
        "norm": "Scalar ScalarOpt_dim ScalarOpt_dim_dtype",
        "clamp clamp_min clamp_max": "default Tensor",
        "view": "default dtype",
        "scatter": "src value reduce value_reduce",
        "round": "default decimals",
        "sort": "default stable",
        "squeeze": "default dim dims",
        "index_fill": "int_Scalar int_Tensor",
        "bernoulli": "default p float Tensor",
        "arange": "default start start_step",
        "randint": "default low",
        "slice split index unsafe_split": "Tensor",
        "transpose select unbind softmax log_softmax": "int",
        "empty": "memory_format",
        "searchsorted bucketize": "Tensor Scalar",
        "isin": "Tensor_Tensor Tensor_Scalar Scalar_Tensor",
        "random": "default to from",
    }.items()
    for name in names.split()
}


class Overload:
    """One overload that handlers tell apart from the op of its name, to which it is equal.

    Attributes:
        offers: whether handlers are offered the call here, as its function is not one op.
    """

    def __init__(
        self, packet: Packet, name: str, op: Any, offers: bool, function: Any = None
    ) -> None:
        self.overloadpacket, self._overloadname, self._op = packet, name, op
        self.__name__ = self.__qualname__ = f"{packet.__name__}.{name}"
        self.__module__ = "tangrad.ops.aten"  # where graphs name it
        self._function = function or FORMS.get(packet.__name__, op)
        self.offers = offers
        self.namespace, self._opname = "aten", packet.__name__

    @property
    def _overloadpacket(self) -> Packet:
        return self.overloadpacket

    @property
    def name(self) -> OpName:
        """The op's name; called, it is as PyTorch writes it."""
        return OpName(self.overloadpacket.__name__).of(self._overloadname)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op."""
        if not self.offers:
            return self._function(*args, **kwargs)
        stack = current()
        tensors = flat_tensors((*args, *kwargs.values()))
        if not is_shown(stack, tensors):
            return self._function(*args, **kwargs)
        name = self.overloadpacket.__name__
        if name in _CONSTANT or not tangrad.is_grad_enabled():
            return self._offer(args, kwargs)
        if any(t.requires_grad for t in tensors):
            return call_recorded_as_one(name, self._offer, self._function, args, kwargs)
        return self._offer(args, kwargs)

    def _offer(self, args: Any, kwargs: Any) -> Any:
        def run() -> Any:
            stack.dispatch_disabled += 1
            try:
                return self._function(*args, **kwargs)
            finally:
                stack.dispatch_disabled -= 1

        stack, call = current(), (self, args, kwargs)
        return handle_call(stack, call, call, run, self.overloadpacket.__name__)

    def __eq__(self, other: object) -> bool:
        return other is self or (not isinstance(other, Overload) and other is self._op)

    def __hash__(self) -> int:
        return hash(self._op)

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


class OpName(str):
    """The name of an op, which programs for PyTorch call to get it with its namespace."""

    overload = ""

    def of(self, overload: str) -> OpName:
        """Return the name of an overload."""
        self.overload = "" if overload == "default" else f".{overload}"
        return self

    def __call__(self) -> str:
        """Return the name as PyTorch writes it."""
        return f"aten::{self}{self.overload}"

    def __reduce__(self) -> Any:
        return str, (str(self),)


def _takes_out(op: Any) -> bool:
    # `any` and other names of builtins are packets here, once a program has asked for them.
    forms = (op, *(getattr(op, "overloads", None) or ()))
    return True in {getattr(form, "takes_out", False) for form in forms}


class Packet:
    """All overloads of a name; calling it calls the op."""

    def __init__(self, name: str, op: Callable[..., Any]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "tangrad.ops.aten"
        self.__wrapped__: Any = op
        self._apart = TOLD_APART.get(name.removesuffix("_"), frozenset())
        if name in FORMS or name in OFFERED:
            self._apart = self._apart | {"default"}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op."""
        if self.__name__ in FORMS:
            return self.default(*args, **kwargs)
        return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, overload: str) -> Any:
        if overload == "_apart":
            raise AttributeError(overload)
        out = overload.endswith("out") and _takes_out(self.__wrapped__)
        if overload not in _OVERLOADS and not out:
            raise AttributeError(f"the op 'aten.{self.__name__}' has no overload '{overload}'")
        if not out and overload not in self._apart:
            return self.default if "default" in self._apart else self.__wrapped__
        name = "out" if out else overload
        if name not in self.__dict__:
            offers = not out and (self.__name__ in FORMS or self.__name__ in OFFERED)
            self.__dict__[name] = Overload(self, name, self.__wrapped__, offers)
        return self.__dict__[name]

    def overloads(self) -> list[str]:
        """Return the names of the overloads that are told apart."""
        return sorted(self._apart) or ["default"]

    def __reduce__(self) -> str:
        # By name: there is one packet of each, so copies are itself.
        return self.__name__

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


# Composites of ours that are one op in PyTorch, with its arguments.
OFFERED = frozenset(
    "addmm baddbmm addmv addbmm addr stack repeat roll take trace nan_to_num gelu glu "
    "linalg_vector_norm norm native_batch_norm native_group_norm convolution_backward avg_pool2d "
    "avg_pool3d pixel_shuffle pixel_unshuffle grid_sampler_2d grid_sampler_3d masked_fill fill "
    "zero_ equal allclose isin diag_embed dist kthvalue mode histc renorm put index_reduce "
    "scatter_reduce bucketize searchsorted diagonal_copy zeros ones empty full eye linspace "
    "logspace arange randint rand randn randperm zeros_like ones_like empty_like full_like "
    "rand_like randn_like randint_like new_zeros new_ones new_empty new_full scalar_tensor "
    "multinomial poisson linalg_inv_ex linalg_cholesky_ex block_diag channel_shuffle alias_copy "
    "linear matmul nonzero conv1d conv2d conv3d reshape softmax log_softmax dropout "
    "cross_entropy_loss layer_norm batch_norm group_norm flatten einsum tril_indices "
    "triu_indices".split()
)

# Results that have no derivative.
_CONSTANT = frozenset(
    "_local_scalar_dense nonzero equal allclose isin searchsorted bucketize multinomial".split()
)

_packets: dict[str, Packet] = {}


def packet(name: str) -> Packet | None:
    """Return what stands for all overloads of a name; None: there is no such op."""
    found = _packets.get(name)
    if found is None:
        op = _op(name)
        if op is None:
            return None
        found = _packets[name] = Packet(name, op)
    return found


@cache
def derived(op: Any) -> Overload:
    """Return what handlers get for a step of backward that has no name of PyTorch's."""
    return Overload(Packet(op.name, op), "default", op, False, op)


def overload_of(name: str, overload: str = "default") -> Any:
    """Return an overload of an op that is there."""
    return getattr(packet(name), overload)


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call an inner op of PyTorch: handlers see it, or ours compute it."""
    return overload_of(name)(*args, **kwargs)


def _op(name: str) -> Any:
    if name == "cross_entropy_loss":
        name = "cross_entropy"
    found = find_op(name) if has_op(name) else None
    if found is not None and found.definition.function and found.definition.namespace != "nn":
        return found
    if name in FORMS:
        return found or FORMS[name]
    # The top level has layers and losses with the arguments of PyTorch's inner ops.
    shown = getattr(tangrad, name, None)
    return shown if callable(shown) else found
