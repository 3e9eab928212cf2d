"""Link an extension module against the oldest glibc that wheels promise: `LDSHARED`'s program.

A linker takes the newest version of each symbol that its C library has, so what is linked on a new
system runs on no older one. zig's compiler driver has the symbols of every glibc; objects stay the
system compiler's. It stands alone, for setuptools runs it by its path::

    LDSHARED="python tools/release/link.py x86_64-linux-gnu.2.28" python setup.py build_ext
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

# What zig's linker does by itself and has no word for.
BY_ITSELF = {"-Wl,-z,noseparate-code"}


def command(target: str, arguments: Iterable[str]) -> list[str]:
    """Return the command that links.

    Args:
        target: machine and C library, such as "x86_64-linux-gnu.2.28".
        arguments: as setuptools gives them to the system's linker.
    """
    kept = (argument for argument in arguments if argument not in BY_ITSELF)
    return [sys.executable, "-m", "ziglang", "cc", "-shared", "-target", target, *kept]


if __name__ == "__main__":
    words = command(sys.argv[1], sys.argv[2:])
    os.execv(words[0], words)
