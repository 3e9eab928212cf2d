"""State what a device has to provide: the contract between a device plugin and the core.

A device is one class, named by an entry point in the group `tangrad.devices`:

    [project.entry-points."tangrad.devices"]
    loopback = "tangrad_loopback.driver:Loopback"

in a pure-Python module that states `API` and imports native code only inside `open`. Memory is
addressed as opaque handle + byte offset; a handle is any integer that fits 64 unsigned bits. The
core's caching allocator calls `allocate` and `release`, so they may be slow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangrad.devices.queues import DeviceStreams, PinnedMemory


class SettingError(ValueError):
    """Raise it from `open` where the user's own setting cannot be met.

    It reaches the user as it is: another device in place of the one that was asked for in that
    way would hide the mistake.
    """


class DeviceDriver:
    """Drive one type of device; subclass this and override what raises NotImplementedError.

    The core makes one instance in a process, calls `probe`, then `open` once, then the rest from
    any thread. What is inherited unchanged is what a device may lack.

    Attributes:
        name: the device type, as in `device("name:0")`; set from the entry point's name.
        host: handles are addresses that the host may read and write. The core then serves memory
            itself and calls none of the memory methods.
        meta: tensors have no data at all.
        accelerator: programs that take whatever accelerator there is may take it. False for what
            is slower than the host: a place to keep things, or a stand-in for tests.
        module: module shown as `tangrad.<name>`, or its name, or None.
        strict: the memory methods refuse, by an exception and without a trace, handles that are
            not theirs and bytes outside of a piece of memory. The kit verifies the promise.
        survives_fork: a child of `fork` may go on using it. If not, the core refuses its memory and
            copies in such a child, with what to do instead; nothing of the driver is called there.
        amp_dtypes: names of the dtypes that autocast may compute in, the default first.
        one_pass: composites call ops that do in one pass what others do in several
            (`nll_loss_total`, `convolution_biased`, `window_average`, ...): for devices that have
            kernels of these, and where a pass more costs more than its work.
        composites: {name: function of a composite's arguments} of what the device does by ops of
            its own: "rms_norm", "group_norm", "interpolate". Called by the core's code, which
            runs on where one returns None.
        record_event, query_event, synchronize_event: None on a device whose work is done when a
            call returns. Else `record_event(stream: int) -> int`, `query_event(event) -> bool`
            and `synchronize_event(event)`, all three.
        destroy_event: None, or `destroy_event(event)`.
        elapsed_time: None, or `elapsed_time(event, later) -> float`: the milliseconds between two
            events that have happened, by the device's own clock. With it, profilers tell when the
            device worked for each op: they call `record_event` on the current stream before and
            after the op's kernel, and ask when both events have happened. Several streams of one
            device share a clock.
        record_timed_event: None where every event tells its time; else what profilers call in
            the place of `record_event`, as other events do without.
        streams: None, or a `DeviceStreams`, set by `open`: threads may choose among streams.
        pinned: None, or a `PinnedMemory`, set by `open`: host memory that copies go faster from.
    """

    host: bool = False
    meta: bool = False
    accelerator: bool = True
    strict: bool = False
    survives_fork: bool = True
    module: Any = None
    amp_dtypes: tuple[str, ...] = ()
    one_pass: bool = False
    composites: Mapping[str, Callable[..., Any]] = MappingProxyType({})

    record_event: Any = None
    query_event: Any = None
    synchronize_event: Any = None
    destroy_event: Any = None
    elapsed_time: Any = None
    record_timed_event: Any = None
    streams: DeviceStreams | None = None
    pinned: PinnedMemory | None = None

    def __init__(self, name: str) -> None:
        self.name = name

    def probe(self) -> bool | str:
        """Return True if the device can be used on this machine, else the reason why not.

        Must be quick, import nothing native and leave no trace: it is asked for by
        `python -m tangrad info` too.
        """
        return True

    def open(self) -> None:
        """Import native code and acquire the device; called once, before anything below."""

    def device_count(self) -> int:
        """Return how many devices of this type there are."""
        return 1

    def current_device(self) -> int:
        """Return the index that a device without one means, in the calling thread."""
        return 0

    def set_device(self, index: int) -> None:
        """Choose what `current_device` returns in the calling thread.

        Raises:
            RuntimeError: there is no such device.
        """
        if not 0 <= index < self.device_count():
            raise RuntimeError(
                f"device '{self.name}:{index}' does not exist: there are {self.device_count()}"
            )

    def allocate(self, nbytes: int, index: int) -> int:
        """Return the handle of a new piece of memory, aligned to at least 64 bytes.

        Raises:
            MemoryError: there is not enough; the allocator then empties its cache and retries.
        """
        raise self.lacks("allocate")

    def release(self, handle: int, nbytes: int) -> None:
        """Give back a piece of memory; may be called while the interpreter shuts down."""
        raise self.lacks("release")

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        """Copy bytes from the host to `handle` + `offset`; done when it returns."""
        raise self.lacks("copy_from_host")

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        """Copy bytes from `handle` + `offset` to the host; done when it returns."""
        raise self.lacks("copy_to_host")

    def copy_within(
        self, handle: int, offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        """Copy bytes between two places of this device, which may overlap.

        Unless it is overridden, they go by way of the host, with one `FallbackWarning`.
        """
        from tangrad.dispatch.resolution import tell_copy_by_host

        tell_copy_by_host(self.name, "uint8", "bytes", ", and its driver no copy_within")
        staging = bytearray(nbytes)
        self.copy_to_host(source, source_offset, memoryview(staging))
        self.copy_from_host(handle, offset, memoryview(staging))

    def synchronize(self, index: int | None = None) -> None:
        """Wait until all work given to a device (None: the current one) is done."""

    def current_stream(self, index: int) -> int:
        """Return the stream that the calling thread gives work to; 0 if there are none."""
        return 0

    def default_stream(self, index: int) -> int:
        """Return the stream that a thread works in until it chooses another; 0 without any."""
        return self.streams.default_stream(index) if self.streams is not None else 0

    def properties(self, index: int) -> dict[str, object]:
        """Return facts such as "name" and "total_memory" (in bytes)."""
        return {"name": self.name}

    def initial_seed(self, index: int) -> int:
        """Return what the default generator starts from in a program that has seeded nothing.

        An unforeseeable seed by default. The generator itself is the core's Philox, so that one
        seed gives the same numbers on every device.
        """
        return int.from_bytes(os.urandom(8), "little")

    def get_num_threads(self) -> int:
        """Return how many threads of the host a kernel uses; for devices on the host."""
        return 1

    def set_num_threads(self, threads: int) -> None:
        """Set how many threads of the host a kernel may use; a device may have one only."""

    def register_kernels(self, register: Any) -> None:
        """Register kernels; called once after `open`. Without any, ops decompose or fall back.

        Args:
            register: `tangrad.plugin.register_kernel` for this device: call it as
                `register(op, kernel, dtypes=..., layout="strided")`.
        """

    def kernel_for(self, op: Any, dtype: Any) -> Callable[..., Any] | None:
        """Return a kernel made on demand for an op and a promoted dtype, or None.

        Asked once for each pair that nothing is registered for; a device that compiles source
        generates it here from `op.definition`.
        """
        return None

    def lacks(self, method: str) -> NotImplementedError:
        """Return the error of a method that every driver of this kind has to define."""
        kind = type(self)
        return NotImplementedError(
            f"device '{self.name}': {kind.__module__}.{kind.__qualname__} does not implement "
            f"{method}(), which every device with memory of its own needs"
        )
