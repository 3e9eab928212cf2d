r"""Regular expressions of RE2, in whose language torchtext's are, by Python's `re`.

What differs is translated: classes of Unicode (`\pL`), which Python does not have; `\d`, `\w` and
`\s`, which are ASCII's in RE2, and of them `\s` without the vertical tab; `\z`. What RE2 refuses
because it takes more than linear time, looking around and back, is refused too.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Callable

_ASCII = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r ", "v": r"\v"}
_REFUSED = re.compile(r"\(\?(?:=|!|<=|<!|>|\(|P=|#)|\\[1-9]|\\k<")
_PROPERTY = re.compile(r"\\([pP])(?:(\^?)\{(\^?)(\w+)\}|(\w))")


@functools.cache
def _by_category() -> dict[str, str]:
    """Return {category, or its first letter: the inside of a class of `re`}."""
    runs: dict[str, list[tuple[int, int]]] = {}
    start, last = 0, unicodedata.category("\0")
    for code in range(1, sys.maxunicode + 2):
        kind = unicodedata.category(chr(code)) if code <= sys.maxunicode else ""
        if kind != last:
            for name in (last, last[0]):
                held = runs.setdefault(name, [])
                if held and held[-1][1] == start - 1:
                    held[-1] = held[-1][0], code - 1
                else:
                    held.append((start, code - 1))
            start, last = code, kind
    return {
        name: "".join(f"\\U{a:08x}" + (f"-\\U{b:08x}" if b > a else "") for a, b in held)
        for name, held in runs.items()
    }


def _complement(inside: str) -> str:
    """Return the inside of the class of all that another class does not have."""
    ends = re.findall(r"\\U(\w{8})(?:-\\U(\w{8}))?", inside)
    parts, at = "", 0
    for low, high in ends:
        if int(low, 16) > at:
            parts += f"\\U{at:08x}-\\U{int(low, 16) - 1:08x}"
        at = int(high or low, 16) + 1
    return parts + (f"\\U{at:08x}-\\U{sys.maxunicode:08x}" if at <= sys.maxunicode else "")


def _property(found: re.Match[str], pattern: str) -> str:
    name = found[4] or found[5]
    inside = _by_category().get(name)
    if inside is None:
        raise RuntimeError(
            f"the pattern {pattern!r} names the class {found[0]} of characters; there are those of "
            "Unicode's categories, as \\pL or \\p{Lu}"
        )
    negated = (found[1] == "P") != bool(found[2] or found[3])
    return _complement(inside) if negated else inside


def translated(pattern: str) -> str:
    """Return a pattern of RE2 as one of `re`.

    Raises:
        RuntimeError: it looks around or back, or names a class that is not there.
    """
    refused = _REFUSED.search(pattern)
    if refused is not None and not pattern[: refused.start()].endswith("\\"):
        raise RuntimeError(
            f"the pattern {pattern!r} has {refused[0]!r} at {refused.start()}: patterns of RE2 "
            "look neither around nor back"
        )
    out, at, inside = "", 0, False
    while at < len(pattern):
        found = _PROPERTY.match(pattern, at)
        if found is not None:
            chars = _property(found, pattern)
            out += chars if inside else f"[{chars}]"
            at = found.end()
            continue
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            out += _escaped(pattern[at + 1], inside)
            at += 2
            continue
        if char == "[" and not inside:
            inside, out = True, out + char
            for mark in ("^", "]"):  # a bracket that comes first stands for itself
                if pattern.startswith(mark, at + 1):
                    out += mark if mark == "^" else "\\]"
                    at += 1
        elif char == "[" and not pattern.startswith("[:", at):
            out += "\\["
        else:
            inside = inside and char != "]"
            out += char
        at += 1
    return out


def _escaped(char: str, inside: bool) -> str:
    ranges = _ASCII.get(char.lower() if char in "DWS" else char)
    if ranges is None:
        return "\\Z" if char == "z" else f"\\{char}"
    if char in "DWS":
        return f"\\{char}" if inside else f"[^{ranges}]"
    return ranges if inside else f"[{ranges}]"


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern of RE2, to be used with strings.

    Raises:
        RuntimeError: it is none.
    """
    try:
        return re.compile(translated(pattern))
    except re.error as error:
        raise RuntimeError(f"the pattern {pattern!r} is no regular expression: {error}") from None


def _replacement(text: str) -> str | Callable[[re.Match[str]], str]:
    r"""Return what replaces a match: text in which `\0` to `\9` are what groups have matched."""
    if "\\" not in text:
        return lambda match: text
    parts = re.split(r"\\(\d|\\)", text)

    def fill(match: re.Match[str]) -> str:
        given = [
            part if k % 2 == 0 else "\\" if part == "\\" else match[int(part)] or ""
            for k, part in enumerate(parts)
        ]
        return "".join(given)

    return fill


class Regex:
    """A regular expression of RE2.

    Args:
        re_str: the expression.

    Raises:
        RuntimeError: it is none.
    """

    def __init__(self, re_str: str) -> None:
        self.re_str_ = re_str
        self._pattern = compiled(re_str)

    def Sub(self, str: str, repl: str) -> str:
        """Return a text in which all matches are replaced."""
        return self._pattern.sub(_replacement(repl), str)

    def __getstate__(self) -> str:
        return self.re_str_

    def __setstate__(self, state: str) -> None:
        Regex.__init__(self, state)


class RegexTokenizer:
    """Replace by expressions, one after the other, then split at spaces.

    Args:
        patterns: the expressions, of RE2.
        replacements: of each.
        to_lower: whether the letters of ASCII become small before.

    Raises:
        RuntimeError: there are more of one than of the other, or an expression is none.
    """

    def __init__(
        self, patterns: list[str], replacements: list[str], to_lower: bool = False
    ) -> None:
        if len(patterns) != len(replacements):
            raise RuntimeError(
                "Expected `patterns` and `replacements` to have same size! There are "
                f"{len(patterns)} and {len(replacements)}"
            )
        self.patterns_, self.replacements_ = list(patterns), list(replacements)
        self.to_lower_ = to_lower
        self._steps = [
            (compiled(pattern), _replacement(text))
            for pattern, text in zip(patterns, replacements, strict=True)
        ]

    def forward(self, line: str) -> list[str]:
        """Return the tokens of a line."""
        if self.to_lower_:
            line = line.translate(_SMALL)
        for pattern, text in self._steps:
            line = pattern.sub(text, line)
        return [token for token in line.split(" ") if token]

    def __getstate__(self) -> tuple[list[str], list[str], bool]:
        return self.patterns_, self.replacements_, self.to_lower_

    def __setstate__(self, state: tuple[list[str], list[str], bool]) -> None:
        RegexTokenizer.__init__(self, *state)


_SMALL = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
