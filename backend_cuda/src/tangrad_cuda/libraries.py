"""Find NVIDIA's libraries: the driver's by the loader, the others in NVIDIA's wheels or the system.

Nothing here links or initialises anything; `driver_library` is what `probe` asks.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

DRIVER = "libcuda.so.1"
# What pycuda's wheel is built against, and the first driver of CUDA 12.
OLDEST_DRIVER = 12000
INSTALL = "run: python -m tangrad_cuda install"


@cache
def driver_library() -> ctypes.CDLL:
    """Return the driver's library.

    Raises:
        OSError: there is none.
    """
    return ctypes.CDLL(DRIVER)


def readable(version: int) -> str:
    """Return CUDA's number of a version as people write it: 13.0 for 13000."""
    return f"{version // 1000}.{version % 1000 // 10}"


def driver_version() -> int:
    """Return the newest CUDA that the driver serves, such as 13000; initialises nothing.

    Raises:
        OSError: there is no driver, or it does not say.
    """
    version = ctypes.c_int()
    status = driver_library().cuDriverGetVersion(ctypes.byref(version))
    if status:
        raise OSError(f"cuDriverGetVersion returns status {status}; reinstall or update it")
    return version.value


def wheel_folders() -> list[Path]:
    """Return the folders in which NVIDIA's wheels keep libraries, the newest CUDA first."""
    found: list[Path] = []
    for entry in sys.path:
        root = Path(entry or ".") / "nvidia"
        if root.is_dir():
            found += sorted(root.glob("cu[0-9]*/lib"), reverse=True)
            found += sorted(root.glob("*/lib"))
    return list(dict.fromkeys(found))


def toolkit_folders() -> list[Path]:
    """Return the folders of toolkits: those that variables name, then the usual place."""
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots = [Path(name) for name in named] + [Path("/usr/local/cuda")]
    return [root / lib for root in roots for lib in ("lib64", "lib") if (root / lib).is_dir()]


def find(stem: str) -> list[Path]:
    """Return the files of a library, such as "libnvrtc.so", best first."""
    found: list[Path] = []
    for folder in [*wheel_folders(), *toolkit_folders()]:
        found += sorted(folder.glob(f"{stem}*"), reverse=True)
    return found


def opened(
    stem: str, functions: Mapping[str, tuple[Any, ...]], name: str, wheel: str, without: str
) -> ctypes.CDLL:
    """Open a library that a program chose.

    Args:
        stem: of its files, such as "libcudnn.so".
        functions: the types of the arguments of those that are called.
        name: what messages call it.
        wheel: which wheel brings it.
        without: what a program says to go on without it.

    Raises:
        RuntimeError: it is not there, cannot be loaded, or lacks a function.
    """
    tried: list[str] = []
    for path in (*find(stem), stem):
        try:
            library = ctypes.CDLL(str(path))
            for function, types in functions.items():
                getattr(library, function).argtypes = types
        except (OSError, AttributeError) as error:
            tried.append(str(error))
            continue
        return library
    raise RuntimeError(
        f"{name} cannot be loaded; run: pip install {wheel}, or go on without: {without} "
        f"({'; '.join(tried)})"
    )
