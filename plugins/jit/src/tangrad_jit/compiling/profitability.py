"""Two ways of running a function's calls, timed in turn until it is known which is to be kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["ProfitabilityCheck"]

# Calls of each way before the first comparison, and before the last.
_FIRST = 6
_LAST = 36
# What takes no more than this share has won at the first comparison; nothing has lost before the
# last, as a neighbour on the machine may have been in the way of all the first calls.
_WINS = 0.9
# What is slower by no more than this share in the end is kept: timers are not more exact.
_EXACT = 0.03


class ProfitabilityCheck:
    """Runs the calls of a function by two ways, one call by one and the next by the other.

    Both ways are right, so no call is run twice. Their least times are compared: what else the
    machine does makes calls slower, never faster.

    Attributes:
        open: whether calls are still timed.
        times: the least seconds of a call ours, and as it is; None: not compared yet.
        lost: whether our way is slower.
    """

    clock: Callable[[], float] = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self.open, self.lost = True, False
        self.times: tuple[float, float] | None = None
        self._least = [float("inf"), float("inf")]
        self._calls = 0

    def run(self, ours: Callable[[], Any], as_it_is: Callable[[], Any]) -> Any:
        """Run a call by the way whose turn it is; one that raises is not counted."""
        turn = self._calls % 2
        way = as_it_is if turn else ours
        start = self.clock()
        result = way()
        self._least[turn] = min(self._least[turn], self.clock() - start)
        self._calls += 1
        if not turn or self._calls < 2 * _FIRST:
            return result
        ours_least, least = self._least
        if ours_least <= _WINS * least or self._calls >= 2 * _LAST:
            self.open = False
            self.times = (ours_least, least)
            self.lost = ours_least > (1 + _EXACT) * least
        return result
