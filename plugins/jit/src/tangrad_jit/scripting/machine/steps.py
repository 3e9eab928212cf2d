"""Which steps of the machine compute the builtins, by the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_jit.scripting.machine._machine import BINARY, UNARY
from tangrad_jit.scripting.machine.kinds_of import Unsupported, is_plain
from tangrad_jit.scripting.tree.nodes import Apply, Const, Expr
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import DictType, ListType, OptionalType, TupleType, Type

__all__ = ["Compute", "step_of"]

#: (lowering, target) -> None: write the steps whose result is in the target.
Compute = Callable[[Any, Any], None]

_WHOLE = (kinds.INT, kinds.BOOL)
_NUMBERS = (kinds.INT, kinds.BOOL, kinds.FLOAT)
_OF_INTS = {
    "add": "ADD",
    "sub": "SUB",
    "mul": "MUL",
    "floordiv": "FLOORDIV",
    "remainder": "REMAINDER",
    "__and__": "AND",
    "__or__": "OR",
    "__xor__": "XOR",
    "__lshift__": "SHL",
    "__rshift__": "SHR",
    "min": "MIN",
    "max": "MAX",
}
_OF_FLOATS = {
    "add": "FADD",
    "sub": "FSUB",
    "mul": "FMUL",
    "div": "FDIV",
    "min": "FMIN",
    "max": "FMAX",
}
# name -> instruction, whether the operands change places.
_RELATIONS = {
    "eq": ("EQ", False),
    "ne": ("NE", False),
    "lt": ("LT", False),
    "le": ("LE", False),
    "gt": ("LT", True),
    "ge": ("LE", True),
}
_ORDER = ("eq", "ne", "lt", "le", "gt", "ge")
_TESTS = {"isnan": "IS_NAN", "isinf": "IS_INF", "isfinite": "IS_FINITE"}
_HIGHEST, _LOWEST = (1 << 63) - 1, -(1 << 63)


def is_comparable(kind: Type) -> bool:
    """Return whether the machine orders values of a type."""
    if kind in _NUMBERS or kind == kinds.STR:
        return True
    if isinstance(kind, ListType):
        return is_comparable(kind.element)
    if isinstance(kind, OptionalType):
        return kind.element in _NUMBERS
    return isinstance(kind, TupleType) and all(map(is_comparable, kind.elements))


def step_of(node: Apply) -> Compute | None:
    """Return how the machine computes a builtin, or None where it does not."""
    types = [arg.type for arg in node.args]
    if not types:
        return None
    name = node.builtin.name
    if all(kind in _NUMBERS for kind in types):
        return _of_numbers(node, name, types)
    if name in ("eq", "ne", "lt", "le", "gt", "ge") and len(types) == 2:
        return _compared(node, name, types)
    if name in ("__is__", "__isnot__"):
        return _identical(node, name, types)
    first = types[0]
    if first == kinds.STR:
        return _of_texts(node, name, types)
    table = _LISTS if isinstance(first, ListType) else _DICTS if isinstance(first, DictType) else {}
    found = table.get(name)
    if found is None:
        if name == "mul" and len(types) == 2 and isinstance(types[1], ListType):
            return lambda low, target: low.apply("REPEAT", target, node.args[1], node.args[0])
        return None
    made: Compute | None = found(node, first)
    return made


# --- numbers


def _of_numbers(node: Apply, name: str, types: list[Type]) -> Compute | None:
    args = node.args
    whole = all(kind in _WHOLE for kind in types)
    if len(args) == 2:
        if name in _RELATIONS:
            op, swapped = _RELATIONS[name]
            one, two = (args[1], args[0]) if swapped else (args[0], args[1])
            if whole:
                return lambda low, target: low.apply(op, target, one, two)
            return lambda low, target: low.apply_floats(f"F{op}", target, one, two)
        if whole and name in _OF_INTS and node.type in _WHOLE:
            return lambda low, target: low.apply(_OF_INTS[name], target, *args)
        if node.type == kinds.FLOAT and name in _OF_FLOATS:
            return lambda low, target: low.apply_floats(_OF_FLOATS[name], target, *args)
        if node.type == kinds.FLOAT and name in BINARY:
            return lambda low, target: low.apply_floats("BINARY", target, *args, d=BINARY[name])
        return None
    if len(args) == 1:
        return _of_number(node, name, types[0])
    return None


def _of_number(node: Apply, name: str, kind: Type) -> Compute | None:
    arg = node.args[0]
    whole = kind in _WHOLE
    if name == "__not__":
        return lambda low, target: low.apply("NOT", target, arg)
    if name in ("neg", "abs") and node.type in (kinds.INT, kinds.FLOAT):
        if whole:
            return lambda low, target: low.apply(name.upper(), target, arg)
        if name == "neg":
            return lambda low, target: low.apply("FNEG", target, arg)
    if name in ("Int", "ceil", "floor", "trunc"):
        op = {"ceil": "CEIL", "floor": "FLOOR"}.get(name, "TO_INT")
        return lambda low, target: low.apply("MOVE_W" if whole else op, target, arg)
    if name == "Float":
        return lambda low, target: low.apply("TO_FLOAT" if whole else "MOVE_W", target, arg)
    if name == "Bool":
        zero = 0 if whole else 0.0
        op = "NE" if whole else "FNE"
        none = Const(node.place, kinds.INT if whole else kinds.FLOAT, zero)
        return lambda low, target: low.apply(op, target, arg, none)
    if name in _TESTS:
        return lambda low, target: low.apply_floats(_TESTS[name], target, arg)
    if name in UNARY and node.type == kinds.FLOAT:
        return lambda low, target: low.apply_floats("UNARY", target, arg, d=UNARY[name])
    return None


# --- comparisons


def _compared(node: Apply, name: str, types: list[Type]) -> Compute | None:
    one, two = types
    if one == two and is_comparable(one):
        return lambda low, target: low.apply(
            "COMPARE", target, *node.args, d=low.kind(one), e=_ORDER.index(name)
        )
    if isinstance(one, DictType) and one == two and name in ("eq", "ne"):
        if not is_comparable(one.value):
            raise Unsupported("a comparison of dicts")
        return lambda low, target: low.apply("DICT_EQUAL", target, *node.args, e=int(name == "ne"))
    return None


def _identical(node: Apply, name: str, types: list[Type]) -> Compute | None:
    if kinds.NONE not in types:
        return None
    other = node.args[1 - types.index(kinds.NONE)]
    return lambda low, target: low.is_none(other, target, name != "__is__")


# --- texts


def _of_texts(node: Apply, name: str, types: list[Type]) -> Compute | None:
    if name == "add" and types[1:] == [kinds.STR]:
        return lambda low, target: low.apply("TEXT_CONCAT", target, *node.args)
    if name == "len":
        return lambda low, target: low.apply("TEXT_LENGTH", target, *node.args)
    if name == "__getitem__" and types[1] == kinds.INT:
        return lambda low, target: low.apply("TEXT_GET", target, *node.args)
    return None


# --- lists


def _get(node: Apply, kind: Type) -> Compute:
    owner, index = node.args
    inner = owner.args if isinstance(owner, Apply) and owner.builtin.name == "__getitem__" else []
    if is_plain(node.type) and inner and isinstance(inner[0].type, ListType):
        return lambda low, target: low.apply("LIST_GET2", target, *inner, last=index)
    return lambda low, target: low.apply(
        f"LIST_GET_{low.keeping(target) or 'W'}", target, *node.args
    )


def _effect(op: str) -> Callable[[Apply, Any], Compute]:
    """Return the steps of a builtin that changes its first argument, and gives None."""
    return lambda node, kind: lambda low, target: low.change(op, *_fitting(node, kind))


def _fitting(node: Apply, kind: Any) -> list[Any]:
    """Return the arguments, and for those that are stored the type that they are stored as."""
    stored = {
        "append": {1: "element"},
        "insert": {2: "element"},
        "remove": {1: "element"},
        "_set_item": {1: "key", 2: "value"},
        "Delete": {1: "key"},
    }.get(node.builtin.name, {})
    found: list[Any] = []
    for k, arg in enumerate(node.args):
        wanted = getattr(kind, stored.get(k, ""), None)
        if k == 2 and isinstance(kind, ListType) and node.builtin.name == "_set_item":
            wanted = kind.element
        found.append((arg, wanted or arg.type))
    return found


def _append(node: Apply, kind: ListType) -> Compute:
    op = "APPEND_W" if is_plain(kind.element) else "APPEND"
    given = _fitting(node, kind)

    def compute(low: Any, target: int) -> None:
        owner = low.change(op, *given, keeps=0)
        low.store(target, owner)

    return compute


def _set(node: Apply, kind: ListType) -> Compute:
    op = "LIST_SET_W" if is_plain(kind.element) else "LIST_SET"
    return lambda low, target: low.change(op, *_fitting(node, kind))


def _extended(node: Apply, kind: Type) -> Compute:
    def compute(low: Any, target: int) -> None:
        owner = low.change("EXTEND", *_fitting(node, kind), keeps=0)
        low.store(target, owner)

    return compute


def _simple(op: str, **fields: int) -> Callable[[Apply, Any], Compute]:
    return lambda node, kind: lambda low, target: low.apply(op, target, *node.args, **fields)


def _searched(op: str) -> Callable[[Apply, Any], Compute | None]:
    def make(node: Apply, kind: ListType) -> Compute | None:
        if not is_comparable(kind.element):
            raise Unsupported(f"{node.builtin.name} in a list of {kind.element}")
        item = (node.args[1], kind.element)
        return lambda low, target: low.apply(op, target, node.args[0], item)

    return make


def _removed(node: Apply, kind: ListType) -> Compute:
    if not is_comparable(kind.element):
        raise Unsupported(f"remove from a list of {kind.element}")
    return lambda low, target: low.change("LIST_REMOVE", *_fitting(node, kind))


def _is_scalar(kind: Type) -> bool:
    return kind in _NUMBERS or kind == kinds.STR


def _sorts(node: Apply, kind: ListType) -> Compute | None:
    if not _is_scalar(kind.element):
        raise Unsupported(f"sort of a list of {kind.element}")
    return lambda low, target: low.change("SORT", *[(arg, arg.type) for arg in node.args])


def _sorted(node: Apply, kind: ListType) -> Compute | None:
    if not _is_scalar(kind.element):
        raise Unsupported(f"sorted of a list of {kind.element}")

    def compute(low: Any, target: int) -> None:
        _copied(node, kind)(low, target)
        low.emit("SORT", target, low.constant(kinds.BOOL, False))

    return compute


def _copied(node: Apply, kind: Type) -> Compute:
    place = node.place
    bounds = [Const(place, kinds.INT, value) for value in (0, _HIGHEST, 1)]
    return lambda low, target: low.sliced(target, node.args[0], bounds)


def _sliced(node: Apply, kind: Type) -> Compute:
    start, stop, step = node.args[1:]
    known = isinstance(step, Const) and step.value is not None
    bounds: list[Expr] = []
    for arg, forward, backward in ((start, 0, _HIGHEST), (stop, _HIGHEST, _LOWEST)):
        if arg.type == kinds.INT:
            bounds.append(arg)
        elif isinstance(arg, Const) and arg.value is None and known:
            bounds.append(Const(node.place, kinds.INT, forward if step.value > 0 else backward))  # type: ignore[attr-defined]
        else:
            raise Unsupported("a slice whose ends may be None")
    if step.type != kinds.INT:
        raise Unsupported("a slice whose step may be None")
    return lambda low, target: low.sliced(target, node.args[0], [*bounds, step])


def _summed(node: Apply, kind: ListType) -> Compute | None:
    if kind.element in _WHOLE:
        return lambda low, target: low.apply("LIST_SUM", target, *node.args)
    if kind.element == kinds.FLOAT:
        return lambda low, target: low.apply("LIST_FSUM", target, *node.args)
    return None


def _least(greatest: int) -> Callable[[Apply, Any], Compute | None]:
    def make(node: Apply, kind: ListType) -> Compute | None:
        if len(node.args) == 1 and _is_scalar(kind.element) and kind.element != kinds.STR:
            return lambda low, target: low.apply("LIST_LEAST", target, *node.args, e=greatest)
        return None

    return make


def _any(every: int) -> Callable[[Apply, Any], Compute | None]:
    def make(node: Apply, kind: ListType) -> Compute | None:
        if kind.element in _NUMBERS:
            return lambda low, target: low.apply("LIST_ANY", target, *node.args, e=every)
        return None

    return make


def _concatenated(node: Apply, kind: Type) -> Compute | None:
    if node.args[1].type != kind:
        raise Unsupported("a sum of lists of two types")
    return lambda low, target: low.apply("CONCAT", target, *node.args)


_LISTS: dict[str, Callable[[Apply, Any], Compute | None]] = {
    "len": _simple("LIST_LENGTH"),
    "__getitem__": _get,
    "_set_item": _set,
    "append": _append,
    "add_": _extended,
    "extend": _effect("EXTEND"),
    "insert": _effect("INSERT"),
    "pop": _simple("POP"),
    "Delete": _effect("LIST_DELETE"),
    "__contains__": _searched("LIST_CONTAINS"),
    "index": _searched("LIST_INDEX"),
    "count": _searched("LIST_COUNT"),
    "remove": _removed,
    "reverse": _effect("LIST_REVERSE"),
    "clear": _effect("LIST_CLEAR"),
    "sort": _sorts,
    "sorted": _sorted,
    "add": _concatenated,
    "mul": _simple("REPEAT"),
    "slice": _sliced,
    "copy": _copied,
    "list": _copied,
    "sum": _summed,
    "min": _least(0),
    "max": _least(1),
    "any": _any(0),
    "all": _any(1),
}


# --- dicts


def _keyed(op: str) -> Callable[[Apply, Any], Compute]:
    """Return the steps of a builtin that takes a key, and maybe a value in its place."""

    def make(node: Apply, kind: DictType) -> Compute:
        owner, key, *rest = node.args
        wanted = [(value, kind.value) for value in rest]
        if node.builtin.name == "get" and not rest:
            return lambda low, target: low.apply(
                op, target, owner, (key, kind.key), d=low.kind(node.type)
            )
        if rest and node.type != kind.value:
            raise Unsupported(f"{node.builtin.name} with a default of another type")
        last = wanted[0] if wanted else None
        name = f"{op}_OR" if wanted and op == "DICT_POP" else op
        return lambda low, target: low.apply(name, target, owner, (key, kind.key), last=last)

    return make


def _got(node: Apply, kind: DictType) -> Compute:
    return _keyed("DICT_GET_MAYBE" if len(node.args) == 2 else "DICT_GET_OR")(node, kind)


def _listed(what: int) -> Callable[[Apply, Any], Compute]:
    return lambda node, kind: (
        lambda low, target: low.apply(
            "DICT_LIST", target, *node.args, d=low.kind(node.type), e=what
        )
    )


def _popped(node: Apply, kind: DictType) -> Compute:
    return lambda low, target: low.apply("DICT_POPITEM", target, *node.args, d=low.kind(node.type))


_DICTS: dict[str, Callable[[Apply, Any], Compute | None]] = {
    "len": _simple("DICT_LENGTH"),
    "__getitem__": _keyed("DICT_GET"),
    "_set_item": _effect("DICT_SET"),
    "Delete": _effect("DICT_DELETE"),
    "__contains__": _keyed("DICT_CONTAINS"),
    "get": _got,
    "pop": _keyed("DICT_POP"),
    "popitem": _popped,
    "setdefault": _keyed("DICT_SETDEFAULT"),
    "update": _effect("DICT_UPDATE"),
    "clear": _effect("DICT_CLEAR"),
    "copy": _simple("DICT_COPY"),
    "dict": _simple("DICT_COPY"),
    "keys": _listed(1),
    "list": _listed(1),
    "values": _listed(2),
    "items": _listed(3),
}
