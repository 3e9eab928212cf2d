"""Read a graph from the text that the printer writes."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import tangrad
from tangrad.plugin import find_op
from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.numbers import NUMBER_OPS
from tangrad_jit.graph.types import NumberType, TensorType, ValueType, contiguous_stride

__all__ = ["ParseError", "op_of_key", "parse"]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<value>%\d+)
    | (?P<named>(?:dtype|device|layout|memory_format|complex)'[^']*')
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>-?(?:inf|nan|\d+(?:\.\d*)?(?:e[+-]?\d+)?))
    | (?P<word>[A-Za-z_][\w.]*)
    | (?P<sign>[()\[\]{},:=])
    )""",
    re.VERBOSE,
)
_KEY = re.compile(r"\s*([A-Za-z_][\w.]*(?:\([\w,]*\)(?=[\w(])[\w]*)*)\(")
_WORDS = {"None": None, "True": True, "False": False}


class ParseError(ValueError):
    """Tell where a text is not a graph."""


def parse(text: str) -> Graph:
    """Return the graph of a text.

    Raises:
        ParseError: the text is not one; the message has the line.
    """
    lines = text.strip().splitlines()
    reader = _Reader()
    try:
        if len(lines) < 3 or not lines[0].startswith("graph "):
            raise ParseError("a graph begins with 'graph NAME(' and ends with 'return' and '}'")
        reader.header(lines[0])
        for number, line in enumerate(lines[1:-1], 2):
            reader.line(line, number)
        if lines[-1].strip() != "}" or not reader.returned:
            raise ParseError("the graph has no end: 'return ...' and then '}'")
    except ParseError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ParseError(f"not a graph: {error}") from error
    return reader.graph


@cache
def _derived() -> dict[str, Any]:
    from tangrad.plugin.render import pointwise_ops

    return {described.op.definition.key: described for described in pointwise_ops()}


def _derived_op(key: str) -> Any:
    """Return the op of a key that is made of another's: a derivative, of any order.

    Raises:
        ParseError: there is none.
    """
    known = _derived()
    while key not in known:
        # The longest known one whose derivative it may be.
        base = max((k for k in known if key.startswith(f"{k}_")), key=len, default=None)
        made = {} if base is None else {d.op.definition.key: d for d in known[base].derivatives()}
        if made.keys() <= known.keys():
            raise ParseError(f"no op is known as {key!r}")
        known.update(made)
    return known[key].op


def op_of_key(key: str) -> Any:
    """Return the op whose definition has a key: a name, or a derived op's description.

    Raises:
        ParseError: there is none.
    """
    if key in NUMBER_OPS:
        return NUMBER_OPS[key]
    if "(" in key:
        return _derived_op(key)
    try:
        op = find_op(key)
    except AttributeError as error:
        raise ParseError(f"no op is known as {key!r}") from error
    while op.overloads:
        op = op.overloads[0]
    return op


