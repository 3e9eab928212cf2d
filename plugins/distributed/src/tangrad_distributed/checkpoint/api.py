"""What checkpoints raise."""

from __future__ import annotations

import pickle
import traceback


class CheckpointException(BaseException):
    """Tell what failed on which rank, on all ranks.

    Like PyTorch's it is no `Exception`: code that swallows those must not go on with a model that
    is half loaded.

    Args:
        msg: which step failed.
        failures: rank to (exception, its traceback as text).
    """

    def __init__(self, msg: str, failures: dict[int, tuple[BaseException, str]]) -> None:
        super().__init__(msg, failures)
        self._message, self._failures = msg, failures

    @property
    def failures(self) -> dict[int, tuple[BaseException, str]]:
        """Return rank to what was raised there."""
        return self._failures

    def __str__(self) -> str:
        parts = [f"CheckpointException ranks: {sorted(self._failures)}, {self._message}"]
        for rank, (error, trace) in sorted(self._failures.items()):
            parts.append(f"rank {rank}: {type(error).__name__}: {error}\n{trace}")
        return "\n".join(parts)


def wrapped(error: BaseException) -> tuple[BaseException, str]:
    """Return an exception that can be sent to other ranks, and its traceback as text."""
    trace = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return error.with_traceback(None), trace
