"""The interface: whether a group can be compiled, and its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad_jit.codegen.group import Group


class CompiledGroup:
    """The kernel of a group, for all sizes."""

    def run(self, outs: Sequence[Any], ins: Sequence[Any], rows: int, columns: int) -> None:
        """Compute; see `compile_group`."""
        raise NotImplementedError


def can_compile(group: Group) -> str | None:
    """Return None if a group can be compiled here, else the reason why not."""
    return "the code generator is being written"


def compile_group(group: Group, level: str | None = None) -> CompiledGroup:
    """Return the kernel of a group."""
    raise NotImplementedError(can_compile(group))