class _Tokens:
    """The tokens of a line, one after the other."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.at, self.where = text, 0, where

    def next(self) -> tuple[str, str]:
        found = _TOKEN.match(self.text, self.at)
        if found is None or found.lastgroup is None:
            raise ParseError(f"{self.where}: cannot read {self.text[self.at : self.at + 30]!r}")
        self.at = found.end()
        return found.lastgroup, found[found.lastgroup]

    def peek(self) -> str:
        found = _TOKEN.match(self.text, self.at)
        return "" if found is None or found.lastgroup is None else found[found.lastgroup]

    def expect(self, wanted: str) -> None:
        got = self.next()[1]
        if got != wanted:
            raise ParseError(f"{self.where}: expected {wanted!r}, got {got!r}")

    def accept(self, wanted: str) -> bool:
        if self.peek() != wanted:
            return False
        self.next()
        return True


class _Reader:
    def __init__(self) -> None:
        self.graph = Graph()
        self.values: dict[str, Value] = {}
        self.returned = False
        self.module = self.place = ""

    def header(self, line: str) -> None:
        tokens = _Tokens(line, "line 1")
        tokens.expect("graph")
        self.graph.name = tokens.next()[1]
        tokens.expect("(")
        while not tokens.accept(")"):
            name = tokens.next()[1]
            tokens.expect(":")
            type = self.type(tokens)
            kind = tokens.next()[1]
            value = self.graph.add_input(type, kind, json.loads(tokens.next()[1]))
            self.values[name] = value
            tokens.accept(",")
        tokens.expect("{")

    def type(self, tokens: _Tokens) -> ValueType:
        dtype = tokens.next()[1]
        if not tokens.accept("["):
            return NumberType(dtype)
        shape = tuple(self.sizes(tokens, "]"))
        stride = contiguous_stride(shape)
        if tokens.accept("strided"):
            tokens.expect("(")
            stride = tuple(self.sizes(tokens, ")"))
        device = "cpu"
        if tokens.accept("on"):
            device = tokens.next()[1]
            if tokens.accept(":"):
                device += ":" + tokens.next()[1]
        return TensorType(dtype, shape, stride, device)

    def sizes(self, tokens: _Tokens, end: str) -> list[Any]:
        found = []
        while not tokens.accept(end):
            kind, text = tokens.next()
            found.append(int(text) if kind == "number" else text)
            tokens.accept(",")
        return found

    def line(self, line: str, number: int) -> None:
        stripped = line.strip()
        if not stripped:
            return
        if stripped.startswith("#"):
            words = stripped[1:].split()
            self.place = words.pop() if words and ":" in words[-1] else ""
            self.module = " ".join(words)
            return
        tokens = _Tokens(stripped, f"line {number}")
        if tokens.accept("return"):
            self.returned = True
            while tokens.at < len(stripped):
                self.graph.outputs.append(self.argument(tokens))
                tokens.accept(",")
            return
        self.node(tokens)

    def node(self, tokens: _Tokens) -> None:
        made: list[tuple[str, ValueType, str, int]] = []
        while tokens.peek().startswith("%"):
            name = tokens.next()[1]
            tokens.expect(":")
            type, parent, begins = self.type(tokens), "", 0
            if tokens.accept("view"):
                tokens.expect("of")
                parent = tokens.next()[1]
                begins = int(tokens.next()[1]) if tokens.accept("at") else 0
            made.append((name, type, parent, begins))
            tokens.accept(",")
        if made:
            tokens.expect("=")
        form = "draw" if tokens.accept("draw") else "call"
        found = _KEY.match(tokens.text, tokens.at)
        if found is None:
            raise ParseError(f"{tokens.where}: expected a call")
        tokens.at = found.end()
        args = []
        while not tokens.accept(")"):
            args.append(self.argument(tokens))
            tokens.accept(",")
        outs = []
        if tokens.accept("into"):
            while tokens.peek().startswith("%"):
                outs.append(self.value(tokens.next()[1]))
                tokens.accept(",")
            form = "inplace" if args and outs == [args[0]] else "out"
        node = Node(op_of_key(found[1]), tuple(args), form, (), self.module, self.place)
        if form == "out":
            node.outs = tuple(outs)
        results = self.graph.append(node, [type for _, type, _, _ in made])
        for value, (name, _, parent, begins) in zip(results, made, strict=True):
            if parent:
                value.view_of = self.value(parent)
                value.offset = value.view_of.offset + begins
            self.values[name] = value

    def value(self, name: str) -> Value:
        if name not in self.values:
            raise ParseError(f"{name} is used before it is made")
        return self.values[name]

    def argument(self, tokens: _Tokens) -> Any:
        kind, text = tokens.next()
        if kind == "value":
            return self.value(text)
        if kind == "number":
            return _number(text)
        if kind == "text":
            import ast

            return ast.literal_eval(text)
        if kind == "named":
            return _named(text)
        if kind == "word" and text in _WORDS:
            return _WORDS[text]
        if text in ("(", "["):
            items = []
            end = ")" if text == "(" else "]"
            while not tokens.accept(end):
                items.append(self.argument(tokens))
                tokens.accept(",")
            return tuple(items) if text == "(" else items
        raise ParseError(f"{tokens.where}: cannot read the argument {text!r}")


def _number(text: str) -> Any:
    if any(c in text for c in ".en"):
        return float(text)
    return int(text)


def _named(text: str) -> Any:
    kind, _, name = text.rstrip("'").partition("'")
    if kind == "device":
        return tangrad.device(name)
    if kind == "complex":
        return complex(name)
    found = getattr(tangrad, name)
    if not isinstance(found, getattr(tangrad, kind)):
        raise ParseError(f"{name} is no {kind}")
    return found
