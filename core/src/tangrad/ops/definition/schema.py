"""Parse op schemas: "clamp(Tensor self, Scalar? min=None) -> Tensor"."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_SIGNATURE = re.compile(r"\s*[\w:]+\s*\(.*\)\s*(->[^>]*)?", re.DOTALL)
_TENSOR = r"Tensor(\[\])?(\s+\w+)?"
_RETURNS = re.compile(
    rf"any|bool|int|float|str|dtype|Tensor(\[\])?|\(\s*({_TENSOR}(\s*,\s*{_TENSOR})*)?\s*\)"
)
_NESTED = re.compile(r"[('\"]|\[[^\]]|,\s*\Z")
KEYWORD_ALIASES = {
    "input": "self",
    "self": "input",
    "axis": "dim",
    "axis0": "dim0",
    "axis1": "dim1",
    "x1": "self",
    "x2": "other",
    "keepdims": "keepdim",
}


_WORDS = {"None": None, "True": True, "False": False, "inf": float("inf"), "-inf": -float("inf")}


class Param:
    """One parameter: its name, type, default (or REQUIRED) and how it may be given."""

    __slots__ = ("name", "type", "default", "keyword_only", "length", "written")

    def __init__(
        self, name: str, type_: str, default: Any, keyword_only: bool, length: int, written: bool
    ) -> None:
        self.name, self.type, self.default = name, type_, default
        self.keyword_only, self.length, self.written = keyword_only, length, written

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is REQUIRED


class Required:
    """The default of a parameter that must be given."""

    def __repr__(self) -> str:
        return "<required>"


REQUIRED = Required()


class Schema:
    """A parsed schema: name, parameters, the results as text and by their names.

    Raises:
        ValueError: the text is none; it says what is wrong with it.
    """

    __slots__ = ("text", "name", "params", "result", "returns", "written", "written_lists")

    def __init__(self, text: str) -> None:
        self.text = text
        _check(text)
        head, arrow, tail = text.partition("->")
        self.name, _, rest = head.strip().partition("(")
        self.params = _parse_params(rest.rstrip().removesuffix(")"), text)
        self.result = tail.strip() if arrow else "Tensor"
        self.returns = _parse_returns(self.result)
        written = [i for i, p in enumerate(self.params) if p.written]
        self.written_lists = tuple(i for i in written if self.params[i].type == "Tensor[]")
        self.written = next((i for i in written if i not in self.written_lists), -1)
        if self.written_lists and self.written >= 0:
            raise ValueError(f"'{text}' writes both a tensor and a list of tensors")

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names."""
        return tuple(p.name for p in self.params)

    @property
    def tensors(self) -> tuple[int, ...]:
        """Positions of the parameters that hold tensors."""
        return tuple(i for i, p in enumerate(self.params) if p.type in TENSOR_TYPES)

    def signature_text(self, default_text: Any = repr) -> str:
        """Return the parameters as Python text, e.g. "Tensor self, *, Scalar alpha=1"."""
        parts, starred = [], False
        for p in self.params:
            if p.keyword_only and not starred:
                parts.append("*")
                starred = True
            default = "" if p.default is REQUIRED else f"={default_text(p.default)}"
            parts.append(f"{p.type} {p.name}{default}")
        return ", ".join(parts)


def _check(text: str) -> None:
    if not _SIGNATURE.fullmatch(text):
        raise ValueError(
            f"'{text}' is no schema: write one as in 'name(Tensor self, Scalar alpha=1) -> Tensor'"
        )
    _, arrow, tail = text.partition("->")
    returns = tail.strip()
    if arrow and not _RETURNS.fullmatch(returns):
        raise ValueError(
            f"'{text}': '{returns}' are no results: write Tensor, or (Tensor first, Tensor second)"
        )


TENSOR_TYPES = ("Tensor", "Tensor?", "Tensor[]", "Operand")


def split(text: str) -> list[str]:
    """Return the parts between the commas that are outside of brackets and quotes."""
    if not _NESTED.search(text):
        return [part.strip() for part in text.split(",")] if text.strip() else []
    parts, depth, start, quote = [], 0, 0, ""
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _parse_params(text: str, whole: str) -> list[Param]:
    params, keyword_only = [], False
    for part in split(text):
        if part == "*":
            keyword_only = True
            continue
        try:
            name, type_, default, length, written = _parse_param(part)
        except ValueError as error:
            raise ValueError(f"parameter '{part}' of '{whole}' {error}") from None
        params.append(Param(name, type_, default, keyword_only, length, written))
    return params


@cache  # most parameters are those of many ops
def _parse_param(part: str) -> tuple[str, str, Any, int, bool]:
    declared, equals, default = part.partition("=")
    type_, _, name = declared.strip().rpartition(" ")
    type_ = type_.strip()
    if not type_:
        raise ValueError("has no type")
    written = type_.endswith("!")
    type_, length = _base_type(type_.rstrip("!"))
    try:
        value = _literal(default.strip()) if equals else REQUIRED
    except (ValueError, IndexError):
        raise ValueError(
            "has no default that is a number, a text in quotes, a list, True, False, None or inf"
        ) from None
    if length and isinstance(value, int):
        value = (value,) * length
    return name.strip(), type_, value, length, written


def _base_type(text: str) -> tuple[str, int]:
    start = text.find("[")
    if start < 0 or text[start + 1] == "]":
        return text, 0
    end = text.index("]")
    return text[:start] + "[]" + text[end + 1 :], int(text[start + 1 : end])


def _literal(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "'\"":
        return text[1:-1]
    if text[0] in "([":
        return tuple(_literal(part) for part in split(text[1:-1]))
    try:
        return int(text)
    except ValueError:
        return float(text)


def _parse_returns(text: str) -> tuple[str, ...]:
    if not text.startswith("("):
        return ("",)
    return tuple(part.rpartition(" ")[2] if " " in part else "" for part in split(text[1:-1]))
