"""Mutants made from the source of a driver: one operator, number, name or statement changed each.

The operators are those of the mutation-testing literature (DeMillo, Lipton and Sayward, "Hints on
test data selection", 1978): comparisons, arithmetic, logic, numbers, bounds, statements.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

from tangrad_testing.mutants.campaign import Mutant
from tangrad_testing.mutants.equivalent import EQUIVALENT

COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
# What has no effect on what a device does.
WITHOUT_EFFECT = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.AnnAssign, ast.arg)

REMOVABLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Raise)

Change = Callable[[Any], None]


def mutants_of(module: str, device: str) -> list[Mutant]:
    """Return the mutants of a module.

    Args:
        module: name of the module whose source is changed.
        device: the device that it drives.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"no module '{module}'")
    with open(spec.origin, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found = []
    for number, (says, line, place, change) in enumerate(changes(tree)):
        changed = copy.deepcopy(tree)
        change(node_at(changed, place))
        name = f"{module}:{line}#{number}"
        code = compile(ast.fix_missing_locations(changed), spec.origin, "exec")
        why = EQUIVALENT.get((module, says), "")
        install = partial(replace, module, spec.origin, code)
        found.append(Mutant(name, says, device, install, why))
    return found


def replace(module: str, origin: str, code: Any) -> None:
    """Put a changed module in the place of the real one."""
    made = ModuleType(module)
    made.__file__ = origin
    made.__package__ = module.rpartition(".")[0] or module
    if origin.endswith("__init__.py"):
        made.__package__, made.__path__ = module, [origin.rpartition("/")[0]]  # type: ignore
    sys.modules[module] = made
    exec(code, made.__dict__)
    parent, _, last = module.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)


def node_at(tree: ast.AST, place: int) -> ast.AST:
    """Return a node by its place in the walk of a tree."""
    return list(ast.walk(tree))[place]


def changes(tree: ast.AST) -> Iterator[tuple[str, int, int, Change]]:
    """Yield (what is changed, line, place of the node, change) for every single change."""
    silent = {id(n) for top in ast.walk(tree) for n in without_effect(top)}
    # Walked outside in: the last statement to hold a number is the innermost.
    holders = {id(n): top for top in ast.walk(tree) if isinstance(top, ast.stmt)
               for n in ast.walk(top) if isinstance(n, ast.Constant)}  # fmt: skip
    for place, node in enumerate(ast.walk(tree)):
        if id(node) not in silent:
            shown = f"`{one_line(node)}`"
            if isinstance(node, ast.Constant):
                shown += f" of `{one_line(holders[id(node)])}`"
            for says, change in changes_of(node):
                yield f"{says} in {shown}", getattr(node, "lineno", 0), place, change


def without_effect(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below (and with) one that no caller notices: texts, imports, annotations."""
    if isinstance(node, WITHOUT_EFFECT):
        yield from ast.walk(node)
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) and ast.get_docstring(node):
        yield from ast.walk(node.body[0])
    if isinstance(node, ast.FunctionDef) and node.returns is not None:
        yield from ast.walk(node.returns)
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).isupper():
        yield node  # a constant's value is changed, its definition stays


def one_line(node: ast.AST) -> str:
    """Return the start of a node's source."""
    return ast.unparse(node).partition("\n")[0][:60]


def changes_of(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Yield (name, change) for one node."""
    if isinstance(node, ast.Compare):
        yield "another comparison", swap_comparison
    elif (isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC) or (
        isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC
    ):
        yield "another operator", swap_operator
    elif isinstance(node, ast.BoolOp):
        yield "and for or", swap_logic
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "one more", increase
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "the opposite", negate
    elif isinstance(node, ast.Slice):
        yield from bounds_of(node)
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield "the opposite condition", turn
    elif isinstance(node, ast.Return) and node.value is not None:
        yield "None returned", return_none
    body = getattr(node, "body", None)
    if isinstance(node, (ast.FunctionDef, ast.If, ast.For, ast.While, ast.With, ast.Try)):
        for i, statement in enumerate(body or ()):
            does_something = not isinstance(getattr(statement, "value", None), ast.Constant)
            if isinstance(statement, REMOVABLE) and does_something:
                yield f"without `{one_line(statement)}`", partial(remove, i)


def bounds_of(node: ast.Slice) -> Iterator[tuple[str, Change]]:
    """Yield a change for each bound that a slice has."""
    if node.lower is not None:
        yield "no lower bound", partial(unbound, "lower")
    if node.upper is not None:
        yield "no upper bound", partial(unbound, "upper")


def swap_comparison(node: Any) -> None:
    """Take the neighbouring or the opposite comparison."""
    node.ops[0] = COMPARISONS[type(node.ops[0])]()


def swap_operator(node: Any) -> None:
    """Take another operator."""
    node.op = ARITHMETIC[type(node.op)]()


def swap_logic(node: Any) -> None:
    """Take `and` for `or`."""
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()


def increase(node: Any) -> None:
    """Add one to a number."""
    node.value += 1


def negate(node: Any) -> None:
    """Take False for True."""
    node.value = not node.value


def unbound(bound: str, node: Any) -> None:
    """Take a bound of a slice away."""
    setattr(node, bound, None)


def turn(node: Any) -> None:
    """Negate a condition."""
    node.test = ast.UnaryOp(ast.Not(), node.test)


def return_none(node: Any) -> None:
    """Return nothing."""
    node.value = ast.Constant(None)


def remove(place: int, node: Any) -> None:
    """Leave a statement out."""
    node.body[place] = ast.Pass()
