"""How this installation was built, as text: `torch.__config__`."""

from __future__ import annotations

import sys

from tangrad import __version__

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Return versions of the package and of what it stands on."""
    import numpy

    lines = [f"tangrad {__version__}", f"Python {sys.version.split()[0]}"]
    lines += [f"NumPy {numpy.__version__}", f"platform {sys.platform}"]
    return "\n".join(f"  - {line}" for line in lines) + "\n"


def parallel_info() -> str:
    """Return how many threads are used."""
    from tangrad.devices.threads import get_num_threads
    from tangrad.settings import get_num_interop_threads

    return (
        f"get_num_threads() : {get_num_threads()}\n"
        f"get_num_interop_threads() : {get_num_interop_threads()}\n"
    )
