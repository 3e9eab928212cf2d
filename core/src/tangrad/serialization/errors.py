"""The one family of errors that reading and writing files raises."""

from __future__ import annotations

import pickle


class SerializationError(RuntimeError, pickle.UnpicklingError):
    """A file cannot be read or written.

    It is both a `RuntimeError` and a `pickle.UnpicklingError`, since programs written for PyTorch
    catch the one or the other.

    Args:
        reason: what is wrong, and what can be done.
        file: name of the file.
        offset: the first byte at fault.
        tensor: name of the tensor or of the archive's member at fault.

    Attributes:
        reason: as given; so are `file`, `offset` and `tensor`, each None when unknown.
    """

    def __init__(
        self,
        reason: str,
        *,
        file: str | None = None,
        offset: int | None = None,
        tensor: str | None = None,
    ) -> None:
        self.reason, self.file, self.offset, self.tensor = reason, file, offset, tensor
        super().__init__(reason)

    def __str__(self) -> str:
        places = [
            f"file {self.file!r}" if self.file else "",
            f"byte {self.offset}" if self.offset is not None else "",
            f"{self.tensor!r}" if self.tensor else "",
        ]
        where = ", ".join(place for place in places if place)
        return f"{self.reason} ({where})" if where else self.reason


class UnsafeContentError(SerializationError):
    """A file asks for code that a load of plain values does not run."""


def shown(value: object, width: int = 100) -> str:
    """Return a value of a file for a message, in few steps however it refers to itself."""
    import reprlib

    short = reprlib.Repr()
    short.maxlevel, short.maxother, short.maxstring = 2, width, width
    return short.repr(value)[:width]
