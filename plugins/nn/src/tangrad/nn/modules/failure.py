"""What is added to an exception on its way out of a model: where it was raised, and of what.

The call of a module that fails (`nn/_module.pyx`) hands the exception to `explain`, first the
innermost module, then each around it. The first one writes a note (PEP 678) with the expression
that failed and the shape of each value in it; the others extend the path that the note begins
with. Type and message of the exception stay as they are.
"""

from __future__ import annotations

import ast
import keyword
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import Any

import tangrad
from tangrad.nn.modules.likely_fix import likely_fix

_PACKAGE = os.path.dirname(tangrad.__file__) + os.sep
_LAYERS = os.path.dirname(__file__) + os.sep
_COMPILED = (".pyx", ".pxi")
_LONGEST_NAME = 60
_UNKNOWN = object()


class Note(str):
    """The note of an exception, which knows the module that its path begins with.

    Attributes:
        module: the outermost module that the exception has left.
        path: from that module to the one that failed, such as `.layers[3].linear1`.
        rest: the text behind the path.
    """

    module: Any
    path: str
    rest: str

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)  # elsewhere a text suffices, and the model stays here


def explain(module: Any, error: BaseException, trace: TracebackType | None) -> None:
    """Say in a note of `error`, which leaves the call of `module`, where it was raised.

    Args:
        module: the module that was called.
        error: the exception.
        trace: its traceback down from the call.
    """
    if isinstance(error, (StopIteration, StopAsyncIteration, RecursionError)):
        return
    notes = getattr(error, "__notes__", [])
    at = next((i for i, note in enumerate(notes) if isinstance(note, Note)), None)
    if at is None:
        error.add_note(_note(module, "", _description(module, error, trace)))
    elif notes[at].module is not module:
        inner = notes[at]
        notes[at] = _note(module, _step(module, inner.module) + inner.path, inner.rest)


def _note(module: Any, path: str, rest: str) -> Note:
    # The caller's frame is the first outside of this file: what is compiled has none.
    frame: FrameType | None = sys._getframe(2)
    note = Note(f"in {_name_in(frame, module)}{path}{rest}")
    note.module, note.path, note.rest = module, path, rest
    return note


def _name_in(frame: FrameType | None, module: Any) -> str:
    """Return the expression whose call in `frame` is that of `module`, or the module's class."""
    tree = frame and _expression(frame.f_code, frame.f_lasti, frame.f_globals)
    if isinstance(tree, ast.Call):
        name = ast.unparse(tree.func)
        if len(name) <= _LONGEST_NAME and frame and _value(tree.func, frame) is module:
            return name
    return type(module).__name__


def _step(outer: Any, inner: Any) -> str:
    """Return how `inner` is reached from `outer`, as it is written in Python."""
    for path, found in outer.named_modules(remove_duplicate=False):
        if found is inner:
            return "".join(map(_part, path.split(".")))
    return f" > {type(inner).__name__}"


def _part(name: str) -> str:
    if name.isdigit():
        return f"[{name}]"
    return f".{name}" if name.isidentifier() and not keyword.iskeyword(name) else f"[{name!r}]"


def _description(module: Any, error: BaseException, trace: TracebackType | None) -> str:
    """Return the lines of the note behind the path."""
    shown = repr(module) if not any(True for _ in module.children()) else type(module).__name__
    lines = [f" ({shown})"]
    place = _place(trace)
    if place is not None:
        frame, last = place
        tree = _expression(frame.f_code, last, frame.f_globals)
        if isinstance(tree, (ast.Raise, ast.Assert)):  # a check of what the function was given
            tree = _call_of(frame.f_code)
        if tree is not None:
            values = _operands(tree, frame)
            lines += _drawn(tree, values)
            fix = likely_fix(module, tree, {ast.unparse(n): v for n, v in values}, error)
            lines += [fix] if fix else []
    return "\n  ".join(lines)


def _place(trace: TracebackType | None) -> tuple[FrameType, int] | None:
    """Return the innermost frame of the program or of a layer, and its instruction."""
    found = None
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        ours = path.startswith(_PACKAGE) and not path.startswith(_LAYERS)
        if not ours and not path.endswith(_COMPILED):
            found = trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next
    return found


