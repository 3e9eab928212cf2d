"""The driver of device "c99": kernels by the templates of `tangrad.plugin.compiled`, or its own."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from tangrad import Tensor
from tangrad.plugin.compiled import CompilingDriver
from tangrad_export.program.buffers import Ref
from tangrad_export.program.recording import current
from tangrad_export.steps import own_kernel
from tangrad_export.steps.copies import Copy, Upload, copy_kernel
from tangrad_export.steps.templates import Call
from tangrad_export.target.dialect import DIALECT, Template, parts_of

__all__ = ["Driver"]

_FIRST = 1 << 40
# Templates of these take tensors as numbers, by addresses that a program does not have.
_BY_ADDRESSES = ("_norms", "_total_norm", "_foreach_mul_tensor_")
_CODES = {"int64": "q", "uint64": "Q", "float64": "d"}


class Driver(CompilingDriver):
    """A device whose kernels' calls are kept as the steps of a program; it has no memory."""

    dialect = DIALECT
    accelerator = False
    immediate = False

    def open(self) -> None:
        """Start without memory."""
        self._next = _FIRST
        self._sources: dict[str, tuple[dict[str, Template], str]] = {}

    # --- memory -----------------------------------------------------------------------------------

    def allocate(self, nbytes: int, index: int) -> int:
        """Return an address that no other piece of memory has had."""
        current()
        address = self._next
        self._next += -(-nbytes // 4096) * 4096 + 4096
        return address

    def release(self, handle: int, nbytes: int) -> None:
        """Give nothing back: there was nothing."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        """Keep bytes of the host as constants of the program."""
        recording = current()
        buffer = recording.upload(handle + offset, source.nbytes)
        ref = recording.ref_at(handle + offset, "uint8")
        recording.add(Upload(Ref(buffer, ref.offset, "uint8"), bytes(source)))

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        """Show values of constants of the program; no others are known before it runs.

        Raises:
            ExportError: they are no constant's.
        """
        recording = current()
        content = recording.known_at(handle + offset, target.nbytes)
        if content is not None:
            target[:] = content
            return
        raise recording.refusal(
            "the program looks at a value that it computes, or an op has no kernel in C; sizes "
            "and branches that depend on values cannot be written"
        )

    def copy_within(
        self, handle: int, offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        """Keep a copy of bytes."""
        recording = current()
        target = recording.ref_at(handle + offset, "uint8")
        recording.add(Copy(target, recording.ref_at(source + source_offset, "uint8"), nbytes))

    # --- kernels ----------------------------------------------------------------------------------

    def kernel_for(self, op: Any, dtype: Any) -> Callable[..., Any] | None:
        """Return what keeps a call of an op, None where the op is decomposed."""
        made = own_kernel(op, dtype.name)
        if made is None and op.name not in _BY_ADDRESSES:
            made = self.template_for(op, dtype)
        if made is None and op.definition.decompose is not None:
            return None
        schema = op.definition.schema
        places = [*schema.written_lists, *([schema.written] if schema.written >= 0 else [])]
        return _kept(made, op.title, dtype.name, tuple(places))

    def template_for(self, op: Any, dtype: Any) -> Callable[..., Any] | None:
        """Return what keeps calls of an op's template, None where there is none."""
        return super().kernel_for(op, dtype)

    def register_kernels(self, register: Any) -> None:
        """Register the copies between layouts and dtypes."""
        from tangrad.plugin.render import DTYPES

        for dtype in DTYPES:
            register("copy_", _kept(copy_kernel(dtype), "copy_", dtype), dtypes=[dtype])

    def architecture(self, index: int) -> str:
        """Return the name of the language."""
        return "c99"

    def module_of(self, source: str, index: int) -> Any:
        """Return the kernels of a source, and it: nothing is compiled."""
        found = self._sources.get(source)
        if found is None:
            found = self._sources[source] = parts_of(source)
        return found

    def function(self, module: Any, name: str) -> Any:
        """Return a kernel and its source."""
        templates, source = module
        return templates[name], source

    def launch(
        self, function: Any, blocks: int, buffers: Sequence[int], numbers: bytes, index: int
    ) -> None:
        """Keep a call of a kernel."""
        template, source = function
        recording = current()
        refs = [
            recording.ref_or_none(address, dtype)
            for address, (dtype, _) in zip(buffers, template.buffers, strict=True)
        ]
        # Which report it is does not count here, where a message may have sizes that vary.
        titles = [title for _, title, count in template.numbers for _ in range(count or 1)]
        codes = "".join(f"{count or 1}{_CODES[kind]}" for kind, _, count in template.numbers)
        given = zip(titles, struct.unpack(f"={codes}", numbers), strict=True)
        numbers_of_call = [1 if title == "site" else value for title, value in given]
        recording.add(Call(template, source, refs, numbers_of_call))

    def error_cell(self, index: int) -> tuple[int, int]:
        """Return the place of the cell that kernels report to."""
        return current().error_address, 0


def _kept(
    kernel: Callable[..., Any] | None, name: str, dtype: str, places: tuple[int, ...] = ()
) -> Callable[..., Any]:
    """Return a kernel that keeps its results' memory, and tells which op it is of.

    Args:
        kernel: the kernel, None where there is none.
        name: of the op.
        dtype: that it is asked for.
        places: of the arguments that it writes.
    """

    def kept(outs: Any, *args: Any) -> Any:
        recording = current()
        if kernel is None:
            raise recording.refusal("the op has no kernel in C", name, dtype)
        written = list(outs or ())
        for place in places:
            if args and isinstance(args[0], tuple) and place < len(args[0]):
                given = args[0][place]
                written += given if isinstance(given, (list, tuple)) else [given]
        with recording.op(name, dtype, [t for t in written if isinstance(t, Tensor)]):
            return kernel(outs, *args)

    return kept
