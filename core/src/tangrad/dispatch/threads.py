"""Have a function called in all threads: those that are there, and those that begin."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from tangrad import _C


class in_all_threads:
    """Context manager: a function is called in every thread of Python but this one.

    In threads that begin meanwhile it is called before anything else; in those that are there at
    their next call or return of a function, and so again when the context is left. It has to find
    out by itself whether that is still so. A thread that has a profile function of its own
    (`sys.setprofile`) and was there before is left alone.

    Args:
        function: called without arguments; what it raises is told, and goes no further.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def __enter__(self) -> None:
        self._before = threading.getprofile()
        threading.setprofile(self._begin)
        _C.ask_threads(self.function)

    def __exit__(self, *exc: object) -> None:
        if threading.getprofile() == self._begin:
            threading.setprofile(self._before)
        _C.ask_threads(self.function)

    def _begin(self, frame: Any, event: Any, argument: Any) -> None:
        sys.setprofile(self._before)
        self.function()
        if self._before is not None:
            self._before(frame, event, argument)
