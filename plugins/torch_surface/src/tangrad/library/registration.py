"""Define ops by their schemas and register kernels and rules by name: `Library` and its kin."""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tangrad
from tangrad.library import operator
from tangrad.library.definitions import CustomOpDef, set_autograd
from tangrad.library.schemas import Tag, parse, tags_of
from tangrad.plugin import registered_devices

__all__ = [
    "Library",
    "define",
    "fallthrough_kernel",
    "impl",
    "impl_abstract",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
]

_COMPOSITES = {
    "": operator.COMPOSITE,
    "CompositeImplicitAutograd": operator.COMPOSITE,
    "CompositeExplicitAutograd": operator.EVERY_DEVICE,
}
_RESERVED = ("prim",)
_whole: set[str] = set()
_kept: list[Library] = []


def fallthrough_kernel() -> None:
    """Stand for a kernel that leaves the call to what comes next.

    Raises:
        NotImplementedError: it is called.
    """
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """Ops of one namespace, defined or given kernels; they go with the library.

    Args:
        ns: the namespace.
        kind: "DEF" to define all ops of the namespace, "FRAGMENT" some, "IMPL" to give kernels.
        dispatch_key: whom `impl` registers for by default.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in _RESERVED and kind in ("DEF", "FRAGMENT"):
            raise ValueError(
                f"{ns} is a reserved namespace. Please try creating a library with another name."
            )
        if kind == "DEF":
            if ns in _whole:
                raise RuntimeError(
                    f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; "
                    "please put all of your definitions in a single block, or use a FRAGMENT."
                )
            _whole.add(ns)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._undo: list[Callable[[], Any]] = []
        if kind == "DEF":
            self._undo.append(lambda: _whole.discard(ns))
        self._finalizer = weakref.finalize(self, _undo, self._undo)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(
        self, schema: str, alias_analysis: str = "", *, tags: Tag | Sequence[Tag] = ()
    ) -> str:
        """Define an op: `define("sinc(Tensor x) -> Tensor")`; return its name.

        Raises:
            RuntimeError: the schema cannot be read, or the op is defined already.
        """
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        name, _, rest = schema.partition("(")
        name = name.strip().removeprefix(f"{self.ns}::")
        op = operator.OpOverload(parse(f"{self.ns}::{name}", f"({rest}"), tags_of(tags))
        operator.add(op)
        self._undo.append(lambda: operator.remove(op))
        return name

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Give an op of this namespace a kernel.

        Args:
            op_name: name of the op, or the overload itself.
            fn: function with the op's signature; `fallthrough_kernel` for none.
            dispatch_key: "CPU" or another device type, "Meta", "Autograd", "AutocastCPU" and its
                kin, "CompositeImplicitAutograd" or "CompositeExplicitAutograd".
            with_keyset: not supported.
            allow_override: whether to replace an earlier kernel without a warning.

        Raises:
            TypeError: the function is not callable.
            RuntimeError: no op has the name, or the key means nothing here.
        """
        if not callable(fn):
            raise TypeError(
                f"Input function is required to be a callable but found type {type(fn)}"
            )
        if with_keyset:
            raise NotImplementedError(
                "Library.impl: with_keyset=True is not supported, as calls carry no dispatch keys"
            )
        op = self._op(op_name)
        wanted = dispatch_key or self.dispatch_key
        cast = re.fullmatch(r"Autocast([A-Z][A-Za-z0-9]*)", wanted)
        if cast:
            _set(op, "autocast", fn, self, cast.group(1).lower())
            return
        key = _kernel_key(wanted)
        if fn is fallthrough_kernel:
            return
        earlier = op.kernels.get(key)
        if earlier is not None and not allow_override:
            warnings.warn(
                f"Overriding a previously registered kernel of {op.name()} for {key}",
                UserWarning,
                stacklevel=2,
            )
        op.kernels[key] = fn
        self._undo.append(lambda: _restore(op.kernels, key, fn, earlier))

    def _op(self, op_name: Any) -> operator.OpOverload:
        if isinstance(op_name, operator.OpOverload):
            return op_name
        name = str(op_name)
        if "::" in name:
            namespace, name = operator.split(name)
            if namespace != self.ns:
                raise RuntimeError(
                    f"Library.impl: {op_name} is not of the namespace {self.ns} of the library"
                )
        return operator.find(f"{self.ns}::{name}")

    def _destroy(self) -> None:
        """Take back everything that was registered by this library."""
        self._finalizer()


