"""A progress line for loops: rich's where it is installed, plain text otherwise, none in pipes."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

_WIDTH = 24
_EVERY = 0.1  # seconds between two states of the line


def progress(
    items: Iterable[Any],
    description: str = "",
    *,
    total: int | None = None,
    show: Any = None,
    file: TextIO | None = None,
) -> Iterator[Any]:
    """Yield the items of a loop, such as the batches of a loader, and show how far it is.

    Args:
        items: what is looped over.
        description: stands in front.
        total: how many there are; by default `len(items)`, if it has one.
        show: called between items, returns figures to stand behind as a dict of names and
            numbers, such as the loss. It is called for each state that is shown, not for each
            item, so that its numbers may be read from tensors.
        file: where the line is written, standard error by default. Where that is no terminal,
            nothing is written.

    Yields:
        The items.
    """
    target = sys.stderr if file is None else file
    if total is None:
        try:
            total = len(items)  # type: ignore[arg-type]
        except TypeError:
            total = None
    if not (hasattr(target, "isatty") and target.isatty()):
        yield from items
        return
    line = _rich_line if importlib.util.find_spec("rich") else _PlainLine
    yield from _shown(items, line(description, total, target), show)


def _shown(items: Iterable[Any], line: Any, show: Any) -> Iterator[Any]:
    done, last = 0, float("-inf")
    try:
        for item in items:
            yield item
            done += 1
            if time.monotonic() - last >= _EVERY:
                line.update(done, _figures(show))
                last = time.monotonic()
    finally:
        line.close(done, _figures(show) if done else "")


def _figures(show: Any) -> str:
    if show is None:
        return ""
    return "  ".join(f"{name} {_number(value)}" for name, value in show().items())


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class _PlainLine:
    """A line that is written over itself."""

    def __init__(self, description: str, total: int | None, file: TextIO) -> None:
        self.description, self.total, self.file = description, total, file
        self.started = time.monotonic()
        self.wide = 0

    def update(self, done: int, figures: str) -> None:
        """Write the line for a number of items."""
        words = [self.description] if self.description else []
        if self.total:
            share = min(done / self.total, 1.0)
            full = int(share * _WIDTH)
            words.append("█" * full + "░" * (_WIDTH - full))
        words.append(f"{done:,}/{self.total:,}" if self.total else f"{done:,}")
        seconds = time.monotonic() - self.started
        words.append(f"{done / seconds:,.1f}/s" if seconds > 0 else "")
        text = "  ".join(word for word in (*words, figures) if word)
        self.file.write("\r" + text.ljust(self.wide))
        self.file.flush()
        self.wide = len(text)

    def close(self, done: int, figures: str) -> None:
        """Write the last state and end the line."""
        self.update(done, figures)
        self.file.write("\n")
        self.file.flush()


def _rich_line(description: str, total: int | None, file: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(_WIDTH),
        MofNCompleteColumn(),
        Remaining(),
        TextColumn("{task.fields[figures]}"),
        console=Console(file=file),
    )
    task = bar.add_task(description, total=total, figures="")
    bar.start()
    return _RichLine(bar, task)


class _RichLine:
    """The same by rich."""

    def __init__(self, bar: Any, task: Any) -> None:
        self.bar, self.task = bar, task

    def update(self, done: int, figures: str) -> None:
        """Show a number of items."""
        self.bar.update(self.task, completed=done, figures=figures)

    def close(self, done: int, figures: str) -> None:
        """Show the last state and stop."""
        self.update(done, figures)
        self.bar.stop()
