"""The state of a function's check, and what names and attributes mean in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tangrad
from tangrad_jit.scripting.check.builtin_table import METHODS
from tangrad_jit.scripting.check.builtins import choose_builtin, is_builtin, refusals, to_type
from tangrad_jit.scripting.check.op_calls import call_op, is_op, variants
from tangrad_jit.scripting.check.scope import Frame, Scope
from tangrad_jit.scripting.check.tensor_table import ATTRIBUTES, SPARSE_PARTS
from tangrad_jit.scripting.check.values import Bound, Many, Value
from tangrad_jit.scripting.source.places import Place, ScriptError, Source, place_of
from tangrad_jit.scripting.tree.nodes import (
    Call,
    Const,
    Convert,
    Expr,
    GetAttr,
    Invoke,
    Local,
    MakeTuple,
    OpCall,
    Subscript,
    TupleItem,
)
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
    TupleType,
    Type,
    is_subtype,
)

__all__ = ["Attributes", "Keyed"]

_NUMBERS = (*kinds.NUMBERS, kinds.NUMBER)


class Attributes:
    """What names and attributes mean.

    Args:
        world: what is scripted: functions, classes, modules.
        names: finds names that are not local.
        source: the text that is checked.
        function: the name of the function, for messages.
    """

    def __init__(self, world: Any, names: Any, source: Source, function: str) -> None:
        self.world, self.names, self.source, self.function = world, names, source, function
        self.scope = Scope()
        self.inferred: set[str] = set()

    def place(self, node: ast.AST) -> Place:
        """Return where syntax stands."""
        return place_of(node, self.source, self.function)

    @contextmanager
    def block(self) -> Iterator[Frame]:
        """Check a block whose names do not leave it."""
        frame = Frame()
        self.scope.frames.append(frame)
        try:
            yield frame
        finally:
            self.scope.frames.pop()

    # --- meanings as values

    def expr_of(self, value: Any, place: Place) -> Expr:
        """Return a meaning as a value.

        Raises:
            ScriptError: it is none.
        """
        if isinstance(value, Expr):
            return value
        found: Expr = value.as_expr(self, place)
        return found

    def constant(self, value: Any, place: Place) -> Expr:
        """Return a constant.

        Raises:
            ScriptError: the language has no constants of its type.
        """
        kind = type_of_value(value, self.world.class_type)
        if kind is None:
            raise ScriptError(f"a {type(value).__name__} cannot be a constant", place)
        return Const(place, kind, value)

    def constant_of(self, value: Any, place: Place, kind: type) -> Any:
        """Return the value of a constant.

        Raises:
            ScriptError: it is none, or of another type.
        """
        if isinstance(value, Value):
            value = value.as_expr(self, place)
        if isinstance(value, Const) and isinstance(value.value, kind):
            return value.value
        raise ScriptError(
            f"Expected a constant {kind.__name__}: it is needed while the program is scripted",
            place,
        )

    def convert(
        self, value: Expr, wanted: Type, place: Place, what: str, implicit: bool = False
    ) -> Expr:
        """Return a value as one of a type.

        Raises:
            ScriptError: it cannot be one.
        """
        found = to_type(value, wanted, implicit)
        if found is None:
            raise ScriptError(
                f"Expected {what} of type {wanted} but it has type {value.type}"
                + self.remedy(value.type, wanted),
                place,
            )
        return found

    def remedy(self, have: Type, wanted: Type) -> str:
        """Return what may be done where a value of one type should be one of another, or ""."""
        if isinstance(have, OptionalType) and is_subtype(have.element, wanted):
            return "; check first that it is not None"
        if wanted == kinds.FLOAT and have == kinds.INT:
            return "; write float(...)"
        return ""

    # --- names

    def lookup(self, name: str, place: Place) -> Any:
        """Return what a name means.

        Raises:
            ScriptError: it means nothing here.
        """
        found = self.scope.find(name, place)
        if isinstance(found, Type):
            return Local(place, found, name)
        if found is not None:
            return found.as_expr(self, place) if hasattr(found, "expr") else found
        found = self.names.meaning(self, name, place)
        if found is None:
            raise ScriptError(f"undefined value {name}", place)
        return found

    def meaning(self, obj: Any, place: Place, name: str = "", constant: bool = False) -> Any:
        """Return what an object of Python means."""
        return self.world.meaning(self, obj, place, name, constant)

    # --- attributes

    def attribute_of(self, owner: Any, name: str, place: Place) -> Any:
        """Return what an attribute means.

        Raises:
            ScriptError: there is none of that name.
        """
        if isinstance(owner, Value):
            return owner.attribute(self, name, place)
        if isinstance(owner.type, AwaitType) and name != "wait":
            owner = Invoke(place, owner.type.element, owner, "wait", None, [])
        kind = owner.type
        found: Any = None
        if kind == kinds.TENSOR:
            found = self._of_tensor(owner, name, place)
        elif isinstance(kind, TupleType) and name in (kind.names or kind.fields):
            k = (kind.names or kind.fields).index(name)
            return TupleItem(place, kind.elements[k], owner, k)
        elif isinstance(kind, (ClassType, ModuleType)):
            found = kind.unit.attribute(self, owner, name, place)
        elif isinstance(kind, InterfaceType):
            found = Bound(owner, name) if name in kind.unit.methods else None
        elif isinstance(kind, EnumType):
            of_member = {"name": kinds.STR, "value": kind.value}.get(name)
            if of_member is not None and isinstance(owner, Const):
                return Const(place, of_member, getattr(owner.value, name))
            found = None if of_member is None else GetAttr(place, of_member, owner, name)
        elif kind == kinds.DEVICE and name in ("type", "index"):
            return choose_builtin(name, [owner], {}, place)
        elif name in _methods_of(kind):
            found = Bound(owner, name)
        if found is None:
            if isinstance(kind, ModuleType):
                raise ScriptError(_lacking(kind, name), place)
            raise ScriptError(
                f"'{kind}' object has no attribute or method '{name}'.{_absent(kind, name)}", place
            )
        return found

    def _of_tensor(self, owner: Expr, name: str, place: Place) -> Any:
        if name in ATTRIBUTES:
            found = GetAttr(place, ATTRIBUTES[name], owner, name)
            if name == "dtype" and getattr(self.names, "has_codes", False):
                return Convert(place, kinds.INT, found, "code")
            return found
        known = hasattr(tangrad.Tensor, name) or name in SPARSE_PARTS
        if known and (name in ("to", "tolist", "new_tensor") or is_builtin(name) or is_op(name)):
            return Bound(owner, name)
        return None

    # --- methods

    def call_method(
        self, owner: Expr, name: str, args: Any, kwargs: dict[str, Any], place: Place
    ) -> Any:
        """Return a call of a value's method.

        Raises:
            ScriptError: it has none, or the arguments do not fit.
        """
        kind = owner.type
        if isinstance(kind, (ClassType, ModuleType)):
            return kind.unit.call_method(self, owner, name, args, kwargs, place)
        given = [self.expr_of(arg, place) for arg in args]
        named = {key: self.expr_of(value, place) for key, value in kwargs.items()}
        if isinstance(kind, InterfaceType):
            return self._call_interface(owner, kind, name, given, named, place)
        if isinstance(kind, FutureType):
            return Invoke(place, kind.element, owner, name, None, given)
        if kind == kinds.TENSOR:
            if name == "__getitem__":
                return _item_of(owner, given, named, place)
            return self._call_of_tensor(owner, name, given, named, place)
        if name not in _methods_of(kind):
            raise ScriptError(
                f"'{kind}' object has no attribute or method '{name}'.{_absent(kind, name)}", place
            )
        if name == "update" and given and not isinstance(given[0].type, DictType):
            named = {}
        found = choose_builtin(name, [owner, *given], named, place)
        if found is None:
            raise self.no_overload(name, [owner, *given], named, place)
        return found

    def _call_interface(
        self,
        owner: Expr,
        kind: InterfaceType,
        name: str,
        args: list[Expr],
        kwargs: dict[str, Expr],
        place: Place,
    ) -> Expr:
        if name not in kind.unit.methods:
            raise ScriptError(f"'{kind}' object has no attribute or method '{name}'.", place)
        unit = kind.unit.methods[name]
        given = unit.bind(self, [owner, *args], kwargs, place)
        return Invoke(place, unit.returned, owner, name, None, given[1:])

    def _call_of_tensor(
        self, owner: Expr, name: str, args: list[Expr], kwargs: dict[str, Expr], place: Place
    ) -> Expr:
        is_conversion = name == "type" and [arg.type for arg in args] == [kinds.DTYPE]
        if name == "to" or is_conversion:
            return self.convert_tensor([owner, *args], kwargs, place)
        if name == "new_tensor":
            return OpCall(place, kinds.TENSOR, "aten::new_tensor", name, [owner, *args], kwargs)
        found = choose_builtin(name, [owner, *args], kwargs, place, convert=False)
        if found is not None:
            return found
        return self.call_named_op(name, [owner, *args], kwargs, place, method=True)

    def call_named_op(
        self,
        name: str,
        args: list[Expr],
        kwargs: dict[str, Expr],
        place: Place,
        method: bool = False,
        callee: Any = None,
    ) -> Expr:
        """Return a call of an op, or of a builtin of its name.

        Raises:
            ScriptError: neither takes the arguments.
        """
        if callee is None and is_op(name):
            callee = tangrad.plugin.find_op(name)
        refused: list[str] = []
        if args and all(arg.type in _NUMBERS for arg in (*args, *kwargs.values())):
            # Ops with operands take numbers, too, of which one has to be a tensor.
            of_numbers = choose_builtin(name, args, kwargs, place, convert=False)
            if of_numbers is not None:
                return of_numbers
        if callee is not None:
            qualified = name if "::" in name else f"aten::{name}"
            found = call_op(qualified, callee, args, kwargs, place)
            if not isinstance(found, list):
                if method and isinstance(found, OpCall):
                    found.callee = name
                return found
            refused = found
        built = choose_builtin(name, args, kwargs, place)
        if built is not None:
            return built
        refused += refusals(name, args, kwargs, place)
        if not refused:
            raise ScriptError(f"there is no op aten::{name}", place)
        raise ScriptError(
            variants(refused) + f"\n{self._given(args, kwargs)}\nThe original call is", place
        )

    def convert_tensor(self, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
        """Return a call of `to`, in whatever order its arguments are given.

        Raises:
            ScriptError: an argument is of no type that it takes.
        """
        given = [args[0]]
        for k, arg in enumerate(args[1:]):
            bare = arg.type.element if isinstance(arg.type, OptionalType) else arg.type
            if bare == kinds.INT:
                given.append(Convert(arg.place, kinds.DTYPE, arg, "dtype of code"))
            elif bare == kinds.STR:
                given.append(Convert(arg.place, kinds.DEVICE, arg, "device"))
            elif bare in (kinds.DTYPE, kinds.DEVICE, kinds.TENSOR, kinds.BOOL, kinds.NONE):
                given.append(arg)
            elif bare == kinds.MEMORY_FORMAT:
                kwargs = {**kwargs, "memory_format": arg}
            else:
                raise ScriptError(
                    f"Tensor.to: argument {k + 1} has type {arg.type}; it takes a dtype, a device "
                    "or a tensor",
                    place,
                )
        named = {}
        wanted = {"dtype": kinds.DTYPE, "memory_format": kinds.MEMORY_FORMAT}
        for name, arg in kwargs.items():
            if arg.type == kinds.INT and name in wanted:
                arg = Convert(arg.place, wanted[name], arg, f"{wanted[name]} of code")
            named[name] = arg
        return OpCall(place, kinds.TENSOR, "aten::to", "to", given, named)

    def _given(self, args: list[Expr], kwargs: dict[str, Expr]) -> str:
        shown = [str(arg.type) for arg in args] + [f"{k}: {v.type}" for k, v in kwargs.items()]
        optional = [arg for arg in [*args, *kwargs.values()] if isinstance(arg.type, OptionalType)]
        hint = ""
        if optional:
            hint = (
                f" An argument is {optional[0].type}: check that it is not None before, by an if "
                "or an assert."
            )
        for arg in args:
            if isinstance(arg, Local) and arg.name in self.inferred:
                hint += (
                    f" Inferred the value for argument '{arg.name}' to be of type 'Tensor' because "
                    "it was not annotated with an explicit type."
                )
        return f"It is called with ({', '.join(shown)}).{hint}"

    def no_overload(
        self, name: str, args: list[Expr], kwargs: dict[str, Expr], place: Place
    ) -> ScriptError:
        """Return the error of a call that no builtin takes."""
        refused = refusals(name, args, kwargs, place)
        return ScriptError(
            variants(refused) + f"\n{self._given(args, kwargs)}\nThe original call is", place
        )

    def call_unit(self, unit: Any, args: list[Any], kwargs: dict[str, Any], place: Place) -> Expr:
        """Return a call of a scripted function.

        Raises:
            ScriptError: the arguments do not fit, or it cannot be scripted.
        """
        given = unit.bind(self, args, kwargs, place)
        try:
            returned = unit.returned
        except ScriptError as error:
            error.calls.append(f"'{unit.name}' is being compiled since it was called from\n{place}")
            raise
        return Call(place, returned, unit, given)

    # --- modules with children

    def keyed(self, children: dict[str, Any]) -> Keyed:
        """Return modules by name."""
        return Keyed(children)

    def children_of(self, owner: Expr, place: Place) -> Value:
        """Return the children of a container of modules."""
        unit = owner.type.unit  # type: ignore[attr-defined]
        children = unit.children_of(self, owner, place)
        if unit.is_keyed:
            return Keyed(children)
        return Many(list(children.values()))

    def keys_of(self, owner: Any, place: Place) -> list[str]:
        """Return the names of a container's modules."""
        if isinstance(owner, Expr):
            owner = self.children_of(owner, place)
        if isinstance(owner, Keyed):
            return list(owner.children)
        return [self.constant_of(item, place, object) for item in owner.members(self, place) or []]


