"""Keep what the kernels of device "c99" are asked to do: the steps of a program, and its memory."""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tangrad
from tangrad.plugin import allocator_of, location
from tangrad_export.errors import ExportError
from tangrad_export.program.buffers import Buffer, Ref

__all__ = ["NOWHERE", "Origin", "Recording", "current"]

_threads = threading.local()
# Of the cell in which kernels note an index out of bounds: below all memory.
_ERRORS = 1 << 39


class Origin(NamedTuple):
    """Where a step comes from.

    Attributes:
        module: path of the module whose code called the op.
        where: the program's line, "file:number".
        backward: whether it is of the derivative of that call.
    """

    module: str = ""
    where: str = ""
    backward: bool = False


NOWHERE = Origin()


def current() -> Recording:
    """Return the recording of this thread.

    Raises:
        RuntimeError: there is none: the device has neither memory nor kernels by itself.
    """
    found = getattr(_threads, "recording", None)
    if found is None:
        raise RuntimeError(
            "device 'c99' has no memory of its own: tangrad.export.c lays programs out on it"
        )
    recording: Recording = found
    return recording


class Recording:
    """The steps of a program in their order, and the buffers that they use.

    Memory is told apart by its addresses. What ops give is kept until the end, so that no two of
    their results have the same; what a kernel allocates for itself is told apart by the op.

    Attributes:
        steps: what was asked for.
        buffers: what memory there is.
        origin: of the steps to come.
        weights_stay: whether nothing changes the weights between two calls.
        begun: {momentum: a cell}: 1 where a step was taken before, of momenta whose first step is
            another one.
        fixed: weights that are constants of the program, whose values it may look at.
    """

    weights_stay = True

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.buffers: list[Buffer] = []
        self.origin = NOWHERE
        self._device = tangrad.device("c99")
        self._kept: list[Any] = []
        self._starts: list[int] = []
        self._found: dict[int, Buffer] = {}
        self._passing: set[int] = set()
        self._held: set[int] = set()
        self._ops: list[tuple[str, str]] = []
        self._written: list[set[Buffer]] = []
        self.errors: Buffer | None = None
        self.begun: dict[Buffer, Ref] = {}
        self.fixed: set[Buffer] = set()

    def __enter__(self) -> Recording:
        self._before = getattr(_threads, "recording", None)
        _threads.recording = self
        return self

    def __exit__(self, *exc: object) -> None:
        _threads.recording = self._before

    # --- memory -----------------------------------------------------------------------------------

    def new_buffer(self, nbytes: int, kind: str = "arena", name: str = "") -> Buffer:
        """Return a buffer without an address."""
        buffer = Buffer(len(self.buffers), nbytes, kind, name)
        self.buffers.append(buffer)
        return buffer

    def bind(self, value: Any, kind: str, name: str) -> Any:
        """Return a tensor of the device that stands for one of the host's.

        Args:
            value: the tensor of the host, whose geometry it has if it is contiguous.
            kind: of the buffer.
            name: of the buffer.
        """
        with tangrad.no_grad():
            made = tangrad.empty(tuple(value.shape), dtype=value.dtype, device=self._device)
        buffer = self.keep(made)
        buffer.kind, buffer.name, buffer.value = kind, name, value
        buffer.dtype = value.dtype.name
        return made

    def keep(self, tensor: Any) -> Buffer:
        """Keep the memory of a tensor until the end, and return its buffer."""
        handle, offset = location(tensor)
        address = handle + offset - tensor.storage_offset() * tensor.itemsize
        nbytes = max(1, tensor.untyped_storage().nbytes())
        known = self._found.get(address)
        if known is not None:
            self._passing.discard(address)
            known.nbytes = max(known.nbytes, nbytes)
            if address not in self._held:
                self._held.add(address)
                self._kept.append(tensor)
            return known
        self._held.add(address)
        self._kept.append(tensor)
        return self._add(address, nbytes)

    def upload(self, address: int, nbytes: int) -> Buffer:
        """Return the buffer at an address that the host writes to, which lasts."""
        buffer = self.ref_at(address, "uint8").buffer
        start = self._starts[bisect_right(self._starts, address) - 1]
        self._passing.discard(start)
        buffer.nbytes = max(buffer.nbytes, address - start + nbytes)
        return buffer

    def _add(self, address: int, nbytes: int) -> Buffer:
        if address not in self._found:
            insort(self._starts, address)
        buffer = self._found[address] = self.new_buffer(nbytes)
        return buffer

    def ref(self, tensor: Any) -> Ref:
        """Return the place of a tensor's first element, which is kept: nothing else gets it."""
        self.keep(tensor)
        handle, offset = location(tensor)
        return self.ref_at(handle + offset, tensor.dtype.name)

    def ref_or_none(self, address: int, dtype: str) -> Ref | None:
        """Return the place at an address; None of an absent tensor, or one without elements."""
        try:
            return None if address == 0 else self.ref_at(address, dtype)
        except LookupError:
            return None

    def ref_at(self, address: int, dtype: str) -> Ref:
        """Return the place at an address.

        Raises:
            LookupError: there is no memory.
        """
        if address == _ERRORS:
            return Ref(self.error_cell(), 0, dtype)
        at = bisect_right(self._starts, address) - 1
        if at >= 0:
            start = self._starts[at]
            buffer = self._found[start]
            if address < start + buffer.nbytes and start not in self._passing:
                return Ref(buffer, address - start, dtype)
        start, nbytes = self._block(address)
        if start in self._passing and self._found[start].nbytes >= nbytes:
            return Ref(self._found[start], address - start, dtype)
        buffer = self._add(start, nbytes)
        self._passing.add(start)
        return Ref(buffer, address - start, dtype)

    def _block(self, address: int) -> tuple[int, int]:
        """Return where the allocator's block begins that has an address, and its size."""
        for segment in allocator_of(self._device).snapshot():
            if not segment["address"] <= address < segment["address"] + segment["total_size"]:
                continue
            for block in segment["blocks"]:
                if block["address"] <= address < block["address"] + block["size"]:
                    return block["address"], block["requested_size"] or block["size"]
        raise LookupError("device 'c99': a kernel uses memory that was not allocated")

    error_address = _ERRORS

    def constant(self, value: Any) -> Any:
        """Return a tensor of the device with the values of one of the host, which last."""
        made = self.bind(value, "constant", "constant")
        self.keep(made).value = _bytes_of(value)
        return made

    def known_at(self, address: int, nbytes: int) -> bytes | None:
        """Return bytes at an address if they are a constant's that no step writes, else None."""
        buffer, start, _ = self.ref_at(address, "uint8")
        writers = [s for s in self.steps if buffer in s.written_buffers()]
        content = None
        if buffer in self.fixed and not writers:
            content = _bytes_of(buffer.value)
        elif len(writers) == 1:  # of numbers that the program has made a tensor of
            content = getattr(writers[0], "content", None)
            start -= writers[0].refs[0].offset
        found = None if content is None else content[max(0, start) : start + nbytes]
        return found if found and len(found) == nbytes else None

    def constant_ref(self, array: Any, name: str) -> Ref:
        """Return the place of a constant without a tensor."""
        buffer = self.new_buffer(array.nbytes, "constant", name)
        buffer.value, buffer.dtype = array.tobytes(), str(array.dtype)
        return Ref(buffer, 0, buffer.dtype)

    def error_cell(self) -> Buffer:
        """Return the cell in which kernels note an index out of bounds."""
        if self.errors is None:
            self.errors = self.new_buffer(64, "error")
        return self.errors

    # --- ops --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def op(self, name: str, dtype: str, written: Sequence[Any] = ()) -> Iterator[None]:
        """Note which op's kernel is asked, and what it writes."""
        self._ops.append((name, dtype))
        self._written.append({self.keep(t) for t in written})
        try:
            yield
        finally:
            self._ops.pop()
            self._written.pop()
            if not self._ops:
                for address in self._passing:
                    self._starts.remove(address)
                    del self._found[address]
                self._passing.clear()

    @property
    def title(self) -> str:
        """The name of the op whose kernel is asked."""
        return self._ops[0][0] if self._ops else "copy_"

    def add(self, step: Any) -> None:
        """Add a step."""
        step.title, step.origin = self.title, self.origin
        # What is no op's result is not written, however the text of a template looks.
        results = set().union(*self._written) if self._written else None
        step.writes = tuple(
            k
            for k in step.writes
            if (ref := step.refs[k]) is not None
            and (ref.buffer.kind == "arena" or results is None or ref.buffer in results)
        )
        self.steps.append(step)

    def refusal(self, reason: str, op: str | None = None, dtype: str | None = None) -> ExportError:
        """Return the error of what cannot be written, with the place that asks for it."""
        known = self._ops[-1] if self._ops else (None, None)
        return ExportError(
            reason,
            op=op or known[0],
            dtype=dtype or known[1],
            module=self.origin.module or None,
            where=self.origin.where or None,
        )


def _bytes_of(value: Any) -> bytes:
    made: bytes = value.detach().contiguous().numpy().tobytes()
    return made
