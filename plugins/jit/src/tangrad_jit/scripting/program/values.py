"""What scripted code calls for texts, lists, tensors and objects, where Python does otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad_jit.scripting.program.codes import rt_code, rt_of_code
from tangrad_jit.scripting.program.containers import shared
from tangrad_jit.scripting.program.numbers import rt_wrap
from tangrad_jit.scripting.program.texts import text_of
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import type_of_value
from tangrad_jit.scripting.types.kinds import (
    AwaitType,
    ClassType,
    DictType,
    EnumType,
    FutureType,
    InterfaceType,
    ListType,
    ModuleType,
    OptionalType,
    Primitive,
    TupleType,
    Type,
    UnionType,
)
from tangrad_jit.tracing.futures import Await, Future

__all__ = ["Raised", "fitted", "is_of"]


class Raised(Exception):
    """An exception that a script raises: `name` is that of its class."""

    def __init__(self, cls: Any, name: str, message: str) -> None:
        super().__init__(message)
        self.cls, self.name, self.message = cls, name, message


def rt_raise(cls: Any, name: str, message: str) -> Raised:
    """Return the exception of a `raise`."""
    return Raised(cls, name, message)


def rt_assert(message: str) -> Raised:
    """Return the exception of an `assert`."""
    return Raised(AssertionError, "", f"AssertionError: {message}")


def rt_set_grad_enabled(enabled: bool) -> None:
    """Switch the recording of derivatives."""
    tangrad.set_grad_enabled(enabled)


# --- lists and dicts


def rt_fresh(value: Any) -> Any:
    """Return a list or dict of a constant, as each use has its own."""
    if isinstance(value, list):
        return [rt_fresh(item) for item in value]
    if isinstance(value, dict):
        return {key: rt_fresh(item) for key, item in value.items()}
    return value


def rt_over(values: list[Any]) -> Iterator[Any]:
    """Yield as many elements as a list has at the beginning."""
    for k in range(len(values)):
        yield values[k]


def rt_append(values: list[Any], item: Any) -> list[Any]:
    """Append an element."""
    values.append(item)
    return values


def rt_joined(entries: dict[Any, Any], others: dict[Any, Any]) -> dict[Any, Any]:
    """Return a dict of the entries of two."""
    return {**entries, **others}


def rt_min_of(one: list[Any], other: list[Any]) -> list[Any]:
    """Return the smaller of two lists."""
    return other if other < one else one


def rt_max_of(one: list[Any], other: list[Any]) -> list[Any]:
    """Return the larger of two lists."""
    return other if other > one else one


def rt_no_module(index: Any) -> Any:
    """Refuse a place in a container of modules where none stands.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"Index or key {index!r} is out of range of the modules")


def rt_repeated(values: list[Any], times: int) -> list[Any]:
    """Repeat a list in place, and return it."""
    values[:] = values * times
    return values


def rt_extended(values: list[Any], others: list[Any]) -> list[Any]:
    """Append all elements of a list."""
    values.extend(others)
    return values


def rt_pop(values: list[Any], index: int) -> Any:
    """Remove an element and return it.

    Raises:
        RuntimeError: there is none.
    """
    if not values:
        raise RuntimeError("pop from empty list")
    return values.pop(index)


def rt_remove(values: list[Any], item: Any) -> None:
    """Remove the first element that equals another.

    Raises:
        RuntimeError: there is none.
    """
    for k, value in enumerate(values):
        if value is item or rt_same(value, item):
            del values[k]
            return
    raise RuntimeError("list.remove(x): x not in list")


