"""Two ways of running a function's calls, timed in turn until it is known which is to be kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

__all__ = ["ProfitabilityCheck"]

# Calls of each way before the first comparison, before one that may say that a way is clearly
# slower, and before the last.
_FIRST = 6
_MIDDLE = 18
_LAST = 36
# What takes no more than this share has won at the first comparison; nothing has lost so early, as
# a neighbour on the machine may have been in the way of all the first calls.
_WINS = 0.9
_LOSES = 1.25
# What is slower by no more than this share in the end is kept: timers are not more exact.
_EXACT = 0.03
# The share of the time that calls by a slower way may add from the first comparison to the last.
_ADDS = 0.04


class ProfitabilityCheck:
    """Runs the calls of a function by two ways, one call by one and the next by the other.

    Both ways are right, so no call is run twice. Their least times are compared: what else the
    machine does makes calls slower, never faster. From the first comparison on, the slower our way
    seems, the fewer calls it has, so that the function is hardly slower than as it is.

    Attributes:
        open: whether calls are still timed.
        times: the least seconds of a call ours, and as it is; None: not decided yet.
        lost: whether our way is slower.
    """

    clock: Callable[[], float] = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self.open, self.lost = True, False
        self.times: tuple[float, float] | None = None
        self._least = [float("inf"), float("inf")]
        self._turn = self._rounds = 0
        self._length = 2  # of a round: a call ours, one as it is, and others as it is, untimed

    @property
    def times_so_far(self) -> tuple[float, float] | None:
        """The least seconds of a call ours, and as it is; None: too few calls to compare them."""
        return (self._least[0], self._least[1]) if self._rounds >= _FIRST else None

    def run(self, ours: Callable[[], Any], as_it_is: Callable[[], Any]) -> Any:
        """Run a call by the way whose turn it is; one that raises is not counted."""
        turn = self._turn
        way = as_it_is if turn else ours
        start = self.clock()
        result = way()
        if turn < 2:
            self._least[turn] = min(self._least[turn], self.clock() - start)
        if turn == 1:
            self._compare()
        self._turn = (turn + 1) % self._length
        return result

    def _compare(self) -> None:
        self._rounds += 1
        if self._rounds < _FIRST:
            return
        ours, as_it_is = self._least
        clear = self._rounds >= _MIDDLE and ours > _LOSES * as_it_is
        if ours <= _WINS * as_it_is or clear or self._rounds >= _LAST:
            self.open = False
            self.times = (ours, as_it_is)
            self.lost = ours > (1 + _EXACT) * as_it_is
            return
        slower = ours / as_it_is - 1 if as_it_is > 0 else 0.0
        self._length = max(2, math.ceil(slower / _ADDS))
