"""A compiled function: its recordings, the choice among them, and the way back to eager."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tangrad.plugin import is_intercepted
from tangrad_jit.capture.errors import CaptureError, Unsettled
from tangrad_jit.compiling.executable import Executable
from tangrad_jit.compiling.queued import QueuedCalls
from tangrad_jit.compiling.recording import record

__all__ = ["Compiled", "Settings", "is_compiling", "refuse"]

_compiling = threading.local()


def is_compiling() -> bool:
    """Return whether this thread is recording a function for `compile`."""
    return bool(getattr(_compiling, "depth", 0))


def refuse(reason: str) -> None:
    """Say, while a run is recorded, that it can be no graph.

    Raises:
        CaptureError: the run was to be one.
    """
    if is_compiling():
        _compiling.recorder.refuse(reason)


@dataclass
class Settings:
    """How a function is compiled.

    Attributes:
        fullgraph: refuse what cannot be one graph, in place of running it as it is.
        backend: takes (graph module, example inputs) and returns what runs; None: ours.
        limit: how many recordings there may be before the function runs as it is.
        check: share of the calls that run both ways.
        fast: also rewrite in ways that change the last bits.
        measure: compare the time with eager's in the first calls.
    """

    fullgraph: bool = False
    backend: Callable[..., Any] | None = None
    limit: int = 8
    check: float = 0.0
    fast: bool = False
    measure: bool = True


class Compiled:
    """Stands for a function.

    Attributes:
        executables: one per recording, latest used first.
        events: what has happened, for `compile.explain`.
        queued: runs the calls that are no graph, or None where they run as they are.
    """

    unsettled_runs = 3

    def __init__(self, function: Callable[..., Any], settings: Settings) -> None:
        self.function, self.settings = function, settings
        self.executables: list[Executable] = []
        self.events: list[str] = []
        self.off: str = ""
        self._known: dict[Any, Any] = {}
        self._unsettled = 0
        self._lock = threading.RLock()
        self._recorded = 0
        self.queued = self._new_queued()

    def _new_queued(self) -> QueuedCalls | None:
        if self.settings.fullgraph or self.settings.backend is not None:
            return None
        return QueuedCalls(self.function, self.settings.measure, self.events)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function, by a graph where one fits."""
        if self.off or is_intercepted():
            return self._as_it_is(args, kwargs)
        for executable in self.executables:
            tensors = executable.fits(args, kwargs)
            if tensors is not None:
                return self._execute(executable, tensors, args, kwargs)
        return self._record(args, kwargs)

    def _as_it_is(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function, with its pointwise work queued where that is allowed and pays."""
        if self.queued is None or is_intercepted():
            return self.function(*args, **kwargs)
        return self.queued.run(args, kwargs)

    def _execute(self, executable: Executable, tensors: list[Any], args: Any, kwargs: Any) -> Any:
        if executable.trial is None:
            return executable.run(tensors)
        result = executable.trial.run(executable, tensors, self.function, args, kwargs)
        if executable.dropped:
            self.executables.remove(executable)
            self._turn_off(executable.dropped)
        return result

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._lock.acquire(blocking=False):
            return self.function(*args, **kwargs)  # another thread records, or this one does
        try:
            if is_compiling():
                return self.function(*args, **kwargs)
            return self._record_alone(args, kwargs)
        finally:
            self._lock.release()

    def _record_alone(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        cause = self.executables[0].why_not(args, kwargs) if self.executables else ""
        if self._recorded >= self.settings.limit:
            self._turn_off(f"{self._recorded} recordings, and still none fits: {cause}")
            return self.function(*args, **kwargs)
        start = time.perf_counter()
        _compiling.depth = getattr(_compiling, "depth", 0) + 1
        try:
            recording = record(
                self.function,
                args,
                kwargs,
                self.settings.fullgraph,
                self._known,
                self.name,
                _follow,
            )
        except CaptureError as error:
            self.events.append(f"refused: {error}")
            raise
        finally:
            _compiling.depth -= 1
        self._known.update(recording.executed)
        if recording.failure is not None:
            self._failed(recording.failure)
            return recording.result
        result = recording.result
        executable = Executable(recording, self.settings)
        executable.seconds = time.perf_counter() - start
        self._recorded += 1
        why = f", as {cause}" if cause else ""
        self.events.append(f"recorded in {1e3 * executable.seconds:.1f} ms{why}")
        self.executables.insert(0, executable)
        return result

    def _failed(self, failure: CaptureError) -> None:
        self.events.append(str(failure))
        if isinstance(failure, Unsettled):
            self._unsettled += 1
            if self._unsettled < self.unsettled_runs:
                return
            if self.settings.fullgraph:
                raise CaptureError(
                    f"each of {self._unsettled} runs changed what the next one reads, and a graph "
                    f"cannot: {failure}"
                ) from failure
        self.off = f"runs as it is: {failure}"

    def _turn_off(self, reason: str) -> None:
        self.off = f"runs as it is: {reason}"
        self.events.append(self.off)
        if "recordings" in reason:
            warnings.warn(f"compile: {self.name} {self.off}", UserWarning, stacklevel=5)

    def reset(self) -> None:
        """Forget all recordings."""
        with self._lock:
            self.executables.clear()
            self.events.clear()
            self.off = ""
            self._recorded = self._unsettled = 0
            self._known.clear()
            self.queued = self._new_queued()

    @property
    def name(self) -> str:
        """The function's name, as a graph's."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return name if name.isidentifier() else "graph"


def _follow(recorder: Any) -> None:
    """Let `refuse` reach a recorder."""
    _compiling.recorder = recorder
