"""The base class of devices that compile kernels from C-like source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_source_kernels.compiler import Compiler
from tangrad_source_kernels.reports import Reports


class CompilingDriver(Compiler):
    """Drive a device whose kernels are compiled from C-like source when they are first needed.

    A subclass gives a dialect, six methods beside those of memory and streams
    (`architecture`, `compiler_version`, `compile`, `load`, `function`, `launch`), and has
    kernels for every pointwise op with its gradients and tangents, reductions, scans, copies,
    random numbers, and for what training spends its time in. It may override `kernel_for`, for
    kernels that it knows to write better, and asks `super()` for the rest; one that overrides
    `register_kernels` calls `super().register_kernels(register)`, too.

    **What kernels find wrong** (an index out of bounds, an integer divided by zero) they write
    into a cell of the device's memory, and leave that element out. A driver whose launches are
    done when they return sets `immediate`; another calls `raise_reported(index)` wherever it has
    waited for a device's work: at the end of `synchronize`, `copy_to_host` and
    `synchronize_event`. Then the error is raised with the op, the index, the bound and the operand.

    Attributes:
        dialect: the language, a `KernelDialect`.
        immediate: whether a launch has done its work when it returns.
    """

    one_pass = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reports = Reports(self)

    def kernel_for(self, op: Any, dtype: Any) -> Callable[..., Any] | None:
        """Return a kernel compiled from an op's definition or from a template of its family."""
        from tangrad_source_kernels import families

        return families.kernel_for(self, op, dtype)

    def fuses(self, op: Any) -> bool:
        """Return whether the kernel of a pointwise op or a reduction follows from its definition.

        Compilers of whole programs join such kernels. A driver whose `kernel_for` has another one,
        with other bits, says so here.
        """
        return True

    def register_kernels(self, register: Any) -> None:
        """Register the copies between layouts and dtypes; other kernels are made on demand."""
        from tangrad_source_kernels import copies

        for dtype in copies.DTYPES:
            register("copy_", copies.kernel(self, dtype), dtypes=[dtype])
