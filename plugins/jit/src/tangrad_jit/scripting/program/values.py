"""What scripted code calls for texts, lists, tensors and objects, where Python does otherwise."""

from __future__ import annotations

import enum
import math
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad_jit.scripting.program.containers import shared
from tangrad_jit.scripting.program.numbers import rt_wrap
from tangrad_jit.scripting.types import kinds
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
    TupleType,
    Type,
    UnionType,
)
from tangrad_jit.tracing.futures import Await, Future

__all__ = ["Raised", "fitted", "is_of", "text_of"]


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


# --- texts


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    text = f"{value:.17g}"
    return text + "." if text.lstrip("-").isdigit() else text


def text_of(value: Any, inside: bool = False) -> str:
    """Return a value as PyTorch's scripts write it."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, complex):
        sign = "" if value.imag < 0 else "+"
        return f"{_float_text(value.real)}{sign}{_float_text(value.imag)}j"
    if isinstance(value, str):
        return f"'{value}'" if inside else value
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, list):
        return f"[{', '.join(text_of(item, True) for item in value)}]"
    if isinstance(value, dict):
        items = (f"{text_of(k, True)}: {text_of(v, True)}" for k, v in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, tuple):
        items = (text_of(item, True) for item in value)
        return f"({', '.join(items)}{',' if len(value) == 1 else ''})"
    if isinstance(value, (tangrad.dtype, tangrad.layout, tangrad.memory_format)):
        return str(rt_code(value))
    return str(value)


def rt_text(value: Any) -> str:
    """Return a value as a text."""
    return text_of(value)


def rt_format(template: str, args: tuple[Any, ...]) -> str:
    """Put values in the places of a text.

    Raises:
        RuntimeError: it has more places than there are values.
    """
    parts = template.split("{}")
    if len(parts) - 1 > len(args):
        raise RuntimeError(f"Too few arguments for format string: {template}")
    made = [parts[0]]
    for k, part in enumerate(parts[1:]):
        made += [text_of(args[k]), part]
    return "".join(made)


def rt_format_plain(template: str, args: tuple[Any, ...]) -> str:
    """Put values in the places of a text in which braces of its own are doubled."""
    return template.format(*map(text_of, args))


def rt_percent(template: str, args: tuple[Any, ...]) -> str:
    """Put values in the places of a text of C's form.

    Raises:
        RuntimeError: the places and the values do not fit.
    """
    if len(args) == 1 and isinstance(args[0], tuple):
        args = args[0]
    parts = template.replace("%%", "\0").split("%")
    made, rest = [parts[0]], list(args)
    for part in parts[1:]:
        if not part:
            raise RuntimeError("Incomplete format specifier")
        if not rest:
            raise RuntimeError("Too few arguments for format string")
        made += [_formatted(part[0], rest.pop(0)), part[1:]]
    if rest:
        raise RuntimeError("Too many arguments for format string")
    return "".join(made).replace("\0", "%")


def _formatted(key: str, value: Any) -> str:
    kind = _TAGS.get(type(value), type(value).__name__)
    if key in "dieEfFgG":
        if type(value) not in (int, float):
            raise RuntimeError(f"%{key} requires a number for formatting, but got {kind}")
        return f"%{key}" % value
    if key == "c":
        if type(value) is not int and not (isinstance(value, str) and len(value) == 1):
            raise RuntimeError(f"%{key} requires an int or char for formatting, but got {kind}")
        return f"%{key}" % value
    if key == "s":
        return text_of(value)
    raise RuntimeError(f"The specifier %{key} is not supported in TorchScript format strings")


_TAGS = {str: "String", bool: "Bool", complex: "ComplexDouble", list: "GenericList", tuple: "Tuple"}


def rt_print(args: tuple[Any, ...]) -> None:
    """Write values to the standard output."""
    sys.stdout.write(" ".join(map(text_of, args)) + "\n")


def rt_warn(message: str) -> None:
    """Give a warning."""
    warnings.warn(message, UserWarning, stacklevel=3)


def rt_set_grad_enabled(enabled: bool) -> None:
    """Switch the recording of derivatives."""
    tangrad.set_grad_enabled(enabled)


def rt_ord(text: str) -> int:
    """Return the number of a character.

    Raises:
        RuntimeError: the text is not one character.
    """
    if len(text) != 1:
        raise RuntimeError(f"String for ord() must be 1 character, found {len(text)}")
    return ord(text)


def rt_character(text: str, index: int) -> str:
    """Return a character.

    Raises:
        RuntimeError: the text is shorter.
    """
    try:
        return text[index]
    except IndexError:
        raise RuntimeError("String index out of range") from None


def rt_center(text: str, width: int, fill: str) -> str:
    """Put a text in the middle of a width; of an odd rest, more to the right."""
    if len(fill) != 1:
        raise RuntimeError("TypeError: The fill character must be exactly one character long")
    left = max(0, width - len(text)) // 2
    return fill * left + text + fill * max(0, width - len(text) - left)


def _end(text: str, end: int) -> int:
    return len(text) if end == -1 else end + len(text) if end < 0 else end


def rt_count(text: str, part: str, start: int, end: int) -> int:
    """Count a text in another."""
    return text.count(part, start, _end(text, end))


def rt_startswith(text: str, part: str, start: int, end: int) -> bool:
    """Return whether a text begins with another."""
    return text.startswith(part, start, _end(text, end))


def rt_endswith(text: str, part: str, start: int, end: int) -> bool:
    """Return whether a text ends with another."""
    return text.endswith(part, start, _end(text, end))


def rt_find(text: str, part: str, start: int, end: int) -> int:
    """Return where a text stands in another, or -1."""
    return text.find(part, start, _end(text, end))


def rt_rfind(text: str, part: str, start: int, end: int) -> int:
    """Return where a text stands last in another, or -1."""
    return text.rfind(part, start, _end(text, end))


def rt_str_index(text: str, part: str, start: int, end: int) -> int:
    """Return where a text stands in another.

    Raises:
        RuntimeError: nowhere.
    """
    found = text.find(part, start, _end(text, end))
    if found < 0:
        raise RuntimeError("ValueError: substring not found")
    return found


def rt_str_rindex(text: str, part: str, start: int, end: int) -> int:
    """Return where a text stands last in another.

    Raises:
        RuntimeError: nowhere.
    """
    found = text.rfind(part, start, _end(text, end))
    if found < 0:
        raise RuntimeError("ValueError: substring not found")
    return found


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
    values.sort(reverse=reverse)


def rt_sorted(values: list[Any], reverse: bool) -> list[Any]:
    """Return a sorted list."""
    return sorted(values, reverse=reverse)


# --- tensors and codes


def rt_int(value: Any) -> int:
    """Return a tensor's only element as an integer."""
    return rt_wrap(int(value))