def rt_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; of tensors, in all elements."""
    if isinstance(one, tangrad.Tensor):
        return bool(tangrad.equal(one, other))
    return bool(one == other)


def rt_list_index(values: list[Any], item: Any) -> int:
    """Return where the first element stands that equals another.

    Raises:
        RuntimeError: there is none.
    """
    for k, value in enumerate(values):
        if rt_same(value, item):
            return k
    raise RuntimeError(f"'{text_of(item)}' is not in list")


def rt_set_item(owner: Any, index: Any, value: Any) -> None:
    """Store an element."""
    owner[index] = value


def rt_delete(owner: Any, index: Any) -> None:
    """Remove an element."""
    del owner[index]


def rt_popitem(owner: dict[Any, Any]) -> tuple[Any, Any]:
    """Remove an entry and return it.

    Raises:
        RuntimeError: there is none.
    """
    if not owner:
        raise RuntimeError("popitem(): dictionary is empty")
    return owner.popitem()


def rt_sort(values: list[Any], reverse: bool) -> None:
    """Sort a list in place; elements that are equal keep their order, backwards too."""
    _check_sortable(values)
    values.sort(reverse=reverse)


def rt_sorted(values: list[Any]) -> list[Any]:
    """Return a sorted list."""
    _check_sortable(values)
    return sorted(values)


_SORTABLE = (int, float, str, tangrad.Tensor)


def _check_sortable(values: list[Any]) -> None:
    """Check that the elements of a list have an order.

    Raises:
        RuntimeError: they have none, or are of several types.
    """
    if not values or all(isinstance(value, _SORTABLE) for value in values[:1]):
        cls = type(values[0]) if values else None
        if all(type(value) is cls for value in values):
            return
    kind = type_of_value(values[0], _class_of)
    for value in values[1:]:
        other = type_of_value(value, _class_of)
        if other != kind:
            raise RuntimeError(
                f"Only values of same type can be compared. Found {kind} and {other}"
            )
    if not _is_sortable(values[0]):
        raise RuntimeError(
            f"Contained elements in {kind} are not sortable. Only Int, Bool, Float, String, "
            "Tensor, a User Defined Class with __lt__ method defined or Tuples of aforementioned "
            "types can be sorted."
        )


def _class_of(cls: Any) -> Type:
    return Primitive(cls.__name__)


def _is_sortable(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_sortable, value))
    cls = type(value)
    return isinstance(value, _SORTABLE) or (cls.__module__ != "builtins" and "__lt__" in vars(cls))


# --- tensors and codes


def rt_int(value: Any) -> int:
    """Return a number as an integer."""
    return rt_wrap(int(value))


def rt_implicit(value: Any, kind: str) -> Any:
    """Return the number of a tensor that is given where a number is asked for.

    Raises:
        RuntimeError: it has dimensions, requires gradients, or is of a wider kind of numbers.
    """
    if value.requires_grad:
        raise RuntimeError(
            "Cannot input a tensor that requires grad as a scalar argument; detach it, or call "
            f"{kind}() on it"
        )
    if value.dim():
        raise RuntimeError(
            "Cannot input a tensor of dimension other than 0 as a scalar argument: it has shape "
            f"{list(value.shape)}"
        )
    is_whole = not (value.is_floating_point() or value.is_complex() or value.dtype == tangrad.bool)
    if kind == "int" and not is_whole:
        raise RuntimeError(
            f"Cannot input a tensor of type {value.dtype} as an integral argument; call int() on it"
        )
    return {"int": int, "float": float, "complex": complex}[kind](value)


def rt_ints(values: Any) -> list[int]:
    """Return integers and tensors without dimensions as integers."""
    return [v if isinstance(v, int) else rt_implicit(v, "int") for v in values]


def rt_tolist(value: Any, element: str, depth: int) -> Any:
    """Return a tensor's elements as nested lists.

    Raises:
        RuntimeError: it has other dimensions, or another dtype.
    """
    kinds_of = {"float": value.is_floating_point(), "complex": value.is_complex()}
    is_bool = value.dtype == tangrad.bool
    kinds_of |= {"bool": is_bool, "int": not (is_bool or any(kinds_of.values()))}
    if value.dim() != depth:
        raise RuntimeError(
            f"Output annotation list dimension {depth} and runtime tensor dimension {value.dim()} "
            "must match for tolist()"
        )
    if not kinds_of[element]:
        raise RuntimeError(
            f"Output annotation element type {element} and runtime tensor element type "
            f"{value.dtype} must match for tolist()"
        )
    return value.tolist()


def rt_device(kind: Any, index: int | None = None) -> Any:
    """Return a device."""
    return tangrad.device(kind) if index is None else tangrad.device(kind, index)


def rt_unwrap(value: Any) -> Any:
    """Return a value that is not None.

    Raises:
        RuntimeError: it is None.
    """
    if value is None:
        raise RuntimeError("Unwrapping null optional")
    return value


def rt_grad(outputs: Any, inputs: Any, given: Any, retain: Any, create: Any, unused: Any) -> Any:
    """Return the gradients of outputs for inputs, as a list."""
    found = tangrad.autograd.grad(
        outputs, inputs, given, retain_graph=retain, create_graph=create, allow_unused=unused
    )
    return list(found)


def rt_sparse_mm(sparse: Any, dense: Any, reduce: str) -> Any:
    """Return the product of a sparse matrix and another."""
    return tangrad.sparse.mm(sparse, dense, reduce)


def rt_backward(tensors: Any, given: Any, retain: Any, create: Any) -> None:
    """Add the gradients of tensors to those of leaves."""
    tangrad.autograd.backward(tensors, given, retain_graph=retain, create_graph=create)


# --- objects and calls


def rt_id(value: Any) -> int:
    """Return a number that is an object's own; of None, 0."""
    return 0 if value is None else id(value)


