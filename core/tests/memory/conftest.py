"""A fake driver, and the compiled allocator: the installed one, or one built for these tests."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "tangrad"
C_FILES = ("allocator.c", "allocator_host.c", "allocator_report.c")


class DriverFailure(Exception):
    """Stand for whatever a real driver may raise."""


class FakeDriver:
    """Play a device with streams: check every call, and fail when told to.

    Work submitted to a stream is a count; `passed` says how much of it is done. An event stands
    for the work submitted before it. What must not happen is noted in `violations`, because an
    exception inside `release` or `destroy_event` would be swallowed.
    """

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.capacity = capacity
        self.segments: dict[int, int] = {}
        self.events: dict[int, tuple[int, int]] = {}
        self.submitted: Counter[int] = Counter()
        self.passed: defaultdict[int, int] = defaultdict(int)
        self.calls: list[str] = []
        self.violations: list[str] = []
        self.on_release: Callable[[int], None] = lambda handle: None
        self.serial = 0
        self.countdown = 0
        self.failure: type[Exception] = DriverFailure
        self.failures = 0

    def fail_at_call(self, countdown: int, failure: type[Exception] = DriverFailure) -> None:
        """Make the `countdown`-th call from now raise; 0 disarms."""
        self.countdown, self.failure = countdown, failure

    def _begin(self, name: str) -> int:
        self.calls.append(name)
        if self.countdown:
            self.countdown -= 1
            if not self.countdown:
                self.failures += 1
                raise self.failure(f"{name} failed on demand")
        self.serial += 1
        return self.serial

    def allocate(self, nbytes: int) -> int:
        handle = self._begin("allocate")
        if sum(self.segments.values()) + nbytes > self.capacity:
            raise MemoryError(f"the fake device has {self.capacity} bytes")
        self.segments[handle] = nbytes
        return handle

    def release(self, handle: int, nbytes: int) -> None:
        self.calls.append("release")
        if self.segments.pop(handle, None) != nbytes:
            self.violations.append(f"release of {handle} with {nbytes} bytes")
        self.on_release(handle)

    def record_event(self, stream: int) -> int:
        event = self._begin("record_event")
        self.events[event] = (stream, self.submitted[stream])
        return event

    def query_event(self, event: int) -> bool:
        self._begin("query_event")
        stream, position = self.events[event]
        return self.passed[stream] >= position

    def synchronize_event(self, event: int) -> None:
        self._begin("synchronize_event")
        stream, position = self.events[event]
        self.passed[stream] = max(self.passed[stream], position)

    def destroy_event(self, event: int) -> None:
        self.calls.append("destroy_event")
        stream, position = self.events.pop(event, (0, 0))
        if not event or self.passed[stream] < position:
            self.violations.append(f"destroy_event of {event} before it passed")


def build_extension(folder: Path) -> ModuleType:
    """Compile the allocator into a module of its own."""
    build = pytest.importorskip("Cython.Build")
    setuptools = pytest.importorskip("setuptools")
    source = folder / "_allocator_alone.pyx"
    source.write_text('# cython: language_level=3\ninclude "native/memory/allocator.pxi"\n')
    extension = setuptools.Extension(
        "_allocator_alone",
        [str(source), *(str(SOURCES / "native" / "memory" / name) for name in C_FILES)],
        include_dirs=[str(SOURCES)],
        extra_compile_args=["-std=c11"],
    )
    modules = build.cythonize([extension], include_path=[str(SOURCES)], quiet=True)
    command = setuptools.Distribution({"ext_modules": modules}).get_command_obj("build_ext")
    command.build_lib = command.build_temp = str(folder)
    command.ensure_finalized()
    command.run()
    path = folder / command.get_ext_filename("_allocator_alone")
    spec = importlib.util.spec_from_file_location("_allocator_alone", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Give the module that has `CachingAllocator`."""
    try:
        installed = importlib.import_module("tangrad._C")
    except ImportError:
        installed = sys
    if hasattr(installed, "CachingAllocator"):
        return installed
    return build_extension(tmp_path_factory.mktemp("allocator"))


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture(scope="session")
def driver_failure() -> type[Exception]:
    return DriverFailure


@pytest.fixture(scope="session")
def new_driver() -> type[FakeDriver]:
    return FakeDriver
