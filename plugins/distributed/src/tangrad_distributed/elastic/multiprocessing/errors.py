"""What became of a launcher's ranks."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
WHERE = "TORCHELASTIC_ERROR_FILE"


@dataclass
class ProcessFailure:
    """Tell how a rank failed.

    Attributes:
        local_rank: on its machine.
        pid: of its process.
        exitcode: its status; negative for the signal that ended it.
        error_file: where `record` wrote what it raised, if it did.
    """

    local_rank: int
    pid: int
    exitcode: int
    error_file: str = ""
    message: Any = ""
    timestamp: int = field(default_factory=lambda: int(time.time()))

    def signal_name(self) -> str:
        """Return the name of the signal that ended it, or "<N/A>"."""
        return signal.Signals(-self.exitcode).name if self.exitcode < 0 else "<N/A>"


class ChildFailedError(Exception):
    """Tell which ranks failed.

    Args:
        name: of what they ran.
        failures: rank to how it failed.
    """

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        self.name, self.failures = name, failures
        told = [
            f"rank {rank} (process {failure.pid}) ended with status {failure.exitcode}"
            for rank, failure in sorted(failures.items())
        ]
        super().__init__(f"{name} FAILED: " + "; ".join(told))

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """Return the rank that failed first, and how."""
        rank = min(self.failures, key=lambda rank: self.failures[rank].timestamp)
        return rank, self.failures[rank]


class ErrorHandler:
    """Write what a rank raises into the file that TORCHELASTIC_ERROR_FILE names, if it does."""

    def initialize(self) -> None:
        """Do nothing: tracebacks are on already."""

    def record_exception(self, e: BaseException) -> None:
        """Write an exception with its traceback."""
        path = os.environ.get(WHERE)
        if not path:
            return
        extra = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
        told = {"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": extra}}
        with open(path, "w") as file:
            json.dump(told, file)


def get_error_handler() -> ErrorHandler:
    """Return what writes errors."""
    return ErrorHandler()


def record(fn: Callable[..., T], error_handler: ErrorHandler | None = None) -> Callable[..., T]:
    """Return a function that writes what `fn` raises into a file, if one is named, and raises it.

    Args:
        fn: what a rank does, mostly its `main`.
        error_handler: writes it.
    """

    @functools.wraps(fn)
    def recorded(*args: Any, **kwargs: Any) -> T:
        handler = error_handler or get_error_handler()
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as error:
            if error.code:
                handler.record_exception(error)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return recorded
