"""Make a device of a compiler: the kernels follow from a page that describes its language.

A device that compiles C-like source (CUDA C, OpenCL C, plain C) subclasses `CompilingDriver`,
describes its language by a `KernelDialect`, and says how a source is compiled, loaded and
launched. docs/add-a-compiling-device.md has a whole one.

- `dialect`: the language, and `Kernel`, the frame that all kernels have;
- `unit`: kernels that are compiled together; `cache`: binaries on disk;
- `numbers`: Python numbers as those of a kernel;
- `reports`: how an index out of bounds, found by a kernel, reaches the program;
- `families`: which file makes the kernel of which op; the files beside it are the families.
"""

from __future__ import annotations

from tangrad_source_kernels import numbers
from tangrad_source_kernels.dialect import Kernel, KernelDialect
from tangrad_source_kernels.driver import CompilingDriver
from tangrad_source_kernels.geometry import Loop, loop_over
from tangrad_source_kernels.reports import REPORT, Reports, Site
from tangrad_source_kernels.unit import Unit

__all__ = [
    "REPORT",
    "CompilingDriver",
    "Kernel",
    "KernelDialect",
    "Loop",
    "Reports",
    "Site",
    "Unit",
    "loop_over",
    "numbers",
]
API = 1
