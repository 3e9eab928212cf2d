"""Tracebacks of programs that have no frames of Python: a frame is made for each."""

from __future__ import annotations

import ast
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from tangrad_jit.scripting.source.places import Place

__all__ = ["MARK", "set_place", "tell"]

#: The global by which frames of scripted code are known; its value is the unit.
MARK = "__tangrad_script__"
# Nodes of Python's syntax that have places, or parts that do.
_PLACED = (ast.expr, ast.stmt, ast.arg, ast.keyword, ast.arguments, ast.comprehension, ast.withitem)


def set_place(node: Any, place: Place) -> Any:
    """Give a node, and those inside that have no place, a place in the source."""
    if hasattr(node, "lineno"):
        return node
    node.lineno = place.source.first + place.line
    node.end_lineno = place.source.first + max(place.line, place.last_line)
    node.col_offset = place.column
    node.end_col_offset = max(place.last_column, 0)
    for name in node._fields:
        child = getattr(node, name, None)
        if isinstance(child, _PLACED):
            set_place(child, place)
        elif child.__class__ is list:
            for part in child:
                if isinstance(part, _PLACED):
                    set_place(part, place)
    return node


@lru_cache(maxsize=256)
def _raising(
    name: str, file: str, line: int, last_line: int, column: int, last_column: int
) -> CodeType:
    """Return the code of a function that raises its argument at a place."""
    body = ast.Raise(ast.Name("error", ast.Load()), None)
    arguments = ast.arguments([], [ast.arg("error")], None, [], [], None, [])
    made = ast.FunctionDef(name, arguments, [body], [])
    for node in ast.walk(made):
        if isinstance(node, (ast.expr, ast.stmt, ast.arg)):
            node.lineno, node.end_lineno = line, last_line
            node.col_offset, node.end_col_offset = column, last_column
    code = compile(ast.Module([made], []), file, "exec", dont_inherit=True)
    return next(part for part in code.co_consts if isinstance(part, CodeType))


def tell(error: Exception, where: tuple[Any, Place]) -> None:
    """Give the traceback of an error an entry at its beginning.

    Args:
        error: the exception.
        where: the function, and the place in it that the exception passed.
    """
    unit, place = where
    line = place.source.first + place.line
    last = place.source.first + max(place.line, place.last_line)
    code = _raising(
        unit.node.name, unit.source.file, line, last, place.column, max(place.last_column, 0)
    )
    try:
        FunctionType(code, {MARK: unit})(error)
    except Exception as raised:
        error.__traceback__ = getattr(raised.__traceback__, "tb_next", None)
