"""PyTorch's `profiler`: what is recorded when, and what is made of it."""

from __future__ import annotations

import enum
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from tangrad.autograd import DeviceType as DeviceType
from tangrad_profiler.averages import EventList, averages_of, events_of
from tangrad_profiler.recording import STEP, Recording, attach, pause
from tangrad_profiler.trace import Trace


class ProfilerAction(enum.Enum):
    """What the profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4


class ProfilerActivity(enum.Enum):
    """Kinds of work that may be recorded; what a device does is seen by its own package."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


def supported_activities() -> set[ProfilerActivity]:
    """Return the activities that this installation records: the host's, and those of open devices.

    A device is among them whose driver has `elapsed_time`.
    """
    from tangrad_profiler.kernels import timed_devices

    known = ProfilerActivity.__members__
    return {ProfilerActivity.CPU} | {
        known.get(device.type.upper(), ProfilerActivity.PrivateUse1)
        for device in timed_devices().values()
    }


def kineto_available() -> bool:
    """Return whether profiles with schedules and exports can be made: always."""
    return True


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """Return a schedule: per cycle `wait` steps of nothing, `warmup` and `active` ones.

    Args:
        repeat: how many cycles; 0 for as many as there are.
        skip_first: steps before the first cycle.
        skip_first_wait: not 0: the first cycle does not wait.

    Raises:
        AssertionError: a number is negative, or no step is active.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} "
            f"(need >= 0), active={active} (need > 0), repeat={repeat} (need >= 0), "
            f"skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn(
            "Profiler won't be using warmup, this can skew profiler results", stacklevel=2
        )
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step += (wait if skip_first_wait else 0) - skip_first
        if repeat and step >= repeat * cycle:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str,
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = False,
) -> Callable[[Any], None]:
    """Return a handler that writes each trace into a folder, under names that do not collide.

    Raises:
        RuntimeError: the folder cannot be made (when the first trace is ready).
    """
    ending = ".pt.trace.json" + (".gz" if use_gzip else "")

    def handler(prof: Any) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError("Can't create directory: " + dir_name) from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}{ending}"))

    return handler


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile:
    """Record what a program does, and tell where time and memory go.

    Args:
        activities: what is recorded; all that is supported by default.
        schedule: function from the number of a step to a `ProfilerAction`; everything is recorded
            without one.
        on_trace_ready: called with the profiler when a cycle of the schedule, or all, is recorded.
        record_shapes: shapes and dtypes of arguments.
        profile_memory: every change of every device's memory.
        with_stack: the lines of the program that called.
        with_flops: counts of operations of ops with a formula; implies `record_shapes`.
        with_modules: the modules that are running.
        execution_trace_observer: an `ExecutionTraceObserver` that is started and stopped along.
        acc_events: keep the events of earlier cycles, too.

    Raises:
        RuntimeError: another profiler is running (when it is entered).
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        self.activities = set(ProfilerActivity if activities is None else activities)
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes or with_flops
        self.profile_memory, self.with_stack = profile_memory, with_stack
        self.with_flops, self.with_modules = with_flops, with_modules
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = self._action(0)
        self._observer = execution_trace_observer
        self._new_trace_id = custom_trace_id_callback
        self._metadata: dict[str, Any] = {}
        self._preset: dict[str, Any] = {}
        self._recording: Recording | None = None
        self._step: Any = None
        self._traces: list[Trace] = []

    # --- the life of a profile ---------------------------------------------------------------

    def _action(self, step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(step)

    def start(self) -> None:
        """Begin, as entering does."""
        if self._observer is not None:
            self._observer.start()
        if self.current_action in _RECORDING:
            self._begin()
        self._enter_step()

    def stop(self) -> None:
        """End, as leaving does."""
        self._leave_step()
        if self._recording is not None:
            self._end()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        if self._observer is not None:
            self._observer.stop()

    def step(self) -> None:
        """Say that a step of the program ends and the next one begins."""
        self._leave_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self._action(self.step_num)
        saves = before is ProfilerAction.RECORD_AND_SAVE
        if before in _RECORDING and (saves or self.current_action not in _RECORDING):
            if not saves:
                warnings.warn("Incorrect schedule: RECORD followed by NONE or WARMUP", stacklevel=2)
            if self._recording is not None:
                self._end()
            if saves and self.on_trace_ready is not None:
                self.on_trace_ready(self)
        if self.current_action in _RECORDING and self._recording is None:
            self._begin()
        self._enter_step()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    start_trace, stop_trace = start, stop

    def prepare_trace(self) -> None:
        """Do what can be done before recording begins: nothing."""

    def _begin(self) -> None:
        recording = Recording(
            self.record_shapes,
            self.profile_memory,
            self.with_stack,
            self.with_modules,
            kernels=self.activities != {ProfilerActivity.CPU},
        )
        recording.options["flops"] = self.with_flops
        recording.begin()
        self._recording = recording

    def _end(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            if not self.acc_events:
                self._traces.clear()
            self._traces.append(recording.end())

    def _enter_step(self) -> None:
        from tangrad_profiler import _record

        if self.schedule is not None and self._recording is not None:
            self._step = _record.begin(f"ProfilerStep#{self.step_num}", STEP)

    def _leave_step(self) -> None:
        from tangrad_profiler import _record

        if self._step:
            _record.end(self._step)
        self._step = None

    def toggle_collection_dynamic(self, enable: bool, activities: Any) -> None:
        """Record no more, or again, within the profile."""
        from tangrad_profiler import _record

        if enable and not _record.attached():
            attach()
        elif not enable and _record.attached():
            pause()

    # --- what was recorded -------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """What was recorded last.

        Raises:
            AssertionError: nothing was.
        """
        if not self._traces:
            raise AssertionError("Profiler must be stopped, and have recorded, before it is asked")
        return self._traces[-1]

    @property
    def profiler(self) -> profile:
        """The object that has `function_events` and `kineto_results` in PyTorch: this one."""
        return self

    @property
    def function_events(self) -> EventList:
        """The events."""
        return self.events()

    def events(self) -> EventList:
        """Return all events as objects."""
        found = events_of(self._traces[0] if self._traces else self.trace)
        for trace in self._traces[1:]:
            found.extend(events_of(trace))
        return found

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Return the averages by name, and by input shapes and the innermost lines if asked.

        Args:
            group_by_stack_n: how many lines, of what was recorded with `with_stack`.
        """
        return averages_of(self.trace, group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Write the trace for Chrome's and Perfetto's viewers; packed if the name ends in .gz."""
        from tangrad_profiler.exports import chrome_trace

        chrome_trace(self.trace, path, self._metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write a line per stack for flame graphs; needs `with_stack`."""
        from tangrad_profiler.exports import stacks

        stacks(self.trace, path, metric)

    def export_speedscope(self, path: str) -> None:
        """Write the file format of speedscope."""
        from tangrad_profiler.exports import speedscope

        speedscope(self.trace, path)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write memory over time; needs `profile_memory`."""
        from tangrad_profiler.memory_timeline import memory_timeline

        memory_timeline(self.trace, path, device)

    def export_html(self, path: str, title: str = "tangrad profile") -> None:
        """Write one page that shows the profile, without a server or a network."""
        from tangrad_profiler.page import write_page

        write_page(self.trace, path, title)

    def save(self, path: str) -> None:
        """Write the record file that `tangrad.profiler.load` reads."""
        from tangrad_profiler.file import save

        save(self.trace, path)

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the trace file."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a text that is JSON to the trace file."""
        self._metadata[key] = json.loads(value)

    def preset_metadata_json(self, key: str, value: str) -> None:
        """Add the same before recording begins."""
        self.add_metadata_json(key, value)

    def get_trace_id(self) -> str | None:
        """Return the name of the trace, by the function that was given for it."""
        return self._new_trace_id() if self._new_trace_id is not None else None

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Set the function that names traces."""
        self._new_trace_id = callback


def load(path: str | os.PathLike[str]) -> profile:
    """Read a record file; the result answers what a finished `profile` does.

    A file that was cut off gives what its whole blocks hold, and says so in `trace.partial`.

    Raises:
        RecordError: this is no record file, or one of a newer format.
    """
    from tangrad_profiler.file import read

    loaded = profile()
    loaded._traces = [read(os.fspath(path))]
    return loaded
