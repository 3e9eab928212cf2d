"""Expressions: from syntax to typed nodes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tangrad_jit.scripting.check.builtins import choose_builtin, to_type
from tangrad_jit.scripting.check.operators import Operators
from tangrad_jit.scripting.check.values import Bound, Loop, Many, Value, described
from tangrad_jit.scripting.source.places import FrontendError, Place, ScriptError
from tangrad_jit.scripting.tree.nodes import (
    Apply,
    Builtin,
    Comprehension,
    Const,
    Convert,
    Expr,
    GetAttr,
    IfElse,
    Iteration,
    Local,
    MakeDict,
    MakeList,
    MakeTuple,
    SliceOf,
    Subscript,
    TupleItem,
    Unpack,
)
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import AnnotationError, type_of_syntax
from tangrad_jit.scripting.types.kinds import (
    DictType,
    ListType,
    ModuleType,
    OptionalType,
    TupleType,
    Type,
    optional_of,
    unify,
)

__all__ = ["Alias", "Expressions"]


_LARGEST = 1 << 63


class Expressions(Operators):
    """Check expressions; `Attributes` has the names and the state of a function's check."""

    # --- literals

    def _on_Constant(self, node: ast.Constant, hint: Type | None) -> Expr:
        place, value = self.place(node), node.value
        if value is Ellipsis:
            return Const(place, kinds.ANY, value)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LARGEST:
            raise ScriptError("Integer constant out of range, out of bounds of 64 bits", place)
        if isinstance(value, bytes):
            raise FrontendError("bytes aren't supported", place)
        return self.constant(value, place)

    def _on_JoinedStr(self, node: ast.JoinedStr, hint: Type | None) -> Expr:
        text, args = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value).replace("{", "{{").replace("}", "}}")
                continue
            assert isinstance(part, ast.FormattedValue)
            if part.conversion not in (-1, None):
                raise FrontendError("Don't support conversion in JoinedStr", self.place(node))
            if part.format_spec is not None:
                raise FrontendError("Don't support formatting in JoinedStr", self.place(node))
            text += "{}"
            args.append(self.expr(part.value))
        place = self.place(node)
        if "{{" in text or "}}" in text:
            builtin = Builtin("format", "rt_format_plain(_0, _args)")
        else:
            builtin = Builtin("format", "rt_format(_0, _args)")
        return Apply(place, kinds.STR, builtin, [Const(place, kinds.STR, text), *args])

    def _on_List(self, node: ast.List, hint: Type | None) -> Expr:
        element = hint.element if isinstance(hint, ListType) else None
        elements = [self.expr(e, element) for e in node.elts]
        return self.make_list(elements, self.place(node), element)

    def make_list(self, elements: list[Expr], place: Place, element: Type | None = None) -> Expr:
        """Return a list; where its elements are of several types, of their union.

        Raises:
            ScriptError: they are not of the type that is wanted.
        """
        if element is None and not elements:
            return MakeList(place, ListType(kinds.TENSOR), [])
        common = self._common_type(elements) if element is None else element
        fitted = [to_type(item, common, False) for item in elements]
        if any(item is None for item in fitted):
            raise ScriptError(
                f"List type annotation `List[{common}]` did not match the types of the given list "
                f"elements, which are {', '.join(str(item.type) for item in elements)}",
                place,
            )
        return MakeList(place, ListType(common), [item for item in fitted if item is not None])

    def _common_type(self, elements: list[Expr]) -> Type:
        found = elements[0].type
        for item in elements[1:]:
            both = unify(found, item.type)
            if both is None:
                return kinds.union_of([one.type for one in elements])
            found = both
        return found

    def _on_Tuple(self, node: ast.Tuple, hint: Type | None) -> Any:
        hints: list[Type | None] = [None] * len(node.elts)
        if isinstance(hint, TupleType) and len(hint.elements) == len(node.elts):
            hints = list(hint.elements)
        elements: list[Any] = []
        for element, wanted in zip(node.elts, hints, strict=True):
            if isinstance(element, ast.Starred):
                elements.extend(self.spread(self.value(element.value), self.place(element)))
            else:
                elements.append(self.value(element, wanted))
        place = self.place(node)
        if any(isinstance(item, Value) and not isinstance(item, Many) for item in elements):
            return Many(elements)
        return self.make_tuple([self.expr_of(item, place) for item in elements], place)

    def _on_Dict(self, node: ast.Dict, hint: Type | None) -> Expr:
        place = self.place(node)
        if any(key is None for key in node.keys):
            raise FrontendError(
                "Dict expansion by ** isn't supported; update a dict by another", place
            )
        key_hint = hint.key if isinstance(hint, DictType) else None
        value_hint = hint.value if isinstance(hint, DictType) else None
        keys = [self.expr(key, key_hint) for key in node.keys if key is not None]
        values = [self.expr(value, value_hint) for value in node.values]
        if not keys and not isinstance(hint, DictType):
            return MakeDict(place, DictType(kinds.STR, kinds.TENSOR), [], [])
        return self.make_dict(keys, values, hint, place)

    def make_dict(
        self, keys: list[Expr], values: list[Expr], hint: Type | None, place: Place
    ) -> Expr:
        """Return a dict of entries.

        Raises:
            ScriptError: they are not of the types that are wanted.
        """
        if not keys and isinstance(hint, DictType):
            return MakeDict(place, hint, [], [])
        made_key, made_value = self._common_type(keys), self._common_type(values)
        kind = hint if isinstance(hint, DictType) else DictType(made_key, made_value)
        if isinstance(made_key, kinds.UnionType):
            raise ScriptError(
                "Dicts may only contain homogeneous keys, but the type of the first generated key "
                f"was {made_key}",
                place,
            )
        fitted = []
        for what, given, wanted, have in (
            ("key", keys, kind.key, made_key),
            ("value", values, kind.value, made_value),
        ):
            fitted.append([to_type(item, wanted, False) for item in given])
            if None in fitted[-1]:
                raise ScriptError(
                    f"Dict type annotation `{kind}` did not match the type of an actual {what} "
                    f"type `{have}`",
                    place,
                )
        return MakeDict(place, kind, *[[e for e in part if e is not None] for part in fitted])

    def _on_Set(self, node: ast.Set, hint: Type | None) -> Expr:
        raise FrontendError("sets aren't supported; use a dict or a list", self.place(node))

    # --- names

    def _on_Name(self, node: ast.Name, hint: Type | None) -> Any:
        return self.lookup(node.id, self.place(node))

    def _on_Attribute(self, node: ast.Attribute, hint: Type | None) -> Any:
        return self.attribute_of(self.value(node.value), node.attr, self.place(node))

    # --- calls

    def _on_Call(self, node: ast.Call, hint: Type | None) -> Any:
        place = self.place(node)
        callee = self.value(node.func)
        if not getattr(callee, "is_special", False):
            place = self.place(node.func)
        raw = getattr(callee, "call_raw", None)
        if raw is not None:
            return raw(self, node, hint)
        args: list[Any] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                args.extend(self.spread(self.value(arg.value), self.place(arg)))
            else:
                args.append(self.value(arg))
        kwargs = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise FrontendError("keyword-arg expansion is not supported", place)
            kwargs[keyword.arg] = self.value(keyword.value)
        return self.call(callee, args, kwargs, place, hint)

    def call(
        self,
        callee: Any,
        args: list[Any],
        kwargs: dict[str, Any],
        place: Place,
        hint: Type | None = None,
    ) -> Any:
        """Return a call of a meaning, with meanings as arguments."""
        if isinstance(callee, Bound) and callee.is_special:
            return self.to_list(callee.owner, hint, place)
        if isinstance(callee, Expr):
            if isinstance(callee.type, ModuleType):
                return callee.type.unit.call_module(self, callee, args, kwargs, place)
            if isinstance(callee.type, kinds.InterfaceType):
                return self.call_method(callee, "forward", args, kwargs, place)
            if isinstance(callee.type, kinds.ClassType):
                return self.call_method(callee, "__call__", args, kwargs, place)
            raise ScriptError(f"cannot call a value of type {callee.type}", place)
        return callee.call(self, args, kwargs, place)

    def to_list(self, owner: Expr, hint: Type | None, place: Place) -> Expr:
        """Return the elements of a tensor as lists, of the type that is expected."""
        element, depth = hint, 0
        while isinstance(element, ListType):
            element, depth = element.element, depth + 1
        known = (kinds.INT, kinds.FLOAT, kinds.BOOL, kinds.COMPLEX)
        if hint is not None and element not in known:
            raise ScriptError(
                f"{element} is not one of the supported element types for tolist: int, float, "
                "complex, bool",
                place,
            )
        if hint is None:
            raise ScriptError(
                "Expected type hint for result of tolist(): x: List[float] = t.tolist()", place
            )
        return Convert(place, hint, owner, f"tolist {element} {depth}")

    def _on_Lambda(self, node: ast.Lambda, hint: Type | None) -> Any:
        raise FrontendError("Lambda aren't supported; define a function with def", self.place(node))

    # --- subscripts

    def _on_Subscript(self, node: ast.Subscript, hint: Type | None) -> Any:
        place = self.place(node)
        owner = self.value(node.value)
        if isinstance(owner, Value):
            return self._item_of_meaning(owner, node.slice, place, hint)
        kind = owner.type
        if kind == kinds.TENSOR:
            return Subscript(place, kind, owner, self.index_parts(node.slice))
        if isinstance(kind, ModuleType):
            children = self.children_of(owner, place)
            return self._item_of_meaning(children, node.slice, place, hint)
        if isinstance(kind, TupleType):
            return self._item_of_tuple(owner, node.slice, place)
        index = self._slice_or_index(node.slice)
        if isinstance(index, SliceOf):
            return self._sliced(owner, index, place)
        if isinstance(kind, kinds.ClassType):
            return self.call_method(owner, "__getitem__", [index], {}, place)
        if isinstance(kind, ModuleType):
            raise ScriptError(f"{kind} is not subscriptable", place)
        found = choose_builtin("__getitem__", [owner, index], {}, place)
        if found is None:
            if isinstance(kind, (ListType, DictType)):
                raise self.no_overload("__getitem__", [owner, index], {}, place)
            hint_text = (
                "; check first that it is not None" if isinstance(kind, OptionalType) else ""
            )
            raise ScriptError(
                f"'{kind}' object is not subscriptable with {index.type}{hint_text}", place
            )
        return found

    def _item_of_meaning(
        self, owner: Value, index: ast.expr, place: Place, hint: Type | None = None
    ) -> Any:
        if isinstance(index, ast.Slice):
            bounds = [
                None if part is None else self.constant_of(self.value(part), place, int)
                for part in (index.lower, index.upper, index.step)
            ]
            return owner.item(self, slice(*bounds), place)
        found = self.value(index)
        if isinstance(hint, kinds.InterfaceType) and isinstance(found, (Local, GetAttr)):
            return self._chosen_module(owner, found, hint, place)
        return owner.item(self, found, place)

    def _chosen_module(self, owner: Value, index: Expr, hint: Type, place: Place) -> Expr:
        """Return the module at a place that is known when the program runs."""
        lacking = Builtin("raise_key", "rt_no_module(_0)", namespace="")
        chosen: Expr = Apply(place, hint, lacking, [index])
        names = self.keys_of(owner, place) if index.type == kinds.STR else None
        members = owner.members(self, place) or []
        for k in reversed(range(len(members))):
            key = Const(place, index.type, k if names is None else names[k])
            child = self.convert(self.expr_of(owner.item(self, key, place), place), hint, place, "")
            is_it = choose_builtin("eq", [index, key], {}, place)
            assert is_it is not None
            chosen = IfElse(place, hint, is_it, child, chosen)
        return chosen

    def _item_of_tuple(self, owner: Expr, index: ast.expr, place: Place) -> Expr:
        elements = owner.type.elements  # type: ignore[attr-defined]
        number = self._slice_or_index(index)
        if isinstance(number, SliceOf):
            bounds = [
                None
                if part is None or part.type == kinds.NONE
                else self.constant_of(part, place, int)
                for part in (number.start, number.stop, number.step)
            ]
            numbers = range(len(elements))[slice(*bounds)]
            return self.make_tuple(
                [TupleItem(place, elements[k], owner, k) for k in numbers], place
            )
        if isinstance(number, Const) and isinstance(number.value, int):
            if not -len(elements) <= number.value < len(elements):
                raise ScriptError("Tuple index out of range", place)
            k = number.value % len(elements)
            return TupleItem(place, elements[k], owner, k)
        listed = to_type(owner, ListType(elements[0])) if elements else None
        found = None
        if listed is not None and all(element == elements[0] for element in elements):
            found = choose_builtin("__getitem__", [listed, number], {}, place)
        if found is None:
            raise ScriptError(
                "tuple index must be an integer literal where the members are of several types: "
                "Cannot index into a tuple with a non-integer literal because we cannot resolve "
                "the output type",
                place,
            )
        return found

    def _slice_or_index(self, node: ast.expr) -> Expr:
        """Return the syntax of an index: a slice, or a value."""
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            bounds = [None if p is None else self.bound(self.expr(p)) for p in parts]
            return SliceOf(self.place(node), kinds.NONE, *bounds)
        return self.expr(node)

    def _sliced(self, owner: Expr, index: SliceOf, place: Place) -> Expr:
        none = Const(place, kinds.NONE, None)
        bounds = [part if part is not None else none for part in (index.start, index.stop)]
        if index.step is not None and index.step.type != kinds.NONE:
            bounds.append(index.step)
        found = choose_builtin("slice", [owner, *bounds], {}, place)
        if found is None:
            raise ScriptError(f"'{owner.type}' object cannot be sliced", place)
        return found

    def index_parts(self, index: ast.expr) -> list[Expr]:
        """Return the parts of a tensor's index."""
        nodes = index.elts if isinstance(index, ast.Tuple) else [index]
        parts: list[Expr] = []
        for node in nodes:
            place = self.place(node)
            part = self._slice_or_index(node)
            if isinstance(part, SliceOf):
                parts.append(part)
                continue
            whole = ListType(kinds.INT)
            if isinstance(part.type, TupleType):
                part = to_type(part, whole) or part
            allowed = (kinds.INT, kinds.NONE, kinds.TENSOR, kinds.BOOL, whole, kinds.ANY)
            element = part.type
            while isinstance(element, ListType) and isinstance(element.element, ListType):
                element = element.element
            if element not in allowed and part.type != optional_of(kinds.TENSOR):
                raise ScriptError(
                    "Unsupported operation: indexing tensor with unsupported index type "
                    f"'{part.type}'. Only ints, slices, lists and tensors are supported",
                    place,
                )
            parts.append(part)
        return parts

    def bound(self, value: Expr) -> Expr:
        """Return a bound of a slice: an integer, or None.

        Raises:
            ScriptError: it is neither.
        """
        if value.type == optional_of(kinds.INT) or value.type == kinds.NONE:
            return value
        return self.convert(value, kinds.INT, value.place, "a bound of a slice", implicit=True)

    # --- comprehensions

    def _on_ListComp(self, node: ast.ListComp, hint: Type | None) -> Expr:
        element = hint.element if isinstance(hint, ListType) else None
        return self._comprehended(node, node.generators, None, node.elt, element, None)

    def _on_DictComp(self, node: ast.DictComp, hint: Type | None) -> Expr:
        value = hint.value if isinstance(hint, DictType) else None
        key = hint.key if isinstance(hint, DictType) else None
        return self._comprehended(node, node.generators, node.key, node.value, value, key)

    def _on_GeneratorExp(self, node: ast.GeneratorExp, hint: Type | None) -> Expr:
        return self._comprehended(node, node.generators, None, node.elt, None, None)

    def _comprehended(
        self,
        node: ast.expr,
        generators: list[ast.comprehension],
        key: ast.expr | None,
        element: ast.expr,
        hint: Type | None,
        key_hint: Type | None,
    ) -> Expr:
        place = self.place(node)
        if len(generators) != 1:
            raise FrontendError("Only a single generator is currently supported", place)
        generator = generators[0]
        if generator.ifs:
            raise FrontendError("Comprehension ifs are not supported yet", place)
        over = self.iterated(self.value(generator.iter), self.place(generator.iter))
        if isinstance(over, list):
            return self._unrolled(over, generator.target, key, element, (hint, key_hint), place)
        with self.block():
            target = self.target(generator.target, over.element, self.place(generator.target))
            made_key = None if key is None else self.expr(key, key_hint)
            value = self.expr(element, hint)
        if made_key is not None:
            self.make_dict([made_key], [value], self._dict_hint(key_hint, hint), place)
        elif hint is not None:
            self.make_list([value], place, hint)
        if hint is not None:
            value = self.convert(value, hint, place, "an element")
        kind = value.type if hint is None else hint
        if made_key is None:
            return Comprehension(place, ListType(kind), target, over, value)
        return Comprehension(place, DictType(made_key.type, kind), target, over, value, made_key)

    def _dict_hint(self, key: Type | None, value: Type | None) -> Type | None:
        return None if key is None or value is None else DictType(key, value)

    def _unrolled(
        self,
        items: list[Any],
        target: ast.expr,
        key: ast.expr | None,
        element: ast.expr,
        hints: tuple[Type | None, Type | None],
        place: Place,
    ) -> Expr:
        """Return the list or dict of a comprehension over a tuple or modules."""
        keys: list[Expr] = []
        values: list[Expr] = []
        for item in items:
            with self.block():
                self.bind(target, item, place)
                if key is not None:
                    keys.append(self.expr(key, hints[1]))
                values.append(self.expr(element, hints[0]))
        listed = self.make_list(values, place, hints[0])
        if key is None:
            return listed
        assert isinstance(listed, MakeList)
        kind = DictType(keys[0].type, listed.type.element)  # type: ignore[attr-defined]
        return MakeDict(place, kind, keys, listed.elements)

    def bind(self, target: ast.expr, item: Any, place: Place) -> None:
        """Let names stand for a meaning, without a store; only in loops that are unrolled."""
        if isinstance(target, ast.Name):
            self.scope.top.names[target.id] = Alias(item) if isinstance(item, Expr) else item
            return
        assert isinstance(target, (ast.Tuple, ast.List))
        for one, part in zip(target.elts, self.spread(item, place), strict=True):
            self.bind(one, part, place)

    def target(self, node: ast.expr, kind: Type, place: Place) -> Any:
        """Return the target of a loop, whose names get the types of an element.

        Raises:
            ScriptError: it does not fit the element.
        """
        if isinstance(node, ast.Name):
            self.scope.set(node.id, kind, place)
            return node.id
        if isinstance(node, (ast.Tuple, ast.List)):
            members: Sequence[Type]
            if isinstance(kind, TupleType):
                members = kind.elements
            elif isinstance(kind, ListType):
                members = [kind.element] * len(node.elts)
            else:
                raise ScriptError(f"{kind} cannot be unpacked into several names", place)
            if len(members) != len(node.elts):
                much = "too many" if len(members) > len(node.elts) else "too few"
                raise ScriptError(
                    f"{much} values to unpack: need {len(node.elts)} but found {len(members)}",
                    place,
                )
            return Unpack(
                place,
                [self.target(n, k, place) for n, k in zip(node.elts, members, strict=True)],
            )
        if isinstance(node, ast.Starred):
            raise FrontendError(
                "A Starred expression may only appear on the lhs within the presence of another "
                "non-starred expression",
                place,
            )
        raise FrontendError("a loop's target is a name, or a tuple of names", place)

    # --- what loops go over

    def iterated(self, value: Any, place: Place) -> Iteration | list[Any]:
        """Return what a loop goes over: when it runs, or all meanings where it is unrolled.

        Raises:
            ScriptError: no loop goes over it.
        """
        if isinstance(value, Loop):
            return value.iteration
        if isinstance(value, Value):
            members = value.members(self, place)
            if members is None:
                raise ScriptError(f"{value} cannot be used as an iterable", place)
            return members
        kind = value.type
        if isinstance(kind, ListType):
            return Iteration("list", [value], kind.element)
        if kind == kinds.STR:
            return Iteration("str", [value], kinds.STR)
        if isinstance(kind, DictType):
            return Iteration("dict", [value], kind.key)
        if kind == kinds.TENSOR:
            return Iteration("tensor", [value], kinds.TENSOR)
        if isinstance(kind, TupleType):
            return self.spread(value, place)
        if isinstance(kind, ModuleType):
            return self.children_of(value, place).members(self, place) or []
        raise ScriptError(f"'{described(value)}' object is not iterable", place)

    def spread(self, value: Any, place: Place) -> list[Any]:
        """Return the members of a tuple or of several meanings.

        Raises:
            ScriptError: their number is not known.
        """
        if isinstance(value, Value):
            members = value.members(self, place)
            if members is not None:
                return members
        elif isinstance(value.type, TupleType):
            if isinstance(value, MakeTuple):
                return list(value.elements)
            return [
                TupleItem(place, element, value, k) for k, element in enumerate(value.type.elements)
            ]
        elif isinstance(value.type, ModuleType):
            return self.children_of(value, place).members(self, place) or []
        raise ScriptError(
            f"{described(value)} cannot be used as a tuple: the number of its members is not known",
            place,
        )

    def annotation(self, node: ast.AST) -> Type:
        """Return the type that an annotation in a body means.

        Raises:
            ScriptError: it means none.
        """
        try:
            return type_of_syntax(node, self.names.annotation, self.world.class_type)
        except AnnotationError as error:
            raise ScriptError(str(error), self.place(node)) from None


class Alias(Value):
    """A name that stands for an expression without side effects."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __str__(self) -> str:
        return str(self.expr.type)

    def as_expr(self, check: Any, place: Place) -> Expr:
        """Return the expression."""
        return self.expr
