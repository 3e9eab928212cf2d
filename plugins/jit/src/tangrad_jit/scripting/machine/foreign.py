"""Parts of a function that Python runs: calls of ops, and all that the machine has no steps for.

Such a part is a function of Python, made by the emitter of `program`. What it reads of the machine
are its arguments; expressions that the machine computes, such as elements of lists, are computed
before. Statements that follow each other are one part.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from tangrad_jit.scripting.machine.kinds_of import Unsupported, has_containers
from tangrad_jit.scripting.program.emit import Emitter
from tangrad_jit.scripting.program.retelling import set_place
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import ClassType, InterfaceType, ModuleType, Type

__all__ = ["Part", "Parts", "check_foreign", "children"]

_OBJECTS = (ModuleType, ClassType, InterfaceType)


def children(node: Any) -> Iterator[tree.Expr]:
    """Yield the expressions right inside of a node."""
    for field in fields(node):
        value = getattr(node, field.name)
        members = value.values() if isinstance(value, dict) else value
        for member in members if isinstance(members, (list, type({}.values()))) else [value]:
            if isinstance(member, tree.Expr):
                yield member


def check_foreign(node: Any) -> None:
    """Refuse what Python must not run for the machine: what lists are seen or changed by both.

    Raises:
        Unsupported: it is that.
    """
    if isinstance(node, tree.SetAttr):
        if has_containers(node.value.type):
            raise Unsupported("a list that an attribute shares")
        return
    if isinstance(node, (tree.Fork, tree.With)):
        raise Unsupported(type(node).__name__)
    result = getattr(node, "type", kinds.NONE)
    given = list(children(node))
    lists = any(has_containers(arg.type) for arg in given)
    if isinstance(node, tree.GetAttr):
        of_tensor = node.owner.type == kinds.TENSOR
        if has_containers(result) and not of_tensor:
            raise Unsupported("a list that an attribute shares")
    elif isinstance(node, tree.Apply):
        if node.builtin.writes and lists:
            raise Unsupported(f"{node.builtin.name} of lists")
        if lists and has_containers(result):
            raise Unsupported(f"{node.builtin.name} of lists")
    elif isinstance(node, (tree.Call, tree.Invoke, tree.New, tree.PythonCall)):
        if lists:
            raise Unsupported("lists that Python might change")
        if has_containers(result) and any(_may_share(arg.type) for arg in given):
            raise Unsupported("a list that an object might share")
    elif isinstance(node, (tree.IsInstance, tree.Comprehension)) and lists:
        raise Unsupported("a question about lists")


def _may_share(kind: Type) -> bool:
    return isinstance(kind, _OBJECTS) or kind == kinds.ANY


class Part:
    """A part under way.

    Attributes:
        statements: what Python runs, without what the machine computes before.
        result: what Python computes, in the place of statements.
        hoisted: names of arguments -> what the machine computes before.
        variables: those that Python reads.
        reads: how often each variable is read.
        assigned: the variables that are assigned.
        carried: those that are read before they are assigned.
        kinds: the types that they are assigned as.
    """

    def __init__(self) -> None:
        self.statements: list[tree.Node] = []
        self.result: tree.Expr | None = None
        self.hoisted: dict[str, tree.Expr] = {}
        self.variables: dict[str, tree.Local] = {}
        self.reads: Counter[str] = Counter()
        self.assigned: dict[str, None] = {}
        self.carried: set[str] = set()
        self.kinds: dict[str, Type] = {}

    def read(self, node: tree.Local) -> None:
        """Note that a variable is read."""
        self.reads[node.name] += 1
        if node.name not in self.assigned:
            self.carried.add(node.name)
            self.variables.setdefault(node.name, node)


class Parts:
    """All parts of a function, compiled together.

    Args:
        unit: the function.
    """

    def __init__(self, unit: Any) -> None:
        self.unit = unit
        self.emitter = Emitter(unit)
        self._definitions: list[ast.stmt] = []

    def define(self, part: Part, outs: list[str]) -> str:
        """Write the function of a part; returns the name by which `functions` has it.

        Args:
            part: what it does.
            outs: the variables that it gives back, or none for its result.
        """
        name = self.unit.node.name
        body = self.emitter.statements(part.statements) if part.statements else []
        place = part.statements[0].place if part.statements else part.result.place  # type: ignore[union-attr]
        if part.result is not None:
            body.append(ast.Return(self.emitter.expr(part.result)))
        elif len(outs) == 1:
            body.append(ast.Return(ast.Name(outs[0], ast.Load())))
        elif outs:
            body.append(
                ast.Return(ast.Tuple([ast.Name(out, ast.Load()) for out in outs], ast.Load()))
            )
        elif not any(isinstance(statement, ast.Raise) for statement in body):
            body.append(ast.Return(ast.Tuple([], ast.Load())))
        arguments = [ast.arg(given) for given in (*part.variables, *part.hoisted)]
        made = ast.FunctionDef(name, ast.arguments([], arguments, None, [], [], None, []), body, [])
        kept = f"_part_{len(self._definitions) // 2}"
        store = ast.Assign([ast.Name(kept, ast.Store())], ast.Name(name, ast.Load()))
        self._definitions += [set_place(made, place), set_place(store, place)]
        return kept

    def functions(self) -> dict[str, Any]:
        """Compile all parts, and return them by their names."""
        if not self._definitions:
            return {}
        namespace = self.emitter.namespace
        code = compile(
            ast.Module(self._definitions, []), self.unit.source.file, "exec", dont_inherit=True
        )
        exec(code, namespace)
        return namespace


def with_children(node: Any, change: Any) -> Any:
    """Return a node whose expressions are changed, those inside of slices too."""
    changed = {}
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, tree.Expr):
            changed[field.name] = change(value)
        elif isinstance(value, list) and any(isinstance(v, tree.Expr) for v in value):
            changed[field.name] = [change(v) if isinstance(v, tree.Expr) else v for v in value]
        elif isinstance(value, dict) and any(isinstance(v, tree.Expr) for v in value.values()):
            changed[field.name] = {k: change(v) for k, v in value.items()}
    return replace(node, **changed)