def _undo(actions: list[Callable[[], Any]]) -> None:
    while actions:
        actions.pop()()


def _restore(kernels: dict[str, Any], key: str, ours: Any, earlier: Any) -> None:
    if kernels.get(key) is ours:
        if earlier is None:
            del kernels[key]
        else:
            kernels[key] = earlier


def _kernel_key(dispatch_key: str) -> str:
    if dispatch_key in _COMPOSITES:
        return _COMPOSITES[dispatch_key]
    if re.fullmatch(r"Autograd([A-Z][A-Z0-9]*)?", dispatch_key):
        return operator.AUTOGRAD
    if dispatch_key == "Meta" or re.fullmatch(r"[A-Z][A-Z0-9]*|PrivateUse1", dispatch_key):
        return dispatch_key.lower()
    named = {name.capitalize(): name for name in registered_devices()}
    if dispatch_key in named:
        return str(named[dispatch_key])
    raise RuntimeError(f"could not parse dispatch key: {dispatch_key}")


@contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """Make a Library that is taken back at the end of a `with` block."""
    library = Library(*args, **kwargs)
    try:
        yield library
    finally:
        library._destroy()


def define(
    qualname: str | Library,
    schema: str,
    *args: Any,
    lib: Library | None = None,
    tags: Tag | Sequence[Tag] = (),
) -> Any:
    """Define an op by its schema: `define("mylib::sinc", "(Tensor x) -> Tensor")`.

    Args:
        qualname: "namespace::name"; or a Library, of which this is then a decorator that takes
            a schema with the name and defines the op with the function as its kernel.
        schema: the signature.
        args: alias analysis, of the form with a Library.
        lib: library that the op goes with; by default it stays.
        tags: tags of the op.

    Raises:
        ValueError: the name has no namespace, or the schema does not look like one.
        RuntimeError: the schema cannot be read, or the op is defined already.
    """
    if isinstance(qualname, Library):
        library = qualname
        name = library.define(schema, *args, tags=tags)

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            library.impl(name, function)
            return function

        return wrap
    if not isinstance(qualname, str):
        raise ValueError(
            f"define(qualname, schema): expected qualname to be instance of str, got "
            f"{type(qualname)}"
        )
    namespace, name = operator.split(qualname)
    if lib is None:
        lib = Library(namespace, "FRAGMENT")
        _kept.append(lib)
    if not re.fullmatch(r"\(.*\) -> .*", schema, re.DOTALL):
        raise ValueError(
            'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> '
            f'Tensor" but got "{schema}"'
        )
    lib.define(name + schema, tags=tags)
    return None


def impl(
    qualname: str | Library,
    types: str | Sequence[str],
    func: Any = None,
    *,
    lib: Library | None = None,
) -> Any:
    """Give an op a kernel for device types; a decorator where no function is given.

    Args:
        qualname: "namespace::name"; or a Library, with the op's name and a dispatch key next.
        types: device types, or "default" for every one.
        func: the kernel.
        lib: library that the kernel goes with; by default it stays.

    Raises:
        ValueError: the name has no namespace.
        RuntimeError: no op has the name, or a device type is unknown.
    """
    if isinstance(qualname, Library):
        library, name, key = qualname, types, func or ""

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            library.impl(name, function, key)
            return function

        return wrap
    namespace, name = operator.split(qualname)
    keys = dict.fromkeys(
        "CompositeExplicitAutograd" if t == "default" else _device_key(t)
        for t in ([types] if isinstance(types, str) else types)
    )

    def register(function: Callable[..., Any]) -> None:
        chosen = lib
        if chosen is None:
            chosen = Library(namespace, "FRAGMENT")
            _kept.append(chosen)
        for key in keys:
            chosen.impl(name, function, key)

    return register if func is None else register(func)


def _device_key(device_type: str) -> str:
    if device_type == operator.META:
        return "Meta"
    if not re.fullmatch(r"[a-z][a-z0-9]*", device_type):
        tangrad.device(device_type)  # tells which there are
    return device_type.upper()


