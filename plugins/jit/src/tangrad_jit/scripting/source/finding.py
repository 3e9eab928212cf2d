"""Find the source of a function or class, and parse it."""

from __future__ import annotations

import ast
import inspect
import linecache
from typing import Any

from tangrad_jit.scripting.source.places import FrontendError, ScriptError, Source

__all__ = ["LARGEST_SOURCE", "parse_class", "parse_function", "parse_text"]

LARGEST_SOURCE = 1 << 24
_DEEPEST = 200
_MOST_COMMENTS = 50


def parse_function(function: Any) -> tuple[Source, ast.FunctionDef]:
    """Return the source and the syntax of a Python function.

    Raises:
        ScriptError: there is no source, or it is no single function.
    """
    source, tree = _parsed(function)
    found = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(found, ast.FunctionDef):
        raise ScriptError(
            f"Expected a single top-level function: the source of {_named(function)} is "
            f"{'a lambda or an expression' if found is not None else 'several statements'}; write "
            "it with def, on lines of its own"
        )
    return source, found


def parse_class(cls: type) -> tuple[Source, ast.ClassDef]:
    """Return the source and the syntax of a Python class.

    Raises:
        ScriptError: there is no source.
    """
    source, tree = _parsed(cls)
    found = tree.body[0] if tree.body else None
    if not isinstance(found, ast.ClassDef):
        raise ScriptError(f"Expected a class as the source of {_named(cls)}")
    line = _line_of_member(cls, source.file)
    if line is not None and not source.first <= line < source.first + len(source.lines):
        return _class_at(cls, line, source)
    return source, found


def _line_of_member(cls: type, file: str) -> int | None:
    """Return the line of a method that stands in a class, or None where there is none."""
    for member in vars(cls).values():
        code = getattr(getattr(member, "__func__", member), "__code__", None)
        if code is None or code.co_filename != file:
            continue
        if code.co_qualname == f"{cls.__qualname__}.{code.co_name}":
            return int(code.co_firstlineno)
    return None


def _class_at(cls: type, line: int, other: Source) -> tuple[Source, ast.ClassDef]:
    """Return the class that has a line: Python itself finds the first of several of one name."""
    lines = linecache.getlines(other.file)
    whole = Source(other.file, 1, [one.rstrip("\n") for one in lines])
    nodes = [
        node
        for node in ast.walk(parse_text("".join(lines), whole))
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    ]
    found = [node for node in nodes if node.lineno <= line <= (node.end_lineno or node.lineno)]
    if not found:
        return other, next(iter(nodes))
    return whole, max(found, key=lambda node: node.lineno)


def _named(obj: Any) -> str:
    return str(getattr(obj, "__qualname__", None) or obj)


def _parsed(obj: Any) -> tuple[Source, ast.Module]:
    try:
        lines, first = inspect.getsourcelines(obj)
        file = inspect.getsourcefile(obj) or "<unknown>"
    except (OSError, TypeError) as error:
        raise OSError(
            f"Can't get source for {obj}. TorchScript requires source access in order to carry "
            "out compilation, make sure original .py files are available: a function that was "
            "typed at a prompt, or made by exec, has none"
        ) from error
    text = "".join(lines)
    shown = [line.rstrip("\n") for line in lines]
    source = Source(file, first, shown)
    if not text[:1].isspace():
        return source, parse_text(text, source)
    # Texts of several lines, and comments, may stand further left than the function.
    tree = parse_text(f"if True:\n{text}", source)
    found = tree.body[0]
    assert isinstance(found, ast.If)
    for node in found.body:
        ast.increment_lineno(node, -1)
    return source, ast.Module(found.body, [])


def parse_text(text: str, source: Source) -> ast.Module:
    """Parse a text whose size and nesting are bounded.

    Raises:
        ScriptError: it is larger or deeper than any program, or no Python.
    """
    if len(text) > LARGEST_SOURCE:
        raise ScriptError(f"the source in {source.file} is larger than any program")
    _check_depth(text, source)
    try:
        return _parsed_with_comments(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        known = next((said for words, said in _SAID.items() if words in str(error)), "")
        raise FrontendError(
            f"{known}the source in {source.file} cannot be parsed: {error}"
        ) from None


# What of Python's parser's errors is found -> what PyTorch's parser of texts says of it.
_SAID = {
    "illegal expression for augmented assignment": (
        "augmented assignment can only have one LHS expression: "
    ),
    "cannot assign to expression": "unexpected expression on the left of an assignment: ",
    "cannot assign to literal": "Cannot pack a tuple into a non-variable: ",
    "unterminated string literal": "expected a valid token: ",
    "Perhaps you forgot a comma": "expected ] or another closing bracket: ",
}


def _parsed_with_comments(text: str) -> ast.Module:
    """Parse a text with its type comments, but for those where Python's grammar has none."""
    for _ in range(_MOST_COMMENTS):
        try:
            return ast.parse(text, type_comments=True)
        except SyntaxError as error:
            lines = text.split("\n")
            line = (error.lineno or 0) - 1
            # The parser tells the line of the comment, or that of what follows it.
            at = next((k for k in (line, line - 1) if "# type:" in "".join(lines[k : k + 1])), None)
            if at is None:
                break
            lines[at] = lines[at].replace("# type:", "# type")
            text = "\n".join(lines)
    return ast.parse(text)


def _check_depth(text: str, source: Source) -> None:
    """Refuse brackets so deep that the parser would run out of its stack."""
    depth = deepest = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    if deepest > _DEEPEST:
        raise ScriptError(f"the source in {source.file} is nested more than {_DEEPEST} deep")
