"""Regular expressions whose matching takes time in proportion to pattern and text.

A file's pattern is a stranger's, and Python's `re` tries one way after the other: `(a+)+$` takes
years for forty letters. The standard's patterns are those of RE2, which have no references back
and none of what looks around. All ways through such a pattern can be followed at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["Pattern"]

_MOST_STEPS = 20_000  # of a pattern whose repetitions are written out
_MOST_TIMES = 1000  # as in RE2
_MOST_WORK = 50_000_000  # steps times characters

_CATEGORIES = {
    "CATEGORY_DIGIT": re.compile(r"\d"),
    "CATEGORY_NOT_DIGIT": re.compile(r"\D"),
    "CATEGORY_SPACE": re.compile(r"\s"),
    "CATEGORY_NOT_SPACE": re.compile(r"\S"),
    "CATEGORY_WORD": re.compile(r"\w"),
    "CATEGORY_NOT_WORD": re.compile(r"\W"),
}
_PLACES: dict[str, Callable[[str, int], bool]] = {
    "AT_BEGINNING": lambda text, at: at == 0,
    "AT_BEGINNING_STRING": lambda text, at: at == 0,
    "AT_END": lambda text, at: at == len(text),
    "AT_END_STRING": lambda text, at: at == len(text),
    "AT_BOUNDARY": lambda text, at: _word(text, at - 1) != _word(text, at),
    "AT_NON_BOUNDARY": lambda text, at: _word(text, at - 1) == _word(text, at),
}


def _word(text: str, at: int) -> bool:
    return 0 <= at < len(text) and bool(re.match(r"\w", text[at]))


class Pattern:
    """A regular expression.

    Args:
        pattern: in the syntax that RE2 and Python share.

    Raises:
        ValueError: it is none, is too long with its repetitions written out, or refers back.
    """

    def __init__(self, pattern: str) -> None:
        try:
            tree = import_module("re._parser").parse(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{pattern[:60]!r} is no regular expression: {error}") from None
        flags = tree.state.flags
        self.folds, self.all_lines = bool(flags & re.I), bool(flags & re.S)
        # Each step is a kind and what belongs to it: a test of a character, a test of a place, or
        # where the pattern goes on.
        self.steps: list[tuple[str, Any]] = []
        try:
            self._write(tree)
        except RecursionError:
            raise ValueError("the regular expression is nested too deeply") from None
        self._add("found", None)

    def _add(self, kind: str, value: Any) -> int:
        if len(self.steps) >= _MOST_STEPS:
            raise ValueError(f"the regular expression has more than {_MOST_STEPS} steps")
        self.steps.append((kind, value))
        return len(self.steps) - 1

    def _write(self, tree: Any) -> None:
        for op, value in tree:
            name = str(op)
            if name in {"MAX_REPEAT", "MIN_REPEAT"}:
                self._repeat(*value)
            elif name == "SUBPATTERN":
                _, added, removed, inner = value
                if added or removed:
                    raise ValueError("flags within a regular expression are not supported")
                self._write(inner)
            elif name == "BRANCH":
                self._branch(value[1])
            elif name == "AT":
                self._add("place", _PLACES[str(value)])
            else:
                self._add("character", self._test(name, value))

    def _repeat(self, least: int, most: Any, inner: Any) -> None:
        if least > _MOST_TIMES or (str(most) != "MAXREPEAT" and most > _MOST_TIMES):
            raise ValueError(f"a repetition of more than {_MOST_TIMES} times is not supported")
        for _ in range(least):
            start = len(self.steps)
            self._write(inner)
            if len(self.steps) == start:  # nothing, however often
                return
        if str(most) == "MAXREPEAT":
            split = self._add("either", None)
            self._write(inner)
            self._add("either", (split,))
            self.steps[split] = ("either", (split + 1, len(self.steps)))
            return
        splits = []
        for _ in range(int(most) - least):
            splits.append(self._add("either", None))
            self._write(inner)
        for split in splits:
            self.steps[split] = ("either", (split + 1, len(self.steps)))

    def _branch(self, ways: Any) -> None:
        ends = []
        for way in ways[:-1]:
            split = self._add("either", None)
            self._write(way)
            ends.append(self._add("either", None))
            self.steps[split] = ("either", (split + 1, len(self.steps)))
        self._write(ways[-1])
        for end in ends:
            self.steps[end] = ("either", (len(self.steps),))

    def _test(self, name: str, value: Any) -> Callable[[str], bool]:
        if name == "ANY":
            return (lambda c: True) if self.all_lines else (lambda c: c != "\n")
        if name == "IN":
            negated = str(value[0][0]) == "NEGATE"
            tests = [self._test(str(op), part) for op, part in value[int(negated) :]]
            return lambda c: any(test(c) for test in tests) != negated
        if name in {"LITERAL", "NOT_LITERAL"}:
            wanted, same = chr(value), name == "LITERAL"
            forms = {wanted, wanted.lower(), wanted.upper()} if self.folds else {wanted}
            return lambda c: (c in forms) == same
        if name == "RANGE":
            low, high = value
            if self.folds:
                return lambda c: any(low <= ord(d[0]) <= high for d in (c, c.lower(), c.upper()))
            return lambda c: low <= ord(c) <= high
        if name == "CATEGORY":
            category = _CATEGORIES[str(value)]
            return lambda c: category.match(c) is not None
        raise ValueError(f"a regular expression with {name} is not supported, as in RE2")

    def _ahead(self, starts: set[int], text: str, at: int) -> set[int]:
        """Return the steps that take a character or end, reached without taking one."""
        waiting, seen, found = list(starts), set(starts), set()
        while waiting:
            number = waiting.pop()
            kind, value = self.steps[number]
            if kind == "either":
                following = value
            elif kind == "place":
                following = (number + 1,) if value(text, at) else ()
            else:
                found.add(number)
                continue
            fresh = [step for step in following if step not in seen]
            seen.update(fresh)
            waiting += fresh
        return found

    def matches(self, text: str) -> bool:
        """Return whether the whole of a text matches.

        Raises:
            ValueError: text and pattern are too long for each other.
        """
        if len(self.steps) * len(text) > _MOST_WORK:
            raise ValueError(
                f"a text of {len(text)} characters is too long for a pattern of {len(self.steps)} "
                "steps"
            )
        at_once = self._ahead({0}, text, 0)
        for at, character in enumerate(text, 1):
            taken = {
                number + 1
                for number in at_once
                if self.steps[number][0] == "character" and self.steps[number][1](character)
            }
            if not taken:
                return False
            at_once = self._ahead(taken, text, at)
        return any(self.steps[number][0] == "found" for number in at_once)
