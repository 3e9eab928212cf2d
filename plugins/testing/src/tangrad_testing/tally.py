"""Count by what the ops of a device are computed while a program runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tangrad.plugin import watched_kernels
from tangrad_testing.levels.kernels import REFERENCE


class Tally:
    """Calls by (op, how), how being "kernel", "decomposition" or "host".

    A kernel that a compiled backend entered into the core's table is called without Python: it is
    not counted.

    Attributes:
        calls: how often each (op, how) was called.
        ran: the (op, dtype) whose kernels were called.
        countable: the (op, dtype) whose kernels' calls are counted.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.ran: set[tuple[str, str]] = set()
        self.countable: set[tuple[str, str]] = set()

    @contextmanager
    def watching(self, device: str) -> Iterator[Tally]:
        """Count the calls of a device that is not open yet."""
        with watched_kernels(device, self._watch):
            yield self

    @contextmanager
    def apart(self) -> Iterator[Counter[tuple[str, str]]]:
        """Count the calls of a block by themselves; yields what is filled at its end."""
        before, found = Counter(self.calls), Counter[tuple[str, str]]()
        yield found
        found.update(self.calls - before)

    def _watch(self, op: str, dtype: str, how: str, kernel: Callable[..., Any]) -> Any:
        if how == "kernel" and getattr(kernel, "__module__", None) == REFERENCE:
            how = "host"

        if how == "kernel":
            self.countable.add((op, dtype))

        def counted(*args: Any) -> Any:
            self.calls[op, how] += 1
            if how == "kernel":
                self.ran.add((op, dtype))
            return kernel(*args)

        return counted
