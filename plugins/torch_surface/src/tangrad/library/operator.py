"""Custom ops as they are called: `tangrad.ops.<namespace>.<name>` and its overloads.

A call is bound to the schema, offered to `__torch_function__`, cast where autocast says so, taken
through the transforms and recorded, offered to `__torch_dispatch__`, and computed by the kernel
of the device.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tangrad
from tangrad.compat.shown.packets import Overload, Packet
from tangrad.library.binding import bind, check_results, short_form
from tangrad.library.schemas import FunctionSchema, Tag
from tangrad.overrides import handle_torch_function
from tangrad.plugin import (
    BatchLevel,
    Op,
    OpNamespace,
    Stack,
    current,
    flat_tensors,
    op_namespaces,
    overloaded_arguments,
    set_recording,
)

__all__ = [
    "AnyOverload",
    "AnyPacket",
    "OpNamespace",
    "OpOverload",
    "OpOverloadPacket",
    "find",
    "get_ctx",
]

COMPOSITE, EVERY_DEVICE, AUTOGRAD, META = "composite", "every device", "autograd", "meta"


class OpOverload:
    """One signature of a custom op, with everything that is registered for it.

    Attributes:
        kernels: {device type, COMPOSITE, EVERY_DEVICE or AUTOGRAD: function}.
        fake: function for tensors without data, or None.
        backward, setup_context, batching: further rules, or None.
        torch_dispatch: {class: rule}.
        autocast: {device type: dtype that floating inputs are cast to, or a function that is
            called in the op's place}.
        owner: the CustomOpDef that made it, or None.
    """

    def __init__(self, schema: FunctionSchema, tags: Sequence[Tag] = ()) -> None:
        self._schema, self.tags = schema, list(tags)
        self.namespace, _, self._opname = schema.name.partition("::")
        self._overloadname = schema.overload_name or "default"
        self.__name__ = f"{self._opname}.{self._overloadname}"
        self.__qualname__ = self.__name__
        self.__module__ = f"tangrad.ops.{self.namespace}"
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.fake: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None
        self.batching: Callable[..., Any] | None = None
        self.torch_dispatch: dict[type, Callable[..., Any]] = {}
        self.autocast: dict[str, Any] = {}
        self.owner: Any = None
        self._function: Any = None

    def name(self) -> str:
        """Return "namespace::name"."""
        overload = f".{self._schema.overload_name}" if self._schema.overload_name else ""
        return self._schema.name + overload

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        """The op that this is a signature of."""
        packet: OpOverloadPacket = getattr(op_namespaces[self.namespace], self._opname)
        return packet

    _overloadpacket = overloadpacket

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __repr__(self) -> str:
        return (
            f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"
        )

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the op.

        Raises:
            RuntimeError: the arguments do not fit the schema, or the kernel's results.
            NotImplementedError: no kernel serves the device.
        """
        values, named = bind(self._schema, args, kwargs)
        stack = current()
        tensors = flat_tensors((values, list(named.values())))
        strangers = (*_flat(values), *_flat(named.values()))
        if stack.function_modes or overloaded_arguments(strangers, stack):
            given, keywords = short_form(self._schema, values, named)
            return handle_torch_function(self, strangers, *given, **keywords)
        if self.autocast:
            return self._autocast(values, named, tensors, stack)
        return self.dispatch(values, named, tensors, stack)

    def _autocast(
        self, values: list[Any], named: dict[str, Any], tensors: Sequence[Any], stack: Stack
    ) -> Any:
        import tangrad

        device = self.device_type(values, named, tensors)
        dtype = self.autocast.get(device)
        enabled = getattr(tangrad, "is_autocast_enabled", None)
        if dtype is None or enabled is None or not enabled(device):
            return self.dispatch(values, named, tensors, stack)
        if not isinstance(dtype, tangrad.dtype):
            with tangrad.autocast(device, enabled=False):
                return dtype(*values, **named)

        def cast(value: Any) -> Any:
            if isinstance(value, list):
                return [cast(v) for v in value]
            eligible = (
                isinstance(value, tangrad.Tensor)
                and value.dtype.is_floating_point
                and value.device.type == device
                and value.dtype != tangrad.float64
            )
            return value.to(dtype) if eligible else value

        values, named = [cast(v) for v in values], {k: cast(v) for k, v in named.items()}
        with tangrad.autocast(device, enabled=False):
            return self.dispatch(values, named, flat_tensors((values, list(named.values()))), stack)

    def dispatch(
        self, values: list[Any], named: dict[str, Any], tensors: Sequence[Any], stack: Stack
    ) -> Any:
        """Take a bound call through transforms and recording."""
        kernels = self.kernels
        device = self.device_type(values, named, tensors)
        if COMPOSITE in kernels and device not in kernels and AUTOGRAD not in kernels:
            return self.call_kernel(kernels[COMPOSITE], values, named)
        records = tangrad.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if stack.levels:
            if AUTOGRAD in kernels and records and not self._batched(stack):
                return self.call_kernel(kernels[AUTOGRAD], values, named)
            if self._has_rules() or self._batched(stack):
                return self._apply(values, named)
        elif records:
            if AUTOGRAD in kernels:
                return self.call_kernel(kernels[AUTOGRAD], values, named)
            if self._has_rules():
                return self._apply(values, named)
        if self._has_rules():
            return self.below(values, named)
        result = self.below(values, named, recording=True)
        if not records and not stack.levels:
            return result
        from tangrad.library.derivative import not_cut

        return not_cut(self, tensors, result)

    def _has_rules(self) -> bool:
        return self.owner is not None or self.backward is not None or self.batching is not None

    @staticmethod
    def _batched(stack: Stack) -> bool:

        return isinstance(stack.levels[-1], BatchLevel)

    def _apply(self, values: list[Any], named: dict[str, Any]) -> Any:
        from tangrad.library.derivative import apply

        return apply(self, values, named)

    def below(self, values: list[Any], named: dict[str, Any], *, recording: bool = False) -> Any:
        """Compute a call below recording.

        Args:
            recording: whether calls in the kernel are recorded, as nothing else says a derivative.
        """
        stack = current()
        previous = set_recording(recording and tangrad.is_grad_enabled())
        try:
            tensors = flat_tensors((values, list(named.values())))
            wrappers = [t for t in tensors if hasattr(type(t), "__torch_dispatch__")]
            if not stack.dispatch_disabled and (stack.dispatch_modes or wrappers):
                result = self._offer(stack, wrappers, values, named)
                if result is not NotImplemented:
                    return result
            kernel = self.kernel_for(self.device_type(values, named, tensors))
            for argument in self._schema.arguments:
                if argument.is_write:
                    _increment(_value(self._schema, argument, values, named))
            return self.call_kernel(kernel, values, named)
        finally:
            set_recording(previous)

    def _offer(
        self, stack: Stack, wrappers: list[Any], values: list[Any], named: dict[str, Any]
    ) -> Any:
        """Offer a call to the innermost dispatch mode, then to the arguments' classes."""
        types = tuple(dict.fromkeys(type(t) for t in wrappers))
        args, kwargs = short_form(self._schema, values, named)
        if stack.dispatch_modes:
            mode = stack.dispatch_modes.pop()
            stack.install()
            try:
                rule = self.torch_dispatch.get(type(mode))
                result = (
                    rule(mode, self, types, args, kwargs)
                    if rule is not None
                    else mode.__torch_dispatch__(self, types, args, kwargs)
                )
            finally:
                stack.dispatch_modes.append(mode)
                stack.install()
            if result is not NotImplemented or not wrappers:
                return result
        for kind in sorted(types, key=lambda k: -len(k.__mro__)):
            rule = self.torch_dispatch.get(kind)
            result = (
                rule(kind, self, types, args, kwargs)
                if rule is not None
                else kind.__torch_dispatch__(self, types, args, kwargs)
            )
            if result is not NotImplemented:
                return result
        raise TypeError(
            f"{self.name()}: all __torch_dispatch__ handlers returned NotImplemented "
            f"({', '.join(k.__name__ for k in types)})"
        )

    def device_type(self, values: list[Any], named: dict[str, Any], tensors: Sequence[Any]) -> str:
        """Return the device type whose kernel a call takes: that of the first accelerator."""
        found = [t.device.type for t in tensors]
        if not found:
            for argument in self._schema.arguments:
                device = _value(self._schema, argument, values, named)
                if argument.base == "Device" and device is not None:
                    return str(device.type)
            return str(tangrad.get_default_device().type)
        return next((d for d in found if d != "cpu"), found[0])

    def kernel_for(self, device: str) -> Callable[..., Any]:
        """Return the kernel of a device type.

        Raises:
            NotImplementedError: there is none.
        """
        found = self.kernels.get(device)
        if found is None and device == META:
            found = self.fake
            if found is not None:
                return _with_ctx(found, self)
        if found is None:
            found = self.kernels.get(EVERY_DEVICE) or self.kernels.get(COMPOSITE)
        if found is None:
            names = ", ".join(sorted(k for k in self.kernels if k != AUTOGRAD)) or "none"
            raise NotImplementedError(
                f"Could not run '{self.name()}' with arguments from the '{device.upper()}' "
                f"backend: kernels are registered for {names}. Register one with "
                f"tangrad.library.register_kernel('{self.name()}', '{device}', function)."
            )
        return found

    def call_kernel(
        self, kernel: Callable[..., Any], values: list[Any], named: dict[str, Any]
    ) -> Any:
        """Call a kernel as a person would and check what it returns."""
        args, kwargs = short_form(self._schema, values, named)
        return check_results(self._schema, kernel(*args, **kwargs))


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def _value(schema: FunctionSchema, argument: Any, values: list[Any], named: dict[str, Any]) -> Any:
    return (
        named[argument.name]
        if argument.kwarg_only
        else values[[a.name for a in schema.arguments].index(argument.name)]
    )


def _increment(value: Any) -> None:
    for t in flat_tensors(([value],)):
        if not t.is_inference():
            tangrad.autograd.graph.increment_version(t)


# --- functions for tensors without data
# ---------------------------------------------------------------------------

_ctx: list[Any] = []


def get_ctx() -> Any:
    """Return what a fake implementation may ask, or None outside of one.

    Raises:
        RuntimeError: it runs on meta tensors, whose shapes must not depend on data.
    """
    return _ctx[-1]() if _ctx else None


@contextmanager
def ctx_getter(getter: Callable[[], Any]) -> Iterator[None]:
    """Have `get_ctx` answer by a function."""
    _ctx.append(getter)
    try:
        yield
    finally:
        _ctx.pop()


def _with_ctx(fake: Callable[..., Any], op: OpOverload) -> Callable[..., Any]:
    def refuse() -> Any:
        raise RuntimeError(
            f"{op.name()}: its fake implementation asks for sizes that depend on data, which "
            "meta tensors cannot have"
        )

    def run(*args: Any, **kwargs: Any) -> Any:
        if _ctx:
            return fake(*args, **kwargs)
        with ctx_getter(refuse):
            return fake(*args, **kwargs)

    return run


# --- names
# ---------------------------------------------------------------------------


class OpOverloadPacket:
    """A custom op: all signatures of one name."""

    def __init__(self, namespace: str, name: str) -> None:
        self._qualified_op_name = f"{namespace}::{name}"
        self.__name__ = name
        self._namespace = namespace
        self._overloads: dict[str, OpOverload] = {}

    def overloads(self) -> list[str]:
        """Return the names of the signatures."""
        return list(self._overloads)

    def __getattr__(self, name: str) -> OpOverload:
        overloads = self.__dict__.get("_overloads", {})
        if name in overloads:
            found: OpOverload = overloads[name]
            return found
        raise AttributeError(
            f"The underlying op of '{self._namespace}.{self.__name__}' has no overload name "
            f"'{name}'"
        )

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the first signature that the arguments fit."""
        overloads = list(self._overloads.values())
        if len(overloads) == 1:
            return overloads[0](*args, **kwargs)
        for overload in overloads:
            try:
                bind(overload._schema, args, kwargs)
            except RuntimeError:
                continue
            return overload(*args, **kwargs)
        forms = "\n".join(f"  {overload._schema}" for overload in overloads)
        raise RuntimeError(
            f"{self._qualified_op_name}(): the arguments fit none of the signatures:\n{forms}"
        )

    def __copy__(self) -> OpOverloadPacket:
        return self  # There is one of each name.

    def __deepcopy__(self, memo: dict[int, Any]) -> OpOverloadPacket:
        return self

    def __str__(self) -> str:
        return f"{self._namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._namespace}.{self.__name__}')>"


def find(qualname: str) -> OpOverload:
    """Return the op called "namespace::name" or "namespace::name.overload".

    Raises:
        RuntimeError: there is none.
    """
    namespace, name = split(qualname)
    name, _, overload = name.partition(".")
    packet = vars(op_namespaces.get(namespace, _NONE)).get(name)
    found = packet and packet._overloads.get(overload or "default")
    if not found:
        raise RuntimeError(f"operator {qualname} does not exist")
    return found


_NONE = OpNamespace("")


def split(qualname: str) -> tuple[str, str]:
    """Return (namespace, name).

    Raises:
        ValueError: there is no namespace.
    """
    parts = qualname.split("::")
    if len(parts) != 2 or not all(parts):
        raise ValueError(
            f'Expected `qualname` to be of the form "namespace::name", but got {qualname}. The '
            "qualname passed to the tangrad.library APIs must consist of a namespace and a name, "
            "e.g. aten::sin"
        )
    return parts[0], parts[1]


def add(op: OpOverload) -> None:
    """Make an op known.

    Raises:
        RuntimeError: its name is taken.
    """
    namespace = op_namespaces.setdefault(op.namespace, OpNamespace(op.namespace))
    packet = vars(namespace).get(op._opname)
    if packet is None:
        packet = OpOverloadPacket(op.namespace, op._opname)
        vars(namespace)[op._opname] = packet
    if op._overloadname in packet._overloads:
        raise RuntimeError(
            f"Tried to register an operator ({op._schema}) with the same name and overload name "
            "multiple times. Each overload's schema should only be registered with a single call "
            "to def()."
        )
    packet._overloads[op._overloadname] = op


def remove(op: OpOverload) -> None:
    """Forget an op."""
    names = vars(op_namespaces[op.namespace])
    packet = names.get(op._opname)
    if packet is not None and packet._overloads.get(op._overloadname) is op:
        del packet._overloads[op._overloadname]
        if not packet._overloads:
            del names[op._opname]


class AnyOverload(ABC):  # noqa: B024 (what it is is registered)
    """`torch._ops.OpOverload` to `isinstance`: also ops of the core, which are their overloads."""


class AnyPacket(ABC):  # noqa: B024 (what it is is registered)
    """`torch._ops.OpOverloadPacket` to `isinstance`: also names of `ops.aten`."""


for _kind in (OpOverload, Op, Overload):
    AnyOverload.register(_kind)
for _kind in (OpOverloadPacket, Packet):
    AnyPacket.register(_kind)
