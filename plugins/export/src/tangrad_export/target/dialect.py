"""C99 as a dialect of kernels: blocks of one lane, one block."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from tangrad.plugin.compiled import Kernel, KernelDialect
from tangrad.plugin.render import DIALECTS

__all__ = ["DIALECT", "Template", "parts_of"]

_C = DIALECTS["c"]
_MARK = re.compile(r"/\*@(.*)\*/\n")


class Template(NamedTuple):
    """A kernel of a source.

    Attributes:
        name: of its function.
        buffers: (dtype, name) of each.
        numbers: (kind, name, count) of each.
    """

    name: str
    buffers: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[str, str, int], ...]


class C99(KernelDialect):
    """C, in which a kernel is a function of pointers and of a structure of its numbers."""

    def kernel(self, kernel: Kernel) -> str:
        """Return a function, behind a mark that tells its parameters."""
        mark = json.dumps([kernel.name, kernel.buffers, kernel.numbers])
        params = [f"{self.type(dtype)} *{name}" for dtype, name in kernel.buffers]
        used = [name for _, name in kernel.buffers]
        structure = ""
        if kernel.numbers:
            structure = self.structure(kernel)
            params.append(f"const {kernel.name}_numbers *numbers")
        unused = " ".join(f"(void){name};" for name in used)
        opened = f"    const {kernel.name}_numbers g = *numbers;\n" if kernel.numbers else ""
        return (
            f"/*@{mark}*/\n{structure}\nstatic void {kernel.name}({', '.join(params) or 'void'}) "
            f"{{\n{opened}    {unused}\n{kernel.body}\n}}\n"
        )


DIALECT = C99(
    "C99",
    function="static inline",
    types=_C.types,
    header="",
    c99_complex=True,
    lanes=1,
    max_blocks=1,
)


def parts_of(source: str) -> tuple[dict[str, Template], str]:
    """Return the kernels of a source by name, and the source without their marks."""
    found: dict[str, Template] = {}
    for mark in _MARK.finditer(source):
        name, buffers, numbers = json.loads(mark[1])
        found[name] = Template(
            name, tuple(map(tuple, buffers)), tuple((k, n, int(c)) for k, n, c in numbers)
        )
    return found, _MARK.sub("", source)


def as_text(value: Any) -> str:
    """Return a number as C."""
    if isinstance(value, float):
        if value != value:
            return "NAN"
        if value in (float("inf"), float("-inf")):
            return "INFINITY" if value > 0 else "(-INFINITY)"
        return repr(value) if "e" in repr(value) or "." in repr(value) else f"{value!r}.0"
    return str(value)
