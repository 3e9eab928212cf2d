"""A compiled function: its recordings, the choice among them, and the way back to eager."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin import get_intercept, is_intercepted, phase, phase_is_watched
from tangrad_jit._guards import Choosing, Pattern
from tangrad_jit.capture.errors import CaptureError, Unsettled
from tangrad_jit.capture.guarded_state import Key
from tangrad_jit.capture.sources import Source
from tangrad_jit.compiling import stance
from tangrad_jit.compiling.executable import Executable
from tangrad_jit.compiling.recording import Recording, record, tensors_among
from tangrad_jit.compiling.rest import Rest
from tangrad_jit.compiling.sizes import Dimension, Sizes, size_changes
from tangrad_jit.compiling.verdict import NO_FASTER
from tangrad_jit.graph.printer import text_of
from tangrad_jit.run.plan import Arena

if TYPE_CHECKING:
    from tangrad_jit.compiling.queued import QueuedCalls
    from tangrad_jit.compiling.size_family import SizeFamily

__all__ = ["Compiled", "Settings", "is_compiling", "outside_of_compiling", "refuse"]

_compiling = threading.local()
_log = logging.getLogger("tangrad.compile")


def is_compiling() -> bool:
    """Return whether this thread is recording a function for `compile`."""
    return bool(getattr(_compiling, "depth", 0))


@contextmanager
def _compiling_at(depth: int) -> Iterator[None]:
    before, _compiling.depth = getattr(_compiling, "depth", 0), depth
    try:
        yield
    finally:
        _compiling.depth = before


def outside_of_compiling() -> AbstractContextManager[None]:
    """Have `is_compiling` say no in the body: code that no graph contains is not compiled."""
    return _compiling_at(0)


def refuse(reason: str) -> None:
    """Say, while a run is recorded, that it can be no graph.

    Raises:
        CaptureError: the run was to be one.
    """
    if is_compiling():
        _compiling.recorder.refuse(reason)


class Settings:
    """How a function is compiled.

    Attributes:
        fullgraph: refuse what cannot be one graph, in place of running it as it is.
        backend: takes (graph module, example inputs) and returns what runs; None: ours.
        limit: how many recordings there may be before the function runs as it is.
        check: share of the calls that run both ways.
        fast: also rewrite in ways that change the last bits.
        measure: compare the time with eager's in the first calls.
        dynamic: whose sizes may differ without being recordings; see `Sizes`.
    """

    def __init__(
        self,
        fullgraph: bool = False,
        backend: Callable[..., Any] | None = None,
        limit: int = 8,
        check: float = 0.0,
        fast: bool = False,
        measure: bool = True,
        dynamic: bool | None = None,
    ) -> None:
        self.fullgraph, self.backend, self.limit = fullgraph, backend, limit
        self.check, self.fast, self.measure, self.dynamic = check, fast, measure, dynamic


class Compiled(Choosing):
    """Stands for a function.

    Attributes:
        executables: one per recording, latest used first.
        events: what has happened, for `compile.explain`.
        families: recordings that serve other sizes.
        queued: runs the calls that are no graph, or None where they run as they are.
    """

    stands_for = "function"  # what those who look at the guarded state of a program follow
    unsettled_runs = 3
    sizes_kept = 64
    families_tried = 6

    def __init__(self, function: Callable[..., Any], settings: Settings) -> None:
        self.function, self.settings = function, settings
        self.executables: list[Executable] = []
        self.families: list[SizeFamily] = []
        self.events: list[str] = []
        self.off = ""
        self._called = False  # under a stance that tells the first call
        self._known: dict[Any, Any] = {}
        self._unsettled = 0
        self._lock = threading.RLock()
        self._arena = Arena()  # its graphs run one after the other
        self._recorded = self._untold = 0
        self._rest: Rest | None = None  # while a graph that was no faster is out of use
        self._last: Rest | None = None
        self._sizes = Sizes(settings.dynamic)
        self._varying: dict[Key, Source] = {}
        self._fixed: dict[Key, Source] = {}
        self.queued = self._new_queued()

    def _new_queued(self) -> QueuedCalls | None:
        if self.settings.fullgraph or self.settings.backend is not None:
            return None
        from tangrad_jit.compiling.queued import QueuedCalls

        return QueuedCalls(self.function, self.settings.measure, self.events)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function, by a graph where one fits."""
        return self.serve(args, kwargs)

    def _as_it_is(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function, with its pointwise work queued where that is allowed and pays."""
        if self._rest is not None and self._rest.is_over(args, kwargs) and not is_intercepted():
            self.events.append("decides again")
            self.off, self._recorded = "", 0
            self._last, self._rest = self._rest, None
            return self.serve(args, kwargs)
        if is_intercepted():
            # A profiler is to see what else would run; all others see the program's own ops.
            watched = not self.off and get_intercept() is None and phase_is_watched()
            return self._watched(args, kwargs) if watched else self.function(*args, **kwargs)
        if self.queued is None or self.queued.dropped:
            self.settled = bool(self.off) and self._rest is None
            return self.function(*args, **kwargs)
        return self.queued.run(args, kwargs)

    def _watched(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call by the graph that serves it, as one phase of a profile."""
        for executable in self.executables:
            tensors = executable.fits(args, kwargs)
            if tensors is not None and not executable.doubtful(tensors):
                kernels = sum(len(plan.groups) for plan in executable.plans[:1])
                told = f"{kernels} kernel{'s' * (kernels != 1)} of {len(executable.forward.nodes)}"
                with phase(f"compiled {self.name}: {told} steps"):
                    return executable.run(tensors)
        return self.function(*args, **kwargs)

    def _execute(self, executable: Executable, tensors: list[Any], args: Any, kwargs: Any) -> Any:
        if executable.trial is None:
            return executable.run(tensors)
        result = executable.trial.run(executable, tensors, self.function, args, kwargs)
        if executable.dropped:
            self._drop(executable)
            if executable.lost and not self.executables:
                self._rest = Rest(executable, self._last)
            self._turn_off(executable.dropped)
        return result

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if stance.current != stance.DEFAULT and not self._may_record(args, kwargs):
            return self.function(*args, **kwargs)
        if not self._lock.acquire(blocking=False):
            return self.function(*args, **kwargs)  # another thread records, or this one does
        try:
            if is_compiling():
                return self.function(*args, **kwargs)
            return self._record_alone(args, kwargs)
        finally:
            self._lock.release()

    def _may_record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether `compiler.set_stance` lets a call be recorded.

        Raises:
            RuntimeError: it is set to raise, and no graph serves the call.
        """
        if stance.current == "fail_on_recompile":
            why = self.executables[0].why_not(args, kwargs) if self.executables else "its first"
            raise RuntimeError(
                f"compile: the call of {self.name} ({why}) wants a recording, and set_stance says "
                f"'fail_on_recompile'"
            )
        if stance.current == "eager_on_recompile":
            return False
        first, self._called = not self._called, True
        return not first

    def _record_alone(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        cause = ""
        if self.executables:
            cause = self.executables[0].why_not(args, kwargs)
            self._varying.update(self.executables[0].changed_numbers(args, kwargs))
        changes = self._size_changes(args, kwargs)
        for family in self.families if changes else ():
            start = time.perf_counter()
            made = family.executable_for(args, kwargs)
            if made is not None:
                made.seconds = family.seconds = time.perf_counter() - start
                self._keep(made)
                tensors = made.fits(args, kwargs)
                if tensors is not None and not made.doubtful(tensors):
                    return self._execute(made, tensors, args, kwargs)
        free = self._are_free(changes, args, kwargs)
        if not free and self._recorded >= self.settings.limit:
            self._turn_off(f"{self._recorded} recordings, and still none fits: {cause}")
            return self.function(*args, **kwargs)
        start = time.perf_counter()
        symbolic = self._sizes.are_symbolic(changes) and self.settings.backend is None
        before = tangrad.get_rng_state() if self.settings.backend is not None else None
        recording = self._recorded_run(args, kwargs, symbolic)
        if recording.failure is not None:
            self._failed(recording.failure)
            return recording.result
        result = recording.result
        with _compiling_at(int(self.settings.backend is not None)):  # as others' back ends ask
            executable = Executable(recording, self.settings, arena=self._arena)
        executable.seconds = time.perf_counter() - start
        self._recorded += not free
        why = f", as {cause}" if cause else ""
        what = "prepared for other sizes" if free else "recorded"
        self.events.append(f"{what} in {1e3 * executable.seconds:.1f} ms{why}")
        if symbolic and changes:
            self._join(executable, args, kwargs)
        self._keep(executable)
        if before is not None and executable.may_run_again():
            return self._run_by_backend(executable, args, kwargs, before, result)
        return result

    def _run_by_backend(
        self, executable: Executable, args: Any, kwargs: Any, before: Any, result: Any
    ) -> Any:
        """Return what a back end gives for the call that was recorded, with the same numbers."""
        tensors = executable.fits(args, kwargs)
        if tensors is None or executable.doubtful(tensors):
            return result
        tangrad.set_rng_state(before)
        return self._execute(executable, tensors, args, kwargs)

    def _keep(self, executable: Executable) -> None:
        # Other threads walk the list: it is replaced, not changed.
        self.executables = [executable, *self.executables][: self.sizes_kept]

    def _join(self, executable: Executable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have a recording of other sizes serve all, where the new one is the same program."""
        from tangrad_jit.compiling.size_family import SizeFamily
        from tangrad_jit.compiling.size_terms import Disagreement, Unknown

        for other in self.executables:
            if self._untold >= self.families_tried or other.recording.sizes is None:
                continue
            if not size_changes(other.pattern, executable.pattern):
                continue
            if not other.holds_outside(args, kwargs):
                continue
            try:
                family = SizeFamily(other, executable, self.settings)
            except (Unknown, Disagreement) as reason:
                self._untold += 1
                self.events.append(f"holds for its sizes alone: {reason}")
                continue
            self.families = [family, *self.families]
            told = ", ".join(
                f"{name} = {' = '.join(f'{path}.shape[{dim}]' for path, dim in dims)}"
                for name, dims in family.symbols.items()
            )
            self.events.append(f"is the same graph, and holds for other sizes: {told}")
            return

    def _drop(self, executable: Executable) -> None:
        self.executables = [other for other in self.executables if other is not executable]

    def _put_first(self, executable: Executable) -> None:
        others = [other for other in self.executables if other is not executable]
        if len(others) < len(self.executables):
            self.executables = [executable, *others]

    def _size_changes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[set[Dimension]]:
        """Return how a call differs from each that has a graph, where sizes alone differ."""
        if not self.executables:
            return []
        pattern = Pattern(args, kwargs)
        found = []
        for executable in self.executables:
            changed = size_changes(executable.pattern, pattern)
            if changed and executable.holds_outside(args, kwargs):
                found.append(changed)
        return found

    def _are_free(
        self, changes: list[set[Dimension]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Return whether a call differs from one that has a graph in dynamic dimensions alone."""
        tensors = dict(tensors_among(args, "args") + tensors_among(kwargs, "kwargs"))
        return self._sizes.are_free(changes, tensors)

    def _recorded_run(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], sizes: bool = False
    ) -> Recording:
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
                self._varying,
                self._fixed,
                sizes,
            )
        except CaptureError as error:
            self.events.append(f"refused: {error}")
            raise
        finally:
            _compiling.depth -= 1
        self._known.update(recording.executed)
        return recording

    def _confirm(
        self,
        executable: Executable,
        given: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a call at numbers that a graph has not seen, and compare what is recorded of it."""
        if is_compiling() or not self._lock.acquire(blocking=False):
            return self.function(*args, **kwargs)
        try:
            places = executable.doubtful(given)
            numbers = [executable.numbers.sources[k] for k in places]
            told = ", ".join(f"{s.name} = {s.get(args, kwargs)!r}" for s in numbers)
            symbolic = executable.recording.sizes is not None or bool(self.families)
            recording = self._recorded_run(args, kwargs, symbolic)
            found = recording.failure or text_of(recording.graph, places=False)
            if found == executable.numbers.text:
                executable.numbers.unconfirmed.difference_update(places)
                self.events.append(f"a run at {told} is the same graph")
                return recording.result
            self._drop(executable)
            why = found if isinstance(found, CaptureError) else "is another graph"
            self._fixed.update((source.key, source) for source in numbers)
            self.events.append(f"a run at {told}: {why}; each value is a recording")
            return recording.result
        finally:
            self._lock.release()

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
        said = any(NO_FASTER in event for event in self.events)
        self.off = f"runs as it is: {reason}"
        self.events.append(self.off)
        if NO_FASTER in reason and not said:
            _log.warning("%s: %s: runs as it is", self.name, NO_FASTER)
        if "recordings" in reason:
            warnings.warn(f"compile: {self.name} {self.off}", UserWarning, stacklevel=5)

    def reset(self) -> None:
        """Forget all recordings."""
        with self._lock:
            self.executables, self.families = [], []
            self.events.clear()
            self.off, self.settled = "", False
            self._recorded = self._unsettled = self._untold = 0
            self._rest = self._last = None
            self._known.clear()
            self._sizes.clear()
            self._varying.clear()
            self._fixed.clear()
            self.queued = self._new_queued()

    @property
    def name(self) -> str:
        """The function's name, as a graph's."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return name if name.isidentifier() else "graph"


def _follow(recorder: Any) -> None:
    """Let `refuse` reach a recorder."""
    _compiling.recorder = recorder
