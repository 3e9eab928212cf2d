"""Extensions in C++ for PyTorch's library, which is not here.

What builds one while a program runs is there and refuses, as libraries try it and go on without.
What builds packages is not.
"""

from __future__ import annotations

import shutil
from typing import Any, NoReturn

__all__ = ["is_ninja_available", "load", "load_inline"]

# As where no toolkit is found.
CUDA_HOME = None
ROCM_HOME = None

_REASON = (
    "extensions in C++ are built against the headers of PyTorch's library, which this is not. An "
    "op is added in Python, or in C by the function table: see docs/add-an-op.md"
)


def is_ninja_available() -> bool:
    """Return whether the build tool ninja is found."""
    return shutil.which("ninja") is not None


def load(name: str, sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Refuse to build an extension from files.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"cpp_extension.load: cannot build {name!r}: {_REASON}")


def load_inline(name: str, cpp_sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Refuse to build an extension from text.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"cpp_extension.load_inline: cannot build {name!r}: {_REASON}")


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: {_REASON}")
