"""PyTorch's older interface: `autograd.profiler`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from tangrad_profiler.averages import EventList, FunctionEvent
from tangrad_profiler.exports import chrome_trace
from tangrad_profiler.profiling import profile as _profile
from tangrad_profiler.recording import record_function

__all__ = [
    "EnforceUnique",
    "EventList",
    "FunctionEvent",
    "KinetoStepTracker",
    "MemRecordsAcc",
    "emit_itt",
    "emit_nvtx",
    "load_nvprof",
    "parse_nvprof_trace",
    "profile",
    "record_function",
]


class profile:
    """Record everything between entering and leaving.

    Args:
        enabled: False makes this do nothing.
        record_shapes, with_flops, profile_memory, with_stack, with_modules: as those of
            `tangrad.profiler.profile`.

    Raises:
        RuntimeError: it is entered a second time, or another profiler is running.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Any = None,
        post_processing_timeout_s: float | None = None,
        activity_filters: Any = None,
    ) -> None:
        self.enabled, self.entered = enabled, False
        self._profile = _profile(
            record_shapes=record_shapes,
            with_flops=with_flops,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_modules=with_modules,
            custom_trace_id_callback=custom_trace_id_callback,
        )

    def config(self, create_trace_id: bool = False) -> Any:
        """Return what it records."""
        names = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
        return {name: getattr(self._profile, name) for name in names}

    def create_trace_id(self) -> str:
        """Return the name of the trace, by the function that was given for it, or a new one."""
        return self._profile.get_trace_id() or self.default_trace_id()

    def default_trace_id(self) -> str:
        """Return a name that no other trace has."""
        from uuid import uuid4

        return uuid4().hex.upper()

    def toggle_collection_dynamic(self, enabled: bool, activities: Any) -> None:
        """Record no more, or again, within the profile."""
        self._profile.toggle_collection_dynamic(enabled, activities)

    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self._profile.start()
        return self

    def __exit__(self, *exc: object) -> Literal[False]:
        if self.enabled:
            self._profile.stop()
        return False

    def _finished(self) -> _profile:
        if not self._profile._traces:
            raise RuntimeError("Profiler didn't finish running")
        return self._profile

    @property
    def function_events(self) -> EventList:
        """The events; an error before it is left."""
        return self._finished().events()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds in all events."""
        return self.key_averages().self_cpu_time_total

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Return the averages by name, and by input shapes and the innermost lines if asked."""
        return self._finished().key_averages(group_by_input_shape, group_by_stack_n)

    def table(self, *args: Any, **kwargs: Any) -> str:
        """Return the events as a table; see `EventList.table`."""
        return self.function_events.table(*args, **kwargs)

    def total_average(self) -> Any:
        """Return all events in one sum."""
        return self.function_events.total_average()

    def export_chrome_trace(
        self, path: str, metadata: dict[str, Any] | None = None, use_python_export: bool = False
    ) -> None:
        """Write the trace for Chrome's and Perfetto's viewers, with further entries if given."""
        chrome_trace(self._finished().trace, path, metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write a line per stack for flame graphs."""
        self._finished().export_stacks(path, metric)

    def __str__(self) -> str:
        return self.table() if self._profile._traces else "<unfinished torch.autograd.profile>"

    __repr__ = __str__


class _Null:
    """A context in which nothing happens: the library that it would tell is not there."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> _Null:
        return self

    def __exit__(self, *exc: object) -> Literal[False]:
        return False


class emit_nvtx(_Null):
    """Name ops for NVIDIA's tools; a null context, for their library is not loaded."""


class emit_itt(_Null):
    """Name ops for Intel's tools; a null context, for their library is not loaded."""


class EnforceUnique:
    """Refuse a pair that was seen before."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def see(self, *key: Any) -> None:
        """Note a key.

        Raises:
            RuntimeError: it was noted before.
        """
        if key in self.seen:
            raise RuntimeError("duplicate key: " + str(key))
        self.seen.add(key)


class KinetoStepTracker:
    """Count the steps of several who say when theirs end; the largest number is the step."""

    _steps: ClassVar[dict[str, int]] = {}
    _current = 0

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Let somebody count from the present step."""
        cls._steps[requester] = cls._current

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forget somebody; returns whether they were known."""
        return cls._steps.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Count a step of somebody, and return the step of all."""
        cls._steps[requester] = cls._steps.get(requester, cls._current) + 1
        cls._current = max(cls._current, *cls._steps.values())
        return cls._current

    @classmethod
    def current_step(cls) -> int:
        """Return the step of all."""
        return cls._current


class MemRecordsAcc:
    """Find the records of memory of a time.

    Args:
        mem_records: (record, ...) tuples whose first item has `start_ns()`.
    """

    def __init__(self, mem_records: Any) -> None:
        self._records = sorted(mem_records, key=lambda record: record[0].start_ns())

    def in_interval(self, start_us: float, end_us: float) -> Any:
        """Yield those that are within the time."""
        for record in self._records:
            if start_us * 1000 <= record[0].start_ns() <= end_us * 1000:
                yield record


def parse_nvprof_trace(path: str) -> Any:
    """Refuse to read a file of nvprof, which NVIDIA has withdrawn.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(
        f"{path}: files of nvprof, which NVIDIA has withdrawn, cannot be read; record with "
        "tangrad.profiler.profile"
    )


def load_nvprof(path: str) -> EventList:
    """Refuse to read a file of nvprof; see `parse_nvprof_trace`."""
    return EventList(parse_nvprof_trace(path))
