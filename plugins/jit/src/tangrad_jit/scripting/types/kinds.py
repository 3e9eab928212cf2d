"""The types of the script language, and which of them hold values of which others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "ANY",
    "BOOL",
    "COMPLEX",
    "DEVICE",
    "DTYPE",
    "ENUM_LIKE",
    "FLOAT",
    "GENERATOR",
    "INT",
    "LAYOUT",
    "MEMORY_FORMAT",
    "NONE",
    "NUMBER",
    "NUMBERS",
    "STR",
    "STREAM",
    "TENSOR",
    "AwaitType",
    "ClassType",
    "DictType",
    "EnumType",
    "FutureType",
    "InterfaceType",
    "ListType",
    "ModuleType",
    "QSCHEME",
    "OptionalType",
    "Primitive",
    "TupleType",
    "Type",
    "UnionType",
    "holds",
    "is_subtype",
    "optional_of",
    "union_of",
    "unify",
]


class Type:
    """A type; types of the same text are equal."""

    __slots__ = ("text",)

    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)


class Primitive(Type):
    """A type without members."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        self.text = text


TENSOR = Primitive("Tensor")
INT = Primitive("int")
FLOAT = Primitive("float")
COMPLEX = Primitive("complex")
BOOL = Primitive("bool")
STR = Primitive("str")
NONE = Primitive("NoneType")
NUMBER = Primitive("number")
DEVICE = Primitive("Device")
GENERATOR = Primitive("Generator")
STREAM = Primitive("Stream")
ANY = Primitive("Any")
# Archives write these as int.
DTYPE = Primitive("dtype")
LAYOUT = Primitive("layout")
MEMORY_FORMAT = Primitive("memory_format")
QSCHEME = Primitive("qscheme")

NUMBERS = (INT, FLOAT, COMPLEX)
ENUM_LIKE = (DTYPE, LAYOUT, MEMORY_FORMAT, QSCHEME)


class ListType(Type):
    """A list.

    Attributes:
        element: the type of its elements.
        broadcast: of a parameter, how often one value is taken in the place of a list, or 0.
    """

    __slots__ = ("broadcast", "element")

    def __init__(self, element: Type, broadcast: int = 0) -> None:
        self.element, self.broadcast = element, broadcast
        self.text = f"List[{element}]"


class DictType(Type):
    """A dict, in the order of insertion."""

    __slots__ = ("key", "value")

    def __init__(self, key: Type, value: Type) -> None:
        self.key, self.value = key, value
        self.text = f"Dict[{key}, {value}]"


class FutureType(Type):
    """What `fork` returns."""

    __slots__ = ("element",)

    def __init__(self, element: Type) -> None:
        self.element = element
        self.text = f"Future[{element}]"


class AwaitType(FutureType):
    """A call that is made when its result is asked for."""

    __slots__ = ()

    def __init__(self, element: Type) -> None:
        self.element = element
        self.text = f"Await[{element}]"


class TupleType(Type):
    """A tuple, or a named tuple.

    Attributes:
        elements: the types of its members.
        names: of a named tuple's fields, or ().
        python_class: the class of a named tuple.
        defaults: name -> default of a field.
        fields: names of the members of what an op returns, or ().
    """

    __slots__ = ("defaults", "elements", "fields", "names", "python_class")

    def __init__(
        self,
        elements: Sequence[Type],
        name: str = "",
        names: Sequence[str] = (),
        python_class: Any = None,
        defaults: dict[str, Any] | None = None,
        fields: Sequence[str] = (),
    ) -> None:
        self.elements, self.names = tuple(elements), tuple(names)
        self.fields = tuple(fields)
        self.python_class, self.defaults = python_class, defaults or {}
        members = ", ".join(map(str, elements)) or "()"
        self.text = name or f"Tuple[{members}]"


class OptionalType(Type):
    """A value or None."""

    __slots__ = ("element",)

    def __init__(self, element: Type) -> None:
        self.element = element
        self.text = f"Optional[{element}]"


class UnionType(Type):
    """A value of one of several types."""

    __slots__ = ("members",)

    def __init__(self, members: Sequence[Type]) -> None:
        self.members = tuple(sorted(members, key=_rank))
        self.text = f"Union[{', '.join(map(str, self.members))}]"


# The order in which PyTorch shows the members of a union; other types follow.
_ORDER = "Tensor Tuple List Dict number float complex Future Await int NoneType str Generator bool"


def _rank(kind: Type) -> tuple[int, str]:
    if isinstance(kind, EnumType):
        return -1, kind.text
    order = _ORDER.split()
    name = kind.text.partition("[")[0]
    return order.index(name) if name in order else len(order), kind.text