def _overload(op: Any, api: str) -> operator.OpOverload:
    """Return the op that is given by name, as an overload or as a CustomOpDef.

    Raises:
        ValueError: it is given as something else, or the name has no namespace.
        AttributeError: no op has the name; of `register_fake`, RuntimeError.
    """
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, operator.OpOverload):
        return op
    if isinstance(op, str):
        try:
            return operator.find(op)
        except RuntimeError as error:
            if api == "register_fake":
                raise
            raise AttributeError(str(error)) from None
    raise ValueError(
        f"{api}({op}): got unexpected type for op: {type(op)}; expected a name, an OpOverload or "
        "a CustomOpDef"
    )


def _set(holder: Any, field: str, value: Any, lib: Library | None, key: Any = None) -> None:
    """Set an attribute or entry, to be taken back with the library."""
    if key is not None:
        earlier = getattr(holder, field).get(key)
        getattr(holder, field)[key] = value
    else:
        earlier = getattr(holder, field)
        setattr(holder, field, value)
    if lib is None:
        return
    if key is not None:
        lib._undo.append(lambda: _restore(getattr(holder, field), key, value, earlier))
    else:
        lib._undo.append(lambda: setattr(holder, field, earlier))


def register_kernel(
    op: Any,
    device_types: str | Sequence[str] | None,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
) -> Any:
    """Have an op computed by a function on device types (None: all); also a decorator."""
    found = _overload(op, "register_kernel")
    if found.owner is not None:
        return found.owner.register_kernel(device_types, func)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        types = [device_types] if isinstance(device_types, str) else device_types
        for device in types or (operator.EVERY_DEVICE,):
            _set(found, "kernels", function, lib, device)
        return function

    return register if func is None else register(func)


def register_fake(
    op: Any,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
    allow_override: bool = False,
) -> Any:
    """Say by a function an op's results on tensors without data; also a decorator.

    Raises:
        RuntimeError: no op has the name, or it has such a function already.
    """
    found = _overload(op, "register_fake")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if found.owner is not None:
            return found.owner.register_fake(function)
        if not allow_override and (found.fake is not None or operator.META in found.kernels):
            raise RuntimeError(
                f"register_fake(...): the operator {found.name()} already has an fake impl "
                "registered"
            )
        _set(found, "fake", function, lib)
        return function

    return register if func is None else register(func)


def impl_abstract(
    qualname: str,
    func: Callable[..., Any] | None = None,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
) -> Any:
    """Do what `register_fake` does, under its old name."""
    return register_fake(qualname, func, lib=lib)


def register_autograd(
    op: Any,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
) -> None:
    """Say an op's derivative (see `CustomOpDef.register_autograd`).

    Raises:
        AttributeError: no op has the name.
        RuntimeError: it writes to an argument.
    """
    found = _overload(op, "register_autograd")
    earlier = found.backward, found.setup_context
    set_autograd(found, backward, setup_context)
    if lib is not None:
        lib._undo.append(lambda: _reset_autograd(found, earlier))


def _reset_autograd(op: operator.OpOverload, rules: tuple[Any, Any]) -> None:
    op.backward, op.setup_context = rules


def register_vmap(
    op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Say an op's batch rule: (info, in_dims, *args, **kwargs) -> (output, out_dims)."""
    found = _overload(op, "register_vmap")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _set(found, "batching", function, lib)
        return function

    return register if func is None else register(func)


def register_torch_dispatch(
    op: Any,
    torch_dispatch_class: Any,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
) -> Any:
    """Say what a mode or tensor subclass does for an op; also a decorator."""
    found = _overload(op, "register_torch_dispatch")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _set(found, "torch_dispatch", function, lib, torch_dispatch_class)
        return function

    return register if func is None else register(func)


def register_autocast(
    op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None
) -> None:
    """Have an op's floating inputs cast to a dtype inside autocast on a device type.

    Raises:
        ValueError: `device_type` is no string, or `cast_inputs` no dtype.
    """
    found = _overload(op, "register_autocast")
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if not isinstance(cast_inputs, tangrad.dtype):
        raise ValueError(f"Expected `cast_inputs` of type dtype, got: `{type(cast_inputs)}`")
    _set(found, "autocast", cast_inputs, lib, device_type)
