"""Copies between layouts and dtypes, as loops around the conversion of an element."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tangrad.plugin import location
from tangrad.plugin.render import DTYPES, compute_type, parse
from tangrad_source_kernels.pointwise import Loops

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

__all__ = ["COPY", "DTYPES", "kernel"]

COPY = SimpleNamespace(
    title="copy_",
    definition=SimpleNamespace(inputs=("x",), fixed={}, expression=parse("x", ("x",))),
)


def kernel(driver: Compiler, dtype: str) -> Callable[..., None]:
    """Return the kernel that writes a tensor of a dtype: source of any dtype, broadcast."""
    loops = Loops(driver, COPY, compute_type(dtype))

    def copy(outs: Any, args: Any) -> None:
        target, source = outs[0], args[1]
        if target.numel() == 0:
            return
        if _same_bytes(target, source):
            _copy_bytes(driver, target, source)
            return
        loops(outs, (source,), {})

    return copy


def _same_bytes(target: Any, source: Any) -> bool:
    return (
        target.dtype is source.dtype
        and target.is_contiguous()
        and source.is_contiguous()
        and target.numel() == source.numel()
    )


def _copy_bytes(driver: Compiler, target: Any, source: Any) -> None:
    handle, offset = location(target)
    origin, start = location(source)
    driver.copy_within(handle, offset, origin, start, target.numel() * target.itemsize)