def _expression(code: CodeType, last: int, names: Mapping[str, Any]) -> ast.AST | None:
    """Return the source of an instruction as a tree, or None where there is no source."""
    line, end, column, end_column = next(islice(code.co_positions(), last // 2, None))
    if line is None or end is None or column is None or end_column is None:
        return None
    lines = linecache.getlines(code.co_filename, dict(names))[line - 1 : end]
    if len(lines) != end - line + 1:
        return None
    parts = [text.encode() for text in lines]
    parts[-1] = parts[-1][:end_column]
    parts[0] = parts[0][column:]
    text = b"".join(parts).decode(errors="replace").strip()
    for source, mode in ((f"({text})", "eval"), (text, "exec")):
        try:
            tree = ast.parse(source, mode=mode)
        except SyntaxError:
            continue
        inside: ast.AST = tree.body if isinstance(tree, ast.Expression) else tree.body[0]  # type: ignore[attr-defined]
        # Parsed anew from one line, so that positions are those in what is shown.
        shown = ast.parse(ast.unparse(inside), mode=mode)
        return shown.body if isinstance(shown, ast.Expression) else shown.body[0]  # type: ignore[attr-defined]
    return None


def _call_of(code: CodeType) -> ast.AST:
    """Return the call of a function with its own names for the arguments."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    arguments = ", ".join(name for name in names if name != "self")
    return ast.parse(f"{code.co_name}({arguments})", mode="eval").body


def _operands(tree: ast.AST, frame: FrameType) -> list[tuple[ast.expr, Any]]:
    """Return the names in an expression that stand for tensors or numbers, each once."""
    found: dict[str, tuple[ast.expr, Any]] = {}
    for node in _references(tree):
        value = _value(node, frame)
        if _label(value):
            found.setdefault(ast.unparse(node), (node, value))
    return sorted(found.values(), key=lambda pair: pair[0].col_offset)


def _references(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the longest names (`self.weight`, `x`) of an expression, but not what it calls."""
    if isinstance(tree, ast.Call):
        method = [tree.func.value] if isinstance(tree.func, ast.Attribute) else []
        for part in [*method, *tree.args, *tree.keywords]:
            yield from _references(part)
    elif isinstance(tree, (ast.Name, ast.Attribute)):
        root: ast.AST = tree
        while isinstance(root, ast.Attribute):
            root = root.value
        yield from [tree] if isinstance(root, ast.Name) else _references(root)
    elif not isinstance(tree, ast.Lambda):
        for inner in ast.iter_child_nodes(tree):
            yield from _references(inner)


def _value(node: ast.AST, frame: FrameType) -> Any:
    """Return what a name stands for, running no code of the program; else `_UNKNOWN`."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id, _UNKNOWN))
    if not isinstance(node, ast.Attribute):
        return _UNKNOWN
    owner = _value(node.value, frame)
    if type(owner) in (tangrad.Tensor, tangrad.nn.Parameter):
        return getattr(owner, node.attr) if node.attr in ("shape", "mT", "T") else _UNKNOWN
    own = getattr(owner, "__dict__", {})
    for held in (own, *(own.get(name, {}) for name in ("_parameters", "_buffers", "_modules"))):
        if isinstance(held, dict) and node.attr in held:
            return held[node.attr]
    return _UNKNOWN


def _label(value: Any) -> str:
    """Return what is shown under a value; nothing for what no failure of an op is about."""
    if isinstance(value, tangrad.Tensor):
        where = "" if value.device.type == "cpu" else f" {value.device}"
        return f"{tuple(value.shape)} {value.dtype.name}{where}"
    if isinstance(value, tuple) and value and all(type(n) is int for n in value):
        return str(tuple(value))
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], tangrad.Tensor):
        labels = [_label(x) for x in value[:4] if isinstance(x, tangrad.Tensor)]
        return f"[{', '.join(labels)}{', ...' if len(value) > 4 else ''}]"
    return repr(value) if type(value) in (int, float) else ""


def _drawn(tree: ast.AST, operands: list[tuple[ast.expr, Any]]) -> list[str]:
    """Return the expression, and below it the label of each operand, under its first letter."""
    lines = [ast.unparse(tree)]
    left = [(node.col_offset, _label(value)) for node, value in operands]
    while left:
        line, start = "", sys.maxsize
        below: list[tuple[int, str]] = []
        for column, label in reversed(left):
            mark = label
            if column + len(label) >= start:  # it would run into what stands to its right
                mark = "|"
                below.insert(0, (column, label))
            line = mark.ljust(start - column) + line if line else mark
            start = column
        lines.append(" " * start + line)
        left = below
    return ["  " + line for line in lines]
