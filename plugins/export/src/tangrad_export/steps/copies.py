"""Copies: between layouts and dtypes, of bytes, and of constants."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tangrad.plugin.render import compute_type
from tangrad_export.program.buffers import Ref
from tangrad_export.program.recording import current
from tangrad_export.steps.base import Number, Step, itemsize
from tangrad_export.steps.loops import conversion, keep_loop

__all__ = ["Copy", "Upload", "copy_kernel", "keep_copy"]

_COPY = conversion("copy")


class Copy(Step):
    """Copy bytes.

    Args:
        target, source: where.
        nbytes: how many.
    """

    def __init__(self, target: Ref, source: Ref, nbytes: int) -> None:
        super().__init__([target, source], (0,), [nbytes])
        self.work = nbytes // max(1, itemsize(target.dtype))

    def text(self, names: list[str], at: list[str], n: list[Number]) -> list[str]:
        """Return a call of memmove: the two may overlap."""
        return [f"memmove({at[0]}, {at[1]}, (size_t)({n[0]}));"]


class Upload(Step):
    """Give memory values that the exporter knows.

    Args:
        target: where.
        content: the bytes.
    """

    def __init__(self, target: Ref, content: bytes) -> None:
        super().__init__([target], (0,), [])
        self.content = content

    def structure(self) -> Hashable:
        """Return the bytes: they are the same at all sizes."""
        return "upload", self.content


def keep_copy(target: Any, source: Any) -> None:
    """Add the loop that copies a tensor of the device into another of its dtype."""
    keep_loop(_COPY, compute_type(target.dtype.name), (target,), {"x": source}, {})


def copy_kernel(dtype: str) -> Any:
    """Return the kernel that writes a tensor of a dtype: source of any dtype, broadcast."""
    compute = compute_type(dtype)

    def kernel(outs: Any, args: Any) -> None:
        target, source = outs[0], args[1]
        if target.numel() == 0:
            return
        same = target.dtype is source.dtype and target.numel() == source.numel()
        if same and target.is_contiguous() and source.is_contiguous():
            recording = current()
            nbytes = target.numel() * target.itemsize
            recording.add(Copy(recording.ref(target), recording.ref(source), nbytes))
            return
        keep_loop(_COPY, compute, (target,), {"x": source}, {})

    return kernel