class Keyed(Value):
    """The modules of a `ModuleDict`, by name."""

    def __init__(self, children: dict[str, Any]) -> None:
        self.children = children

    def __str__(self) -> str:
        return "a dict of modules"

    def members(self, check: Any, place: Place) -> list[Any]:
        """Return the names."""
        return [Const(place, kinds.STR, name) for name in self.children]

    def item(self, check: Any, index: Any, place: Place) -> Any:
        """Return the module of a name."""
        if not isinstance(index, Const):
            raise ScriptError(
                "Unable to extract string literal index. ModuleDict indexing is only supported "
                "with string literals. For example, 'i = \"a\"; self.layers[i](x)' will fail "
                "because i is not a literal. Enumeration of ModuleDict is supported, e.g. 'for k, "
                "v in self.layers.items(): ...'",
                place,
            )
        name = check.constant_of(index, place, str)
        if name not in self.children:
            raise ScriptError(f"Key Error, {name}", place)
        return self.children[name]

    def part(self, name: str, place: Place) -> Many | None:
        """Return names, modules, or both."""
        keys = [Const(place, kinds.STR, key) for key in self.children]
        values = list(self.children.values())
        if name == "keys":
            return Many(keys)
        if name == "values":
            return Many(values)
        if name == "items":
            return Many([Many([k, v]) for k, v in zip(keys, values, strict=True)])
        return None


