"""Extensions in C++ for PyTorch's library, which is not here: every name says so."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: extensions in C++ are built against the "
        "headers of PyTorch's library, which this is not. An op is added in Python, or in C by "
        "the function table: see docs/add-an-op.md"
    )