def rt_generator(device: Any, seed: int | None) -> Any:
    """Return a generator of random numbers, of a device and with a seed where they are given."""
    made = tangrad.Generator("cpu" if device is None else device)
    if seed is not None:
        made.manual_seed(seed)
    return made


def rt_new(cls: Any, init: Any, *args: Any) -> Any:
    """Make an instance of a scripted class."""
    made = cls.__new__(cls)
    if init is not None:
        init(made, *args)
    return made


class rt_context:
    """An instance of a scripted class as a context."""

    def __init__(self, owner: Any, enter: Any, leave: Any) -> None:
        self.owner, self.enter, self.leave = owner, enter, leave

    def __enter__(self) -> Any:
        return self.enter(self.owner)

    def __exit__(self, *exc: object) -> None:
        self.leave(self.owner, None, None, None)


def rt_is(value: Any, wanted: list[Type]) -> bool:
    """Return whether a value is of one of some types."""
    return any(is_of(value, kind) for kind in wanted)


_PLAIN: dict[Type, Any] = {
    kinds.INT: int,
    kinds.FLOAT: float,
    kinds.COMPLEX: complex,
    kinds.BOOL: bool,
    kinds.STR: str,
    kinds.NONE: type(None),
}
_OBJECTS: dict[Type, Any] = {
    kinds.TENSOR: tangrad.Tensor,
    kinds.DEVICE: tangrad.device,
    kinds.DTYPE: tangrad.dtype,
    kinds.LAYOUT: tangrad.layout,
    kinds.MEMORY_FORMAT: tangrad.memory_format,
    kinds.GENERATOR: tangrad.Generator,
    kinds.NUMBER: (int, float, complex),
}


def is_of(value: Any, kind: Type) -> bool:
    """Return whether a value is of a type."""
    if kind in _PLAIN:
        return type(value) is _PLAIN[kind]
    if kind in _OBJECTS:
        return isinstance(value, _OBJECTS[kind]) and type(value) is not bool
    if isinstance(kind, OptionalType):
        return value is None or is_of(value, kind.element)
    if isinstance(kind, UnionType):
        return any(is_of(value, member) for member in kind.members)
    if isinstance(kind, ListType):
        return isinstance(value, list) and all(is_of(item, kind.element) for item in value)
    if isinstance(kind, DictType):
        return isinstance(value, dict) and all(
            is_of(k, kind.key) and is_of(v, kind.value) for k, v in value.items()
        )
    if isinstance(kind, TupleType):
        named = kind.python_class is None or isinstance(value, kind.python_class)
        return (
            isinstance(value, tuple)
            and named
            and len(value) == len(kind.elements)
            and all(map(is_of, value, kind.elements))
        )
    if isinstance(kind, EnumType):
        return isinstance(value, kind.python_class)
    if isinstance(kind, (ClassType, InterfaceType)):
        return _has_type(value, kind)
    if isinstance(kind, ModuleType):
        return isinstance(value, tangrad.nn.Module)
    if isinstance(kind, FutureType):
        return isinstance(value, Await if isinstance(kind, AwaitType) else Future)
    return True


def _has_type(value: Any, kind: Any) -> bool:
    if isinstance(kind, ClassType):
        return isinstance(value, kind.unit.cls)
    return not _lacking(value, kind)


def _lacking(value: Any, kind: InterfaceType) -> str:
    """Return why an object does not serve an interface, or ""."""
    unit = getattr(value, "script_unit", None)
    have = kind.unit.world.class_type(type(value)) if unit is None else unit.type
    if have is None:
        named = all(callable(getattr(value, name, None)) for name in kind.unit.methods)
        return "" if named else f"a {type(value).__name__} does not have the methods of {kind}"
    return str(kind.unit.lacking(have))


