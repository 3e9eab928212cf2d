"""The names of PyTorch that a Python source uses, found without running it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple

ROOTS = ("torch", "functorch")


class Uses(NamedTuple):
    """What a source uses, each with the lines where it does.

    Attributes:
        names: dotted names of PyTorch.
        modules: top-level packages that are imported.
    """

    names: dict[str, list[int]]
    modules: dict[str, list[int]]


class _Collector(ast.NodeVisitor):
    def __init__(self) -> None:
        self.bound: dict[str, str] = {}  # the file's name of a module or of what it took from it
        self.uses = Uses({}, {})

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            self._imported(one.name, node)
            if _root(one.name) not in ROOTS:
                continue
            self._used(one.name, node)
            if one.asname:
                self.bound[one.asname] = one.name
            else:
                self.bound[_root(one.name)] = _root(one.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            return
        self._imported(module, node)
        if _root(module) not in ROOTS:
            return
        self._used(module, node)
        for one in node.names:
            if one.name != "*":
                full = f"{module}.{one.name}"
                self._used(full, node)
                self.bound[one.asname or one.name] = full

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = _dotted(node)
        if path is None:
            self.generic_visit(node)
            return
        first, *rest = path
        if first in self.bound and isinstance(node.ctx, ast.Load):
            self._used(".".join((self.bound[first], *rest)), node)

    def _used(self, name: str, node: ast.stmt | ast.expr) -> None:
        _note(self.uses.names, name, node.lineno)

    def _imported(self, name: str, node: ast.stmt) -> None:
        _note(self.uses.modules, _root(name), node.lineno)


def _note(table: dict[str, list[int]], name: str, line: int) -> None:
    lines = table.setdefault(name, [])
    if line not in lines:
        lines.append(line)


def _root(name: str) -> str:
    return name.partition(".")[0]


def _dotted(node: ast.expr) -> list[str] | None:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        path = _dotted(node.value)
        return None if path is None else [*path, node.attr]
    return None


def uses_in(source: str) -> Uses:
    """Return which names of PyTorch, and which packages, a source uses.

    An import binds its name everywhere in the file, also one inside of a function.

    Raises:
        SyntaxError: it is no Python of this interpreter.
        ValueError: it has null characters.
        RecursionError: its expressions are nested too deeply.
    """
    tree = ast.parse(source)
    found = _Collector()
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in imports:
        found.visit(node)
    found.visit(tree)
    return found.uses


# Answers for names on standard input: how far each resolves. What a name gives is of no interest
# below an object that is neither module nor class, whose attributes may be made at run time.
_RESOLVE = """
import importlib, json, sys, types, warnings
warnings.simplefilter("ignore")
{prepare}
def step(value, path, name):
    try:
        return getattr(value, name)
    except Exception:
        pass
    if isinstance(value, types.ModuleType):
        try:
            return importlib.import_module(".".join(path) + "." + name)
        except Exception:
            pass
    raise LookupError(name)
def state(full):
    first, *rest = full.split(".")
    value, path = importlib.import_module(first), [first]
    for name in rest:
        if refusing(value):
            return "placeholder"
        try:
            value = step(value, path, name)
        except LookupError:
            plain = not isinstance(value, (types.ModuleType, type))
            return "works" if plain and not callable(value) else "missing"
        path.append(name)
    return "placeholder" if refusing(value) else "works"
print(json.dumps({{name: state(name) for name in json.load(sys.stdin)}}))
"""
STAND_IN = """
from tangrad.utils import stand_in
stand_in.install()
from tangrad.plugin import is_placeholder as refusing
"""
PYTORCH = "refusing = lambda value: False"


def states(names: Iterable[str], prepare: str = STAND_IN) -> dict[str, str]:
    """Return what each name is in a new process.

    Args:
        names: such as "torch.nn.Linear".
        prepare: `STAND_IN`, or `PYTORCH` for what PyTorch itself has.

    Returns:
        For each name "works", "placeholder" (it can be imported, and made or called it says which
        package it belongs to) or "missing".

    Raises:
        RuntimeError: the process failed; holds what it printed.
    """
    done = subprocess.run(
        [sys.executable, "-c", _RESOLVE.format(prepare=prepare)],
        input=json.dumps(sorted(names)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer
