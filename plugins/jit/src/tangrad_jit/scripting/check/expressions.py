"""Expressions: from syntax to typed nodes."""

from __future__ import annotations

import ast
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
    Iteration,
    MakeDict,
    MakeList,
    MakeTuple,
    SliceOf,
    Subscript,
    TupleItem,
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

__all__ = ["Expressions"]

_LARGEST = 1 << 63


class Expressions(Operators):
    """Check expressions; `Operators` has their operators and conditions."""

    # --- literals

    def _on_Constant(self, node: ast.Constant, hint: Type | None) -> Expr:
        place, value = self.place(node), node.value
        if value is Ellipsis:
            return Const(place, kinds.ANY, value)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LARGEST:
            raise ScriptError("Integer constants have at most 64 bits", place)
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
        return self.make_list([self.expr(e, element) for e in node.elts], self.place(node), element)

    def make_list(self, elements: list[Expr], place: Place, element: Type | None = None) -> Expr:
        """Return a list of elements of one type.

        Raises:
            ScriptError: they are of several.
        """
        if element is None:
            if not elements:
                return MakeList(place, ListType(kinds.TENSOR), [])
            element = elements[0].type
            for item in elements[1:]:
                both = unify(element, item.type)
                if both is None:
                    raise ScriptError(
                        "Expected all elements of a list to be of one type: an element has type "
                        f"{item.type}, where those before have {element}; annotate the list as "
                        f"List[Union[{element}, {item.type}]]",
                        item.place,
                    )
                element = both
        fitted = [self.convert(item, element, item.place, "an element") for item in elements]
        return MakeList(place, ListType(element), fitted)

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
            raise FrontendError("** in a dict isn't supported", place)
        key_hint = hint.key if isinstance(hint, DictType) else None
        value_hint = hint.value if isinstance(hint, DictType) else None
        keys = [self.expr(key, key_hint) for key in node.keys if key is not None]
        values = [self.expr(value, value_hint) for value in node.values]
        if not keys and not isinstance(hint, DictType):
            return MakeDict(place, DictType(kinds.STR, kinds.TENSOR), [], [])
        made_keys = self.make_list(keys, place, key_hint)
        made_values = self.make_list(values, place, value_hint)
        assert isinstance(made_keys, MakeList)
        assert isinstance(made_values, MakeList)
        kind = DictType(made_keys.type.element, made_values.type.element)  # type: ignore[attr-defined]
        return MakeDict(place, kind, made_keys.elements, made_values.elements)

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
                raise FrontendError("** in a call isn't supported", place)
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
        if isinstance(callee, Bound) and callee.name == "tolist":
            return self.to_list(callee.owner, hint, place)
        if isinstance(callee, Expr):
            if isinstance(callee.type, ModuleType):
                return self.call_method(callee, "forward", args, kwargs, place)
            if isinstance(callee.type, (kinds.ClassType, kinds.InterfaceType)):
                return self.call_method(callee, "__call__", args, kwargs, place)
            raise ScriptError(f"a value of type {callee.type} cannot be called", place)
        return callee.call(self, args, kwargs, place)

    def to_list(self, owner: Expr, hint: Type | None, place: Place) -> Expr:
        """Return the elements of a tensor as lists, of the type that is expected."""
        element, depth = hint, 0
        while isinstance(element, ListType):
            element, depth = element.element, depth + 1
        if element not in (kinds.INT, kinds.FLOAT, kinds.BOOL, kinds.COMPLEX) or hint is None:
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
            return self._item_of_meaning(owner, node.slice, place)
        kind = owner.type
        if kind == kinds.TENSOR:
            return Subscript(place, kind, owner, self.index_parts(node.slice))
        if isinstance(kind, ModuleType):
            return self._item_of_meaning(self.children_of(owner, place), node.slice, place)
        if isinstance(kind, TupleType):
            return self._item_of_tuple(owner, node.slice, place)
        if isinstance(node.slice, ast.Slice):
            return self._sliced(owner, node.slice, place)
        index = self.expr(node.slice)
        if isinstance(kind, kinds.ClassType):
            return self.call_method(owner, "__getitem__", [index], {}, place)
        if isinstance(kind, ModuleType):
            raise ScriptError(f"{kind} is not subscriptable", place)
        found = choose_builtin("__getitem__", [owner, index], {}, place)
        if found is None:
            hint_text = (
                "; check first that it is not None" if isinstance(kind, OptionalType) else ""
            )
            raise ScriptError(
                f"'{kind}' object is not subscriptable with {index.type}{hint_text}", place
            )
        return found

    def _item_of_meaning(self, owner: Value, index: ast.expr, place: Place) -> Any:
        if isinstance(index, ast.Slice):
            bounds = [
                None if part is None else self.constant_of(self.value(part), place, int)
                for part in (index.lower, index.upper, index.step)
            ]
            return owner.item(self, slice(*bounds), place)
        return owner.item(self, self.value(index), place)

    def _item_of_tuple(self, owner: Expr, index: ast.expr, place: Place) -> Expr:
        elements = owner.type.elements  # type: ignore[attr-defined]
        if isinstance(index, ast.Slice):
            bounds = [
                None if part is None else self.constant_of(self.value(part), place, int)
                for part in (index.lower, index.upper, index.step)
            ]
            numbers = range(len(elements))[slice(*bounds)]
            return self.make_tuple(
                [TupleItem(place, elements[k], owner, k) for k in numbers], place
            )
        number = self.expr(index)
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
                "Cannot index into a tuple with a non-integer literal because we cannot resolve "
                "the output type",
                place,
            )
        return found

    def _sliced(self, owner: Expr, index: ast.Slice, place: Place) -> Expr:
        bounds = [
            Const(place, kinds.NONE, None) if part is None else self.expr(part)
            for part in (index.lower, index.upper)
        ]
        if index.step is not None:
            bounds.append(self.expr(index.step))
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
            if isinstance(node, ast.Slice):
                bounds = [
                    None if part is None else self._bound(part)
                    for part in (node.lower, node.upper, node.step)
                ]
                parts.append(SliceOf(place, kinds.NONE, *bounds))
                continue
            part = self.expr(node)
            whole = ListType(kinds.INT)
            if isinstance(part.type, TupleType):
                part = to_type(part, whole) or part
            allowed = (kinds.INT, kinds.NONE, kinds.TENSOR, kinds.BOOL, whole, kinds.ANY)
            if part.type not in allowed and part.type != optional_of(kinds.TENSOR):
                raise ScriptError(
                    "Unsupported operation: indexing tensor with unsupported index type "
                    f"'{part.type}'. Only ints, slices, lists and tensors are supported",
                    place,
                )
            parts.append(part)
        return parts

    def _bound(self, node: ast.expr) -> Expr:
        value = self.expr(node)
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
        if hint is not None:
            value = self.convert(value, hint, place, "an element")
        if made_key is None:
            return Comprehension(place, ListType(value.type), target, over, value)
        return Comprehension(
            place, DictType(made_key.type, value.type), target, over, value, made_key
        )

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
