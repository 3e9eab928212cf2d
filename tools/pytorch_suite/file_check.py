"""`torch.testing.FileCheck`: ordered checks of what stands in a text, as PyTorch's tests use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_DIRECTIVE = re.compile(r"^\s*#?\s*CHECK(?P<kind>-[A-Z-]*?)?(?P<count>-\d+)?:\s?(?P<text>.*)$")
_KINDS = {
    None: "check",
    "-NEXT": "next",
    "-SAME": "same",
    "-NOT": "not",
    "-DAG": "dag",
    "-COUNT": "count",
    "-COUNT-EXACTLY": "exactly",
    "-SOURCE-HIGHLIGHTED": "highlighted",
    "-REGEX": "regex",
}


class FileCheck:
    """Checks that are made one after the other; each begins where the one before has matched."""

    def __init__(self) -> None:
        self._checks: list[tuple[str, str, int]] = []

    def _add(self, kind: str, text: str, count: int = 1) -> FileCheck:
        self._checks.append((kind, text, count))
        return self

    def check(self, test_string: str) -> FileCheck:
        """Expect a text."""
        return self._add("check", test_string)

    def check_not(self, test_string: str) -> FileCheck:
        """Expect that a text does not stand before what the next check finds."""
        return self._add("not", test_string)

    def check_same(self, test_string: str) -> FileCheck:
        """Expect a text in the line of the last one."""
        return self._add("same", test_string)

    def check_next(self, test_string: str) -> FileCheck:
        """Expect a text in the line after the last one."""
        return self._add("next", test_string)

    def check_count(self, test_string: str, count: int, exactly: bool = False) -> FileCheck:
        """Expect a text so many times, and where it says so, no more."""
        return self._add("exactly" if exactly else "count", test_string, count)

    def check_dag(self, test_string: str) -> FileCheck:
        """Expect a text before or after those of the other checks of this kind beside it."""
        return self._add("dag", test_string)

    def check_source_highlighted(self, test_string: str) -> FileCheck:
        """Expect a text that is underlined, and nothing beside it."""
        return self._add("highlighted", test_string)

    def check_regex(self, test_string: str) -> FileCheck:
        """Expect what matches a regular expression."""
        return self._add("regex", test_string)

    def run(self, checks_file: Any, test_file: Any = None) -> None:
        """Make the checks of a text: those that were added, or those of lines `CHECK: ...`.

        Args:
            checks_file: the text, or where there is another, the lines.
            test_file: the text.

        Raises:
            RuntimeError: one of them fails.
        """
        checks = self._checks
        if test_file is not None:
            checks = list(_directives(str(checks_file)))
            if not checks:
                raise RuntimeError("Could not find any checks")
        _Run(str(checks_file if test_file is None else test_file)).make(checks)


def _directives(text: str) -> Iterator[tuple[str, str, int]]:
    for line in text.splitlines():
        found = _DIRECTIVE.match(line)
        if found is not None:
            count = int((found["count"] or "-1")[1:])
            yield _KINDS[found["kind"] or None], found["text"].strip(), count


class _Run:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def make(self, checks: list[tuple[str, str, int]]) -> None:
        """Make checks in groups: those of one kind that belong together, and what must not be."""
        refused: list[str] = []
        k = 0
        while k < len(checks):
            kind, text, count = checks[k]
            if kind == "not":
                refused.append(text)
                k += 1
                continue
            group = [text]
            while kind == "dag" and k + len(group) < len(checks):
                if checks[k + len(group)][0] != "dag":
                    break
                group.append(checks[k + len(group)][1])
            before = self.at
            begin, self.at = self._found(kind, group, count)
            self._absent(refused, before, begin)
            refused = [text] if kind == "exactly" else []
            k += len(group)
        self._absent(refused, self.at, len(self.text))

    def _absent(self, refused: list[str], begin: int, end: int) -> None:
        for text in refused:
            if text in self.text[begin:end]:
                self._fail(f'Expected to not find "{text}" but found it')

    def _found(self, kind: str, texts: list[str], count: int) -> tuple[int, int]:
        text = texts[0]
        if kind == "dag":
            places = [self._find(one, self.at) for one in texts]
            ends = [place + len(one) for place, one in zip(places, texts, strict=True)]
            return min(places), max(ends)
        if kind in ("count", "exactly"):
            first, at = -1, self.at
            for _ in range(count):
                found = self._find(text, at)
                first, at = found if first < 0 else first, found + len(text)
            return first if first >= 0 else at, at
        if kind == "regex":
            match = re.compile(text).search(self.text, self.at)
            if match is None:
                self._fail(f'Expected to find regex "{text}" but did not find it')
            assert match is not None
            return match.span()
        if kind == "highlighted":
            return self._highlighted(text)
        found = self._find(text, self.at)
        lines = self.text.count("\n", self.at, found)
        if kind in ("same", "next") and lines != (kind == "next"):
            self._fail(f'Expected to find "{text}" in the {kind} line')
        return found, found + len(text)

    def _highlighted(self, text: str) -> tuple[int, int]:
        found = self._find(text, self.at)
        while True:
            column = found - (self.text.rfind("\n", 0, found) + 1)
            end = self.text.find("\n", found)
            marks = self.text[end + 1 :].partition("\n")[0]
            under = marks[column : column + len(text)]
            beside = marks[max(0, column - 1) : column] + marks[column + len(text) :][:1]
            if under == "~" * len(text) and "~" not in beside:
                return found, end + 1 + len(marks)
            found = self._find(text, found + 1)

    def _find(self, text: str, at: int) -> int:
        found = self.text.find(text, at)
        if found < 0:
            self._fail(f'Expected to find "{text}" but did not find it')
        return found

    def _fail(self, why: str) -> None:
        raise RuntimeError(f"{why}\nSearched string:\n{self.text[self.at :]}\nFrom {self.text}")