def _item_of(owner: Expr, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
    """Return the elements of a tensor at a place.

    Raises:
        ScriptError: not one place is given.
    """
    if len(args) != 1 or kwargs:
        raise ScriptError(f"expected exactly 1 argument but found {len(args)}", place)
    parts = args[0].elements if isinstance(args[0], MakeTuple) else args
    return Subscript(place, kinds.TENSOR, owner, list(parts))


_OF_GENERATORS = frozenset(("manual_seed", "seed", "initial_seed"))


def _methods_of(kind: Type) -> frozenset[str]:
    if kind == kinds.STR:
        return METHODS["str"] | {"join"}
    if kind == kinds.GENERATOR:
        return _OF_GENERATORS
    if isinstance(kind, ListType):
        return METHODS["list"]
    if isinstance(kind, DictType):
        return METHODS["dict"]
    if isinstance(kind, FutureType):
        return frozenset({"wait", "value", "done"})
    return frozenset()


def _lacking(kind: ModuleType, name: str) -> str:
    """Return why a module has no attribute of a name."""
    said = f"Module '{kind.unit.cls.__name__}' has no attribute '{name}'"
    if name in getattr(kind.unit.cls, "__jit_unused_properties__", ()):
        return f"{said}: it is unused"
    if name in getattr(kind.unit.cls, "__jit_ignored_attributes__", ()):
        return f"{said} (This attribute was ignored during compilation)"
    return f"{said} ('{kind}' object has no attribute or method '{name}')"


def _absent(kind: Type, name: str) -> str:
    if isinstance(kind, ClassType) and (name in kind.unit.declared or hasattr(kind.unit.cls, name)):
        return (
            f" '{name}' is defined as a class attribute, which is not supported: store it in "
            "__init__"
        )
    if isinstance(kind, OptionalType):
        return (
            f" It may be None: check that it is not, by an if or an assert, and it is a "
            f"{kind.element}"
        )
    return ""
