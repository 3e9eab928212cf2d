"""A progress bar for training loops that tells what the loop waits for."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from typing import IO, Any, Generic, TypeVar

from tangrad_profiler.counting import counters

T = TypeVar("T")


class progress(Generic[T]):
    """Iterate over a loader, and show rate, remaining time, waiting for data, and memory.

    On a terminal a line is drawn over and over; elsewhere a line is printed now and then.

    Args:
        loader: what is iterated over; its length, if it has one, gives the remaining time.
        description: stands in front.
        total: items, where the loader does not say.
        interval: seconds between two updates; ten times that where there is no terminal.
        file: where to write, standard error by default.

    Attributes:
        waited: seconds that the loop waited for the loader. count: items so far.
    """

    def __init__(
        self,
        loader: Iterable[T],
        description: str = "",
        *,
        total: int | None = None,
        interval: float = 0.2,
        file: IO[str] | None = None,
    ) -> None:
        self.loader, self.description = loader, description
        self.total = total if total is not None else _length(loader)
        self._file = sys.stderr if file is None else file
        self._terminal = _is_terminal(self._file)
        self._interval = interval if self._terminal else 10 * interval
        self._width = 0  # of what stands on the terminal's line
        self._notes: dict[str, Any] = {}
        self.count, self.waited = 0, 0.0

    def __len__(self) -> int:
        if self.total is None:
            raise TypeError("progress: the loader has no length")
        return self.total

    def note(self, **values: Any) -> None:
        """Show values behind the line, such as the loss; a tensor is read when it is shown."""
        self._notes.update(values)

    def __iter__(self) -> Iterator[T]:
        self.count, self.waited = 0, 0.0
        self._began = self._shown = time.perf_counter()
        source = iter(self.loader)
        try:
            while True:
                asked = time.perf_counter()
                try:
                    item = next(source)
                except StopIteration:
                    return
                now = time.perf_counter()
                self.waited += now - asked
                yield item
                self.count += 1
                if now - self._shown >= self._interval:
                    self._shown = now
                    self._show("\r" if self._terminal else "", "" if self._terminal else "\n")
        finally:
            self._show("\r" if self._terminal else "", "\n")

    def _show(self, start: str, end: str) -> None:
        text = self.line()
        if self._terminal:  # a line that is broken, or longer than the next one, stays there
            text = text[: shutil.get_terminal_size().columns - 1]
            text, self._width = text.ljust(self._width), len(text)
        try:
            self._file.write(start + text + end)
            self._file.flush()
        except (OSError, ValueError):
            self._interval = float("inf")  # a closed pipe is no reason to end the training

    def line(self) -> str:
        """Return what is shown now."""
        passed = max(time.perf_counter() - self._began, 1e-9)
        rate = self.count / passed
        parts = [f"{self.count}" + (f"/{self.total}" if self.total is not None else "")]
        if self.total:
            parts.append(_bar(self.count / self.total))
            if rate > 0:
                parts.append(f"{_clock((self.total - self.count) / rate)} left")
        parts += [f"{rate:.1f}/s", f"data {100 * self.waited / passed:.0f}%"]
        parts.append(f"memory {counters().live_bytes / 2**20:.0f} MiB")
        parts += [f"{name} {_value(value)}" for name, value in self._notes.items()]
        return (f"{self.description}: " if self.description else "") + "  ".join(parts)


def _is_terminal(file: IO[str]) -> bool:
    try:
        return file.isatty()
    except (AttributeError, ValueError):  # no file, or a closed one
        return False


def _length(loader: Iterable[Any]) -> int | None:
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        return None


def _bar(share: float, width: int = 20) -> str:
    done = min(width, int(share * width))
    return "[" + "#" * done + "." * (width - done) + "]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _value(value: Any) -> str:
    number = value.item() if hasattr(value, "item") else value
    return f"{number:.4g}" if isinstance(number, float) else str(number)
