"""Functions that are given as text: `jit.CompilationUnit`, and methods by `ScriptModule.define`."""

from __future__ import annotations

import ast
import sys
import textwrap
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_jit.scripting.check.forms import NAMED_FORMS
from tangrad_jit.scripting.check.functions import FunctionValue, Unit
from tangrad_jit.scripting.check.python_names import PythonNames
from tangrad_jit.scripting.check.statements import Statements
from tangrad_jit.scripting.objects.function import ScriptedFunction
from tangrad_jit.scripting.objects.known import WORLD
from tangrad_jit.scripting.source.finding import parse_text
from tangrad_jit.scripting.source.places import FrontendError, ScriptError, Source, place_of
from tangrad_jit.scripting.tree.nodes import Const, Expr, MakeDict, MakeList, MakeTuple
from tangrad_jit.scripting.types.kinds import Type

__all__ = ["CompilationUnit", "define_methods", "units_of"]

Resolver = Callable[[str], Any]


class _TextNames(PythonNames):
    """Names in a text: its own functions, the names of where it stands, and the language's."""

    def __init__(self, namespace: Any, resolve: Resolver | None, units: dict[str, Unit]) -> None:
        super().__init__(namespace=namespace)
        self._resolve, self._units = resolve, units

    def find(self, name: str) -> Any:
        """Return the object of a name, or what stands for none."""
        if self._resolve is not None:
            found = self._resolve(name)
            if found is not None:
                return found
        return super().find(name)

    def meaning(self, check: Any, name: str, place: Any) -> Any:
        """Return what a name means, or None."""
        if name in self._units:
            return FunctionValue([self._units[name]])
        found = super().meaning(check, name, place)
        if found is not None:
            return found
        if name == "torch":
            return check.meaning(tangrad, place, name)
        return NAMED_FORMS.get(name)


def _functions(text: str) -> tuple[Source, list[ast.FunctionDef]]:
    dedented = textwrap.dedent(text)
    source = Source("<string>", 1, dedented.split("\n"))
    tree = parse_text(dedented, source)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            raise FrontendError("a text of functions has nothing but def", place_of(node, source))
        _check_forms(node, source)
    return source, list(tree.body)  # type: ignore[arg-type]


def _check_forms(function: ast.FunctionDef, source: Source) -> None:
    """Refuse forms that Python has and PyTorch's parser of texts has not.

    Raises:
        FrontendError: the function has one.
    """
    for node in ast.walk(function):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            first = node.iter.elts[0] if node.iter.elts else node
            if first.col_offset == node.iter.col_offset:
                raise FrontendError(
                    "List of iterables is not supported currently; write zip, or brackets",
                    place_of(node, source),
                )
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Tuple":
            members = getattr(node.slice, "elts", [])
            if members and members[0].col_offset != node.slice.col_offset:
                raise FrontendError(
                    "Tuple literal in Tuple type annotation must not have any elements",
                    place_of(node, source),
                )


def _value_of(node: Expr) -> Any:
    """Return the value of a constant expression.

    Raises:
        ScriptError: it is none.
    """
    if isinstance(node, Const):
        return node.value
    if isinstance(node, MakeList):
        return [_value_of(item) for item in node.elements]
    if isinstance(node, MakeTuple):
        return tuple(_value_of(item) for item in node.elements)
    if isinstance(node, MakeDict):
        keys, values = map(_value_of, node.keys), map(_value_of, node.values)
        return dict(zip(keys, values, strict=True))
    raise ScriptError("a default in a text is a constant", node.place)


def _defaults(node: ast.FunctionDef, names: Any, source: Source) -> dict[str, Any]:
    check = Statements(WORLD, names, source, node.name)
    places = [*node.args.posonlyargs, *node.args.args]
    pairs = [
        *zip(places[len(places) - len(node.args.defaults) :], node.args.defaults, strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    return {
        argument.arg: _value_of(check.expr(default))
        for argument, default in pairs
        if default is not None
    }


def _units(
    text: str, namespace: Any, resolve: Resolver | None, known: dict[str, Unit], owner: Type | None
) -> dict[str, Unit]:
    source, nodes = _functions(text)
    units = dict(known)
    names = _TextNames(namespace, resolve, units)
    made = {}
    for node in nodes:
        defaults = _defaults(node, names, source)
        qualified = f"{owner}.{node.name}" if owner is not None else f"__torch__.{node.name}"
        made[node.name] = Unit(
            WORLD, node.name, qualified, source, node, names, defaults, owner
        )  # fmt: skip
    if owner is None:
        units.update(made)
    return made


def _visible_names(frames: int) -> Any:
    """Return the names that are seen in a frame of Python above the caller's."""
    frame = sys._getframe(1)
    for _ in range(frames):
        frame = frame.f_back or frame
    return ChainMap(dict(frame.f_locals), frame.f_globals)


class CompilationUnit:
    """Scripted functions by name, made from text.

    Args:
        lang: definitions of functions.
        _frames_up: how many frames above the caller the names of the text are looked up.

    Raises:
        RuntimeError: the text cannot be scripted.
    """

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        self._functions: dict[str, ScriptedFunction] = {}
        if lang is not None:
            self.define(lang, _frames_up=_frames_up + 1)

    def define(self, lang: str, rcb: Resolver | None = None, _frames_up: int = 0) -> None:
        """Add functions.

        Args:
            lang: definitions of functions.
            rcb: name -> object, in place of the names around the call.
            _frames_up: how many frames above the caller names are looked up.

        Raises:
            RuntimeError: the text cannot be scripted, or defines what is there.
        """
        namespace = {} if rcb is not None else _visible_names(_frames_up + 1)
        known = {name: function.script_unit for name, function in self._functions.items()}
        made = _units(lang, namespace, rcb, known, None)
        for name, unit in made.items():
            if name in known:
                raise RuntimeError(f"method '{name}' already defined.")
            unit.check()
        self._functions |= {name: ScriptedFunction(unit) for name, unit in made.items()}

    def find_function(self, name: str) -> ScriptedFunction | None:
        """Return the function of a name, or None."""
        return self._functions.get(name.rpartition(".")[2])

    def get_functions(self) -> list[ScriptedFunction]:
        """Return all functions."""
        return list(self._functions.values())

    def __getattr__(self, name: str) -> ScriptedFunction:
        found = self.__dict__.get("_functions", {}).get(name)
        if found is None:
            raise AttributeError(f"'CompilationUnit' has no attribute '{name}'")
        return found


def units_of(text: str) -> dict[str, Unit]:
    """Return the units of functions that are given as text, which name nothing around it."""
    return _units(text, {}, None, {}, None)


def define_methods(unit: Any, text: str, frames_up: int = 0, namespace: Any = None) -> None:
    """Add methods to a unit of modules.

    Args:
        unit: of the modules.
        text: definitions of methods.
        frames_up: how many frames above the caller names are looked up.
        namespace: names, in the place of those.

    Raises:
        RuntimeError: the text cannot be scripted.
    """
    seen = _visible_names(frames_up + 1) if namespace is None else namespace
    made = _units(text, seen, None, {}, unit.type)
    unit.methods.update(made)
    for method in made.values():
        method.check()