class Unfitting(TypeError):
    """A value that is not of a type, and cannot be made one."""


_CODED = (tangrad.dtype, tangrad.layout, tangrad.memory_format, tangrad.qscheme)


def _decoded(value: bytes) -> str:
    """Return bytes as a text; those that are no UTF-8, one character for each."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def fitted(value: Any, kind: Type) -> Any:
    """Return a value from Python as one of a type: containers are copied, numbers converted.

    Raises:
        Unfitting: it cannot be one.
    """
    if kind == kinds.FLOAT and type(value) is int:
        return float(value)
    if kind == kinds.INT and isinstance(value, _CODED):
        return rt_code(value)  # archives name dtypes by numbers
    if kind == kinds.STR and type(value) is bytes:
        return _decoded(value)
    if kind == kinds.COMPLEX and type(value) in (int, float):
        return complex(value)
    if kind == kinds.FLOAT and isinstance(value, float):
        return float(value)  # of a class of its own, such as NumPy's
    number = {kinds.INT: int, kinds.FLOAT: float, kinds.BOOL: bool}.get(kind)  # type: ignore[call-overload]
    if number is not None and isinstance(value, tangrad.Tensor) and value.numel() == 1:
        return number(value)
    if isinstance(kind, OptionalType):
        return None if value is None else fitted(value, kind.element)
    if isinstance(kind, UnionType):
        return _one_of(value, kind)
    if shared(value, kind):
        return value
    if isinstance(kind, ListType) and kind.broadcast and type(value) in (int, float, bool):
        return [fitted(value, kind.element)] * kind.broadcast
    if isinstance(kind, ListType) and isinstance(value, (list, tuple, range)):
        if kind.element == kinds.BOOL and all(type(item) in (int, bool) for item in value):
            return [bool(item) for item in value]
        return [fitted(item, kind.element) for item in value]
    if isinstance(kind, DictType) and isinstance(value, dict):
        return {fitted(k, kind.key): fitted(v, kind.value) for k, v in value.items()}
    if isinstance(kind, TupleType) and isinstance(value, list) and kind.python_class is None:
        value = tuple(value)
    if isinstance(kind, TupleType) and isinstance(value, tuple):
        items = tuple.__getitem__(value, slice(None))  # a class of tuples may have no length
        if len(items) != len(kind.elements):
            raise Unfitting(f"a tuple of {len(items)}")
        members = [fitted(item, member) for item, member in zip(items, kind.elements, strict=True)]
        return tuple(members) if kind.python_class is None else kind.python_class(*members)
    if kind == kinds.DEVICE and isinstance(value, str):
        return tangrad.device(value)
    if kind == kinds.DTYPE and type(value) is int:
        return rt_of_code(value, "dtype")
    if not is_of(value, kind):
        if isinstance(kind, ClassType):
            lacking = [name for name in kind.unit.attributes if not hasattr(value, name)]
            raise Unfitting(f"missing attribute {lacking[0]}" if lacking else "")
        if isinstance(kind, InterfaceType):
            raise Unfitting(_lacking(value, kind))
        raise Unfitting(type(value).__name__)
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise Unfitting("an integer of more than 64 bits")
    return value


def _one_of(value: Any, kind: UnionType) -> Any:
    for member in kind.members:
        if is_of(value, member):
            return fitted(value, member)
    for member in kind.members:
        try:
            return fitted(value, member)
        except Unfitting:
            continue
    raise Unfitting(type(value).__name__)


def rt_returned(value: Any, kind: Type, name: str) -> Any:
    """Return what Python returned, as its annotation says.

    Raises:
        RuntimeError: it is of another type.
    """
    if value is None and kind == kinds.TENSOR:
        return None  # of a function without an annotation, whose result nobody uses
    try:
        return fitted(value, kind)
    except Unfitting:
        raise RuntimeError(
            f"{name}: expected value of type {kind} for return value but instead got value of "
            f"type {type(value).__name__}"
        ) from None


def rt_fail(message: str, name: str = "") -> None:
    """Raise the exception of an archive's code.

    Raises:
        Raised: always.
    """
    raise Raised(RuntimeError, name, message)
