"""Time statements as `timeit` does, with a set number of threads and devices waited for."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.utils.benchmark.measurement import Measurement, TaskSpec

# What reading the clock may add to a measured block.
_LARGEST_OVERHEAD = 1e-4


def timer() -> float:
    """Return the clock; our host's calls are done when they return."""
    return timeit.default_timer()


class Timer:
    """Measure a statement.

    Args:
        stmt: what to measure. setup: run before each measurement, not measured.
        global_setup: for C++, which is not supported.
        timer: the clock.
        globals: names that the statement sees, besides `tangrad` and, for the same, `torch`.
        label: what is compared, the title of a table. sub_label: names the row.
        description: names the column. env: names the environment.
        num_threads: how many threads ops may use meanwhile.
        language: only "python".

    Raises:
        ValueError: another language, or a `global_setup`.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = "python",
    ) -> None:
        if str(language).lower() not in {"py", "python"}:
            raise ValueError(f"Timer: language must be 'python', got {language!r}")
        if global_setup:
            raise ValueError("Timer: global_setup is for C++; put it into setup")
        names = {"tangrad": tangrad, "torch": tangrad} | (globals or {})
        self._timer = timeit.Timer(stmt, setup, timer, names)
        self._clock = timer
        self._task_spec = TaskSpec(
            stmt, setup, global_setup, label, sub_label, description, env, num_threads
        )

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Run the statement `number` times and measure that once, after a short warm-up."""
        with _Threads(self._task_spec.num_threads):
            self._timer.timeit(max(number // 100, 2))
            return self._measurement(number, [self._timer.timeit(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> Any:
        """Raise NotImplementedError, as PyTorch does: use `blocked_autorange`.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> Any:
        """Raise NotImplementedError, as PyTorch does: use `blocked_autorange`.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def blocked_autorange(
        self,
        callback: Callable[[int, float], Any] | None = None,
        min_run_time: float = 0.2,
    ) -> Measurement:
        """Measure blocks of runs until they took long enough.

        A block is so long that reading the clock is less than 0.01 % of it.

        Args:
            callback: told the number of runs and the time of each block.
            min_run_time: seconds that the blocks take together, at least.
        """
        with _Threads(self._task_spec.num_threads):
            number = self._block_size(min_run_time)
            times = self._blocks(number, min_run_time, callback)
        return self._measurement(number, times)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Measure blocks until their quartiles are close together.

        Args:
            threshold: the distance of the quartiles, as a share of the median, to end at.
            min_run_time: seconds between two looks. max_run_time: seconds to end after.
            callback: told the number of runs and the time of each block.
        """
        with _Threads(self._task_spec.num_threads):
            number = self._block_size(0.05)
            times: list[float] = []
            while True:
                times += self._blocks(number, min_run_time, callback)
                measured = self._measurement(number, times)
                settled = len(times) >= 4 and measured.meets_confidence(threshold)
                if settled or sum(times) >= max_run_time:
                    return measured

    def _block_size(self, min_run_time: float) -> int:
        overhead = min(self._timer_overhead() for _ in range(5))
        number = 1
        while True:
            took = self._timer.timeit(number)
            if overhead <= took * _LARGEST_OVERHEAD and took >= min_run_time / 1000:
                return number
            if took > min_run_time:
                return number
            number *= 10

    def _timer_overhead(self) -> float:
        start = self._clock()
        return self._clock() - start

    def _blocks(
        self, number: int, least: float, callback: Callable[[int, float], Any] | None
    ) -> list[float]:
        times: list[float] = []
        total = 0.0
        while total < least or not times:
            took = self._timer.timeit(number)
            times.append(took)
            total += took
            if callback is not None:
                callback(number, took)
        return times

    def _measurement(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, list(times), self._task_spec)


class _Threads:
    """Context manager: set the number of threads."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> None:
        self.previous = tangrad.get_num_threads()
        tangrad.set_num_threads(self.count)

    def __exit__(self, *exc: Any) -> None:
        tangrad.set_num_threads(self.previous)
