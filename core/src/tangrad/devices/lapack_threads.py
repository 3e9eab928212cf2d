"""The threads of the LAPACK behind NumPy: one for small matrices."""

from __future__ import annotations

from threading import Lock
from typing import Any

__all__ = ["LARGE", "OneThread", "one_thread_of"]

# Sizes from which LAPACK may use threads of its own. They wait for each other in loops, which on a
# busy machine takes hundreds of times as long as small matrices do on one thread.
LARGE = 256
_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads",
)


class OneThread:
    """Has OpenBLAS use one thread while any call is within; its number is the process's.

    Args:
        get, put: functions of the library that tell and set how many threads it uses.
    """

    def __init__(self, get: Any, put: Any) -> None:
        self.get, self.put = get, put
        self._lock, self._within, self._before = Lock(), 0, 1

    def __enter__(self) -> None:
        with self._lock:
            self._within += 1
            if self._within == 1:
                self._before = self.get()
                if self._before > 1:
                    self.put(1)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if self._within == 0 and self._before > 1:
                self.put(self._before)


def one_thread_of(library: Any) -> OneThread | None:
    """Return what limits a library to one thread; None where it is not OpenBLAS.

    Args:
        library: opened by ctypes.
    """
    import ctypes

    for pattern in _NAMES:
        get, put = (getattr(library, pattern.format(x), None) for x in ("get", "set"))
        if get is not None and put is not None:
            get.restype, get.argtypes = ctypes.c_int, ()
            put.restype, put.argtypes = None, (ctypes.c_int,)
            return OneThread(get, put)
    return None
