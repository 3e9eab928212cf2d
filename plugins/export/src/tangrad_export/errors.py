"""The error of what cannot be written as C."""

from __future__ import annotations

from typing import Any

__all__ = ["ExportError"]


class ExportError(RuntimeError):
    """A model cannot be written as C; nothing was written.

    Args:
        reason: what is wrong, and what can be done.
        op: name of the op at fault.
        dtype: the dtype that it was asked for.
        module: path of the module that calls it.
        where: line of the program, "file:number".

    Attributes:
        reason: as given; so are `op`, `dtype`, `module` and `where`, each None when unknown.
    """

    def __init__(
        self,
        reason: str,
        *,
        op: str | None = None,
        dtype: str | None = None,
        module: str | None = None,
        where: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason, self.op, self.dtype = reason, op, dtype
        self.module, self.where = module, where

    def __str__(self) -> str:
        places = {"op": self.op, "dtype": self.dtype, "module": self.module, "line": self.where}
        told = ", ".join(f"{kind} {name!r}" for kind, name in places.items() if name)
        return f"{self.reason} ({told})" if told else self.reason

    def __reduce__(self) -> Any:
        state = {"op": self.op, "dtype": self.dtype, "module": self.module, "where": self.where}
        return type(self), (self.reason,), state
