"""Drive NVIDIA's GPUs: device `cuda`. Native code is imported in `open` and nowhere before."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import tangrad
from tangrad.plugin.compiled import CompilingDriver
from tangrad_cuda.composites import COMPOSITES
from tangrad_cuda.dialect import DIALECT

# Ops that this package defines, and the modules of their kernels.
_OWN_OPS = {
    "_row_norm": "row_norm_kernels",
    "_row_norm_backward": "row_norm_kernels",
    "_resample_linear": "resampling_kernels",
    "_resample_linear_backward": "resampling_kernels",
}
# For the emulator's host engine: sources lie beside it under the digest of what was made of them.
_EMULATOR = "TANGRAD_CUDA_EMULATOR_"
SOURCES = f"{_EMULATOR}SOURCES"
_BLOCKING = "CUDA_LAUNCH_BLOCKING"


class Cuda(CompilingDriver):
    """Serve device `cuda`: contexts and memory by pycuda, kernels by NVRTC."""

    dialect = DIALECT
    composites = COMPOSITES
    sync_debug_mode = 0
    opened = False
    amp_dtypes = ("float16", "bfloat16")
    # {pattern of tests of the conformance kit: why they fail here}.
    expected_failures: ClassVar[dict[str, str]] = {
        **{
            f"test_wrong_call_is_refused_as_its_definition_says[[]{op}-*": "an index out of bounds "
            "is told when the device is waited for, by the op that ran: the one within"
            for op in ("embedding_bag", "index_reduce")
        },
        "test_result_is_that_of_the_reference[[]index_reduce-bfloat16-*": "sums are rounded once "
        "here, and by the reference after each of their terms",
    }

    def probe(self) -> bool | str:
        """Say whether a driver, a GPU, pycuda and NVRTC are there, or which is missing."""
        from tangrad_cuda import availability

        reason = availability.reason()
        return True if reason is None else reason

    def open(self) -> None:
        """Initialise the driver; contexts are made when a device is first used."""
        import pycuda.driver

        from tangrad_cuda import (
            _launch,
            contexts,
            driver_api,
            errors,
            exchange,
            launches,
            memory,
            nvrtc,
            streams,
        )

        nvrtc.library()
        with errors.translated():
            pycuda.driver.init()
        self.api = driver_api.DriverApi()
        self.contexts = contexts.Contexts(pycuda.driver)
        self.memory = memory.DeviceMemory(pycuda.driver, self.contexts)
        self.streams: streams.CudaStreams = streams.CudaStreams(self.contexts, self.api)
        self.pinned = memory.CudaPinnedMemory(pycuda.driver, self.contexts)
        self.launches, self._launch = launches, _launch
        self._capabilities: dict[int, tuple[int, int]] = {}
        # Of a process: what it depends on in the environment is read once.
        self._version: str | None = None
        self._blocking = os.environ.get(_BLOCKING, "0") not in ("", "0")
        self.record_event = self.streams.record_event
        self.query_event = self.streams.query_event
        self.synchronize_event = self._synchronize_event
        self.destroy_event = self.streams.destroy_event
        self.elapsed_time = self.streams.elapsed_time
        self.record_timed_event = self.streams.record_timed_event
        self.enter = self.contexts.enter
        addresses = map(self.api.address, ("cuLaunchKernel", "cuMemcpyAsync"))
        _launch.connect(self, tangrad.dtype, tangrad.Generator, DIALECT.lanes, *addresses)
        exchange.connect(self)
        type(self).opened = True

    def start_profiler(self) -> None:
        """Let the profiler that runs this program record from now on."""
        import pycuda.driver

        self.contexts.enter(self.contexts.current)
        pycuda.driver.start_profiler()

    def stop_profiler(self) -> None:
        """Let it stop."""
        import pycuda.driver

        self.contexts.enter(self.contexts.current)
        pycuda.driver.stop_profiler()

    # --- devices ----------------------------------------------------------------------------------

    def device_count(self) -> int:
        """Return how many GPUs the driver shows."""
        return len(self.contexts)

    def current_device(self) -> int:
        """Return the index that `cuda` without one means in the calling thread."""
        return self.contexts.current

    def set_device(self, index: int) -> None:
        """Choose what `cuda` without an index means in the calling thread.

        Raises:
            RuntimeError: there is no such device.
        """
        self.contexts.current = index

    def properties(self, index: int) -> dict[str, object]:
        """Return what the driver tells of a GPU, by PyTorch's names, and "free_memory"."""
        from tangrad_cuda import properties

        facts = properties.of(self.contexts.device(index))
        return {**facts, "free_memory": self.memory.info(index)[0]}

    def capability(self, index: int) -> tuple[int, int]:
        """Return a GPU's compute capability, such as (9, 0)."""
        found = self._capabilities.get(index)
        if found is None:
            from tangrad_cuda import errors

            with errors.translated():
                major, minor = self.contexts.device(index).compute_capability()
            found = self._capabilities[index] = int(major), int(minor)
        return found

    # --- memory -----------------------------------------------------------------------------------

    def allocate(self, nbytes: int, index: int) -> int:
        """Return the address of new memory of a device."""
        with self.streams.relaxed():
            return self.memory.allocate(nbytes, index)

    def release(self, handle: int, nbytes: int) -> None:
        """Give memory back."""
        with self.streams.relaxed():
            self.memory.release(handle)

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        """Copy bytes to the device, after what its current stream was given."""
        index = self.memory.index_of(handle)
        stream = self.streams.current_stream(index)
        self._called(
            index, lambda: self.streams.copy_from_host(handle, offset, source, stream, None)
        )
        self._wait(index, stream)

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        """Copy bytes from the device, after what its current stream was given."""
        index = self.memory.index_of(handle)
        stream = self.streams.current_stream(index)
        self._called(index, lambda: self.streams.copy_to_host(handle, offset, target, stream, None))
        self._wait(index, stream)
        self.raise_reported(index)

    def copy_within(
        self, handle: int, offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        """Copy bytes within a GPU or between two, in the order of the current streams."""
        index, origin = self.memory.index_of(handle), self.memory.index_of(source)
        start, end = source + source_offset, handle + offset
        stream = self.streams.current_stream(index)
        if index != origin:
            self._copy_between(end, index, start, origin, nbytes)
            return
        self.contexts.enter(index)
        if abs(start - end) >= nbytes:
            self._launch.copy_within(end, start, nbytes, index)
            return
        self._launch.spoil()
        number = self.streams.handle(stream)
        staging = self.memory.allocate(nbytes, index)
        try:
            self.api.call("cuMemcpyAsync", staging, start, nbytes, number)
            self.api.call("cuMemcpyAsync", end, staging, nbytes, number)
            self.streams.synchronize_stream(stream)
        finally:
            self.memory.release(staging)

    def _copy_between(self, end: int, index: int, start: int, origin: int, nbytes: int) -> None:
        self._launch.spoil()
        source, target = map(self.streams.current_stream, (origin, index))
        ready = self.streams.record_event(source)
        self.streams.wait_event(target, ready)
        self.streams.destroy_event(ready)
        self.api.call(
            "cuMemcpyPeerAsync",
            end,
            self.contexts.handle(index),
            start,
            self.contexts.handle(origin),
            nbytes,
            self.streams.handle(target),
        )
        # The source may be written or freed by its own stream only when it has been read.
        done = self.streams.record_event(target)
        self.streams.wait_event(source, done)
        self.streams.destroy_event(done)

    # --- time -------------------------------------------------------------------------------------

    def current_stream(self, index: int) -> int:
        """Return the stream of a device that the calling thread gives work to."""
        return self.streams.current_stream(index)

    def synchronize(self, index: int | None = None) -> None:
        """Wait for all work of a device, and raise what its kernels reported."""
        index = self.contexts.current if index is None else index
        self.contexts.enter(index)
        self._called(index, lambda: self.api.call("cuCtxSynchronize"))
        self._launch.passed(index)
        self.streams.forget_done()
        self.raise_reported(index)

    def _synchronize_event(self, event: int) -> None:
        self.streams.synchronize_event(event)

    def _wait(self, index: int, stream: int) -> None:
        self._called(index, lambda: self.streams.synchronize_stream(stream))
        if not self.streams.several:
            self._launch.passed(index)

    def _called(self, index: int, call: Any) -> None:
        """Call something that waits, and name what was launched if it fails."""
        self._launch.spoil()
        if self.sync_debug_mode:
            _tell_of_waiting(self.sync_debug_mode)
        try:
            call()
        except RuntimeError as error:
            trail = self.launches.trail(index)
            if trail:
                error.args = (f"{error}\n{trail}",)
            raise

    # --- kernels ----------------------------------------------------------------------------------

    def kernel_for(self, op: Any, dtype: Any) -> Callable[..., Any] | None:
        """Return a kernel whose calls are replayed in C once it has been called with their like."""
        found = self._of_own_op(op, dtype) or super().kernel_for(op, dtype)
        # A call's place in a random stream is a number like others where the kernel says so.
        if found is None or (op.definition.random and not hasattr(found, "places_of_numbers")):
            return found
        recorded = self._recorded(found)
        if op.name.startswith("convolution"):
            from tangrad_cuda.backends import cudnn as settings

            if settings.enabled:
                from tangrad_cuda import cudnn

                return cudnn.kernel_for(self, op, dtype, recorded)
        return recorded

    def _of_own_op(self, op: Any, dtype: Any) -> Callable[..., Any] | None:
        """Return the kernel of an op that this package defines."""
        module = _OWN_OPS.get(op.name)
        if module is None:
            return None
        made = importlib.import_module(f"tangrad_cuda.{module}").kernel_for(self, op, dtype)
        return cast("Callable[..., Any]", made)

    def register_kernels(self, register: Any) -> None:
        """Register the copies between layouts and dtypes."""

        def recorded(op: str, kernel: Callable[..., Any], **where: Any) -> None:
            register(op, self._recorded(kernel), **where)

        super().register_kernels(recorded)

    def _recorded(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        if self._blocking:
            return kernel
        recorded: Callable[..., Any] = self._launch.Recorded(
            kernel, getattr(kernel, "places_of_numbers", None)
        )
        return recorded

    def error_cell(self, index: int) -> tuple[int, int]:
        """Return handle and offset of the cell that kernels report to."""
        self._launch.reports()
        return super().error_cell(index)

    def is_error_cell(self, address: int) -> bool:
        """Return whether kernels report to an address."""
        return address in self.reports.cells

    def refused(self, status: int, function: str, index: int) -> Exception:
        """Return the error of a launch or a copy, with what was launched before."""
        from tangrad_cuda import errors

        return errors.of_status(status, function, self.launches.trail(index))

    def architecture(self, index: int) -> str:
        """Return the architecture that NVRTC compiles for: the GPU's, or the newest before it."""
        from tangrad_cuda import nvrtc

        major, minor = self.capability(index)
        wanted = 10 * major + minor
        return f"sm_{max((a for a in nvrtc.architectures() if a <= wanted), default=wanted)}"

    def compiler_version(self) -> str:
        """Return NVRTC's version, its options, and what kind of image it makes."""
        if self._version is None:
            from tangrad_cuda import nvrtc

            made = f"{self._image} {os.environ.get(SOURCES)}"
            self._version = f"nvrtc {nvrtc.version()} {nvrtc.OPTIONS} {made}"
        return self._version

    @cached_property
    def _image(self) -> str:
        """Return "ptx" where machine code would not do, else "cubin".

        A GPU newer than NVRTC takes PTX alone, and so does the emulator; TANGRAD_CUDA_PTX=1 asks
        for it.
        """
        from tangrad_cuda import nvrtc

        major, minor = self.capability(0)
        asked = any(name.startswith((_EMULATOR, "TANGRAD_CUDA_PTX")) for name in os.environ)
        return "ptx" if asked or 10 * major + minor not in nvrtc.architectures() else "cubin"

    def compile(self, source: str, architecture: str) -> bytes:
        """Compile a source by NVRTC.

        Raises:
            CompileError: the compiler refuses it.
        """
        from tangrad_cuda import nvrtc

        made = nvrtc.compile(source, int(architecture.removeprefix("sm_")), self._image)
        folder = os.environ.get(SOURCES)
        if folder:
            _write_source(Path(folder), made, source)
        return made

    def load(self, binary: bytes, index: int) -> int:
        """Return the handle of a module on a device.

        Raises:
            AcceleratorError: the driver refuses the image.
        """
        self.contexts.enter(index)
        with self.streams.relaxed():
            return self.api.made("cuModuleLoadData", binary + b"\0")

    def function(self, module: int, name: str) -> tuple[int, str]:
        """Return a kernel's handle and its name."""
        return self.api.made("cuModuleGetFunction", module, name.encode()), name

    def labelled(self, function: tuple[int, str], label: str) -> tuple[int, str]:
        """Return a kernel whose name tells the op as well."""
        return (function[0], f"{label} ({function[1]})") if label else function

    def launch(
        self,
        function: tuple[int, str],
        blocks: int,
        buffers: Sequence[int],
        numbers: bytes,
        index: int,
    ) -> None:
        """Give a kernel's work to the current stream of a device.

        Raises:
            AcceleratorError: the driver refuses, or an earlier launch failed.
        """
        self.contexts.enter(index)
        self._launch.launch(*function, blocks, list(buffers), numbers, index)
        if self._blocking:
            self._wait(index, self.streams.current_stream(index))
            self._launch.passed(index)


def _tell_of_waiting(mode: int) -> None:
    text = "called a synchronizing CUDA operation (tangrad.cuda.set_sync_debug_mode)"
    if mode == 2:
        raise RuntimeError(text)
    warnings.warn(text, UserWarning, stacklevel=5)


def _write_source(folder: Path, image: bytes, source: str) -> None:
    """Write a source where the emulator's host engine looks for it, whole or not at all."""
    import hashlib

    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(image).hexdigest()
    draft = folder / f".{name}.{os.getpid()}"
    draft.write_text(source)
    draft.replace(folder / f"{name}.cu")