class ClassType(Type):
    """Instances of a scripted class.

    Attributes:
        unit: the class: its attributes and methods (`check.classes.ClassUnit`).
    """

    __slots__ = ("unit",)

    def __init__(self, name: str, unit: Any) -> None:
        self.text, self.unit = name, unit


class InterfaceType(Type):
    """Whatever has some methods; `unit` says which."""

    __slots__ = ("unit",)

    def __init__(self, name: str, unit: Any) -> None:
        self.text, self.unit = name, unit


class EnumType(Type):
    """Members of an enum of Python."""

    __slots__ = ("python_class", "value")

    def __init__(self, name: str, python_class: Any, value: Type) -> None:
        self.text, self.python_class, self.value = name, python_class, value


class ModuleType(Type):
    """Modules with the same attributes, constants and code.

    Attributes:
        unit: what they share (`check.modules.ModuleUnit`).
    """

    __slots__ = ("unit",)

    def __init__(self, name: str, unit: Any) -> None:
        self.text, self.unit = name, unit

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ModuleType) and self.unit is other.unit)

    def __hash__(self) -> int:
        return hash(id(self.unit))


def is_subtype(one: Type, other: Type) -> bool:
    """Return whether every value of `one` is one of `other`."""
    if one == other or other == ANY:
        return True
    if isinstance(one, OptionalType):
        return is_subtype(NONE, other) and is_subtype(one.element, other)
    if isinstance(one, UnionType):
        return all(is_subtype(member, other) for member in one.members)
    if isinstance(other, OptionalType):
        return one == NONE or is_subtype(one, other.element)
    if isinstance(other, UnionType):
        return any(is_subtype(one, member) for member in other.members)
    if other == NUMBER:
        return one in NUMBERS
    if isinstance(one, TupleType) and isinstance(other, TupleType):
        if other.names:
            return False
        return len(one.elements) == len(other.elements) and all(
            map(is_subtype, one.elements, other.elements)
        )
    if isinstance(other, InterfaceType):
        return bool(other.unit.is_served_by(one))
    if isinstance(one, ClassType) and isinstance(other, ClassType):
        return other.unit in one.unit.bases
    return (
        isinstance(one, FutureType)
        and type(one) is type(other)
        and is_subtype(one.element, other.element)
    )


def holds(kind: Type, inner: Type) -> bool:
    """Return whether a type is another, or one of containers, unions or options of it."""
    if kind == inner:
        return True
    parts = [getattr(kind, name, None) for name in ("element", "key", "value")]
    parts += [*getattr(kind, "elements", ()), *getattr(kind, "members", ())]
    return any(holds(part, inner) for part in parts if isinstance(part, Type))


def optional_of(kind: Type) -> Type:
    """Return the type of values that may also be None."""
    if is_subtype(NONE, kind):
        return kind
    if isinstance(kind, UnionType):
        return union_of([*kind.members, NONE])
    return OptionalType(kind)


def union_of(members: Sequence[Type]) -> Type:
    """Return the type of values of any of some types, in its simplest form."""
    flat: list[Type] = []
    for member in members:
        if isinstance(member, UnionType):
            flat.extend(member.members)
        elif isinstance(member, OptionalType):
            flat.extend((member.element, NONE))
        else:
            flat.append(member)
    kept: list[Type] = []
    for member in flat:
        if any(is_subtype(member, other) for other in kept):
            continue
        kept = [other for other in kept if not is_subtype(other, member)] + [member]
    if len(kept) == 1:
        return kept[0]
    if len(kept) == 2 and NONE in kept:
        return OptionalType(next(member for member in kept if member != NONE))
    return UnionType(kept)


def unify(one: Type, other: Type) -> Type | None:
    """Return the type of values of either type, or None where there is none but a union."""
    if is_subtype(one, other):
        return other
    if is_subtype(other, one):
        return one
    if NONE in (one, other):
        return optional_of(other if one == NONE else one)
    if isinstance(one, OptionalType) or isinstance(other, OptionalType):
        bare = [t.element if isinstance(t, OptionalType) else t for t in (one, other)]
        both = unify(*bare)
        return None if both is None else optional_of(both)
    if isinstance(one, TupleType) and isinstance(other, TupleType):
        if len(one.elements) != len(other.elements):
            return None
        members = [unify(a, b) for a, b in zip(one.elements, other.elements, strict=True)]
        return None if None in members else TupleType([m for m in members if m is not None])
    if isinstance(one, FutureType) and type(one) is type(other):
        both = unify(one.element, other.element)
        return None if both is None else type(one)(both)
    return None