def rt_ints(values: Any) -> list[int]:
    """Return integers and tensors of one element as integers."""
    return [int(value) for value in values]


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


# The numbers by which PyTorch's files name dtypes, layouts and memory formats.
_DTYPES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool "
    "qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 "
    "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64"
).split()
_LAYOUTS = "strided sparse_coo sparse_csr _mkldnn sparse_csc sparse_bsr sparse_bsc jagged".split()
_MEMORY_FORMATS = "contiguous_format preserve_format channels_last channels_last_3d".split()
_TABLES = {"dtype": _DTYPES, "layout": _LAYOUTS, "memory_format": _MEMORY_FORMATS}


def rt_code(value: Any) -> int:
    """Return the number by which files name a dtype, a layout or a memory format."""
    if isinstance(value, int):
        return value
    table = next(t for k, t in _TABLES.items() if isinstance(value, getattr(tangrad, k)))
    return table.index(str(value).partition(".")[2])


def rt_of_code(code: Any, kind: str) -> Any:
    """Return what a number names.

    Raises:
        RuntimeError: it names nothing that is here.
    """
    if not isinstance(code, int):
        return code
    table = _TABLES[kind]
    found = getattr(tangrad, table[code], None) if 0 <= code < len(table) else None
    if found is None:
        raise RuntimeError(f"{code} is the number of no {kind}")
    return found


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


# --- objects and calls


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
    return all(callable(getattr(value, name, None)) for name in kind.unit.methods)


class Unfitting(TypeError):
    """A value that is not of a type, and cannot be made one."""


def fitted(value: Any, kind: Type) -> Any:
    """Return a value from Python as one of a type: containers are copied, numbers converted.

    Raises:
        Unfitting: it cannot be one.
    """
    if kind == kinds.FLOAT and type(value) is int:
        return float(value)
    if kind == kinds.COMPLEX and type(value) in (int, float):
        return complex(value)
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
    if isinstance(kind, TupleType) and isinstance(value, tuple):
        if len(value) != len(kind.elements):
            raise Unfitting(f"a tuple of {len(value)}")
        members = [fitted(item, member) for item, member in zip(value, kind.elements, strict=True)]
        return tuple(members) if kind.python_class is None else kind.python_class(*members)
    if kind == kinds.DEVICE and isinstance(value, str):
        return tangrad.device(value)
    if kind == kinds.DTYPE and type(value) is int:
        return rt_of_code(value, "dtype")
    if not is_of(value, kind):
        if isinstance(kind, ClassType):
            lacking = [name for name in kind.unit.attributes if not hasattr(value, name)]
            raise Unfitting(f"missing attribute {lacking[0]}" if lacking else "")
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
