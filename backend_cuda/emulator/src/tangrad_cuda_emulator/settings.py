"""What a program is started with to run on the emulator."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).resolve().parent
PREFIX = "TANGRAD_CUDA_EMULATOR_"
_FAILURE = re.compile(r"(cu[A-Z]\w*?)(?:_v\d+)?:[1-9]\d*\+?(?::[1-9]\d*)?")


def library_folder() -> Path:
    """Return the folder that holds the stand-in ``libcuda.so.1``."""
    return FOLDER / "lib"


def environment(
    *,
    devices: int = 1,
    memory: int | None = None,
    engine: Literal["host", "ptx"] = "host",
    races: bool = False,
    fail: str = "",
    sources: str | os.PathLike[str] | None = None,
    capability: str | None = None,
    eager: bool = False,
    nvcc: bool = False,
) -> dict[str, str]:
    """Return the variables of a process that is to run on the emulator.

    Args:
        devices: how many GPUs there are; with 0, ``cuInit`` says that there is none.
        memory: bytes that each has; 8 GiB by default.
        engine: "host" runs the source of a kernel where it is known, and else its PTX; "ptx" runs
            PTX wherever there is any.
        races: whether PTX is watched for accesses of one block that no barrier parts.
        fail: calls that fail, such as ``"cuMemAlloc:3,cuLaunchKernel:1+:719"``: the third of one
            function, and with that code every one of another from the first on.
        sources: folder where sources of images are found by the images' SHA-256.
        capability: compute capability, such as "8.0".
        eager: whether work is done when it is asked for, not when it has to be.
        nvcc: whether a stand-in for nvcc, too, is found first, as pycuda's ``SourceModule`` wants.

    Returns:
        The variables, to be laid over ``os.environ``.

    Raises:
        ValueError: a setting means nothing, or would have no effect.
    """
    _check(devices, memory, engine, races, fail, capability)
    told = {
        "DEVICES": str(devices),
        "MEMORY": "" if memory is None else str(memory),
        "ENGINE": engine,
        "RACES": str(int(races)),
        "FAIL": fail,
        "SOURCES": "" if sources is None else os.fspath(sources),
        "CAPABILITY": capability or "",
        "EAGER": str(int(eager)),
    }
    variables = {PREFIX + name: value for name, value in told.items() if value}
    variables["LD_LIBRARY_PATH"] = _first(library_folder(), "LD_LIBRARY_PATH")
    if nvcc:
        variables["PATH"] = _first(FOLDER / "bin", "PATH")
        # What pycuda keeps of another compiler is no image that runs here.
        variables["PYCUDA_DISABLE_CACHE"] = "1"
    return variables


def _check(
    devices: int, memory: int | None, engine: str, races: bool, fail: str, capability: str | None
) -> None:
    if devices < 0:
        raise ValueError(f"there cannot be {devices} GPUs; 0 is a machine without one")
    if memory is not None and memory <= 0:
        raise ValueError(f"a GPU cannot have {memory} bytes of memory")
    if races and engine != "ptx":
        raise ValueError("races are watched by the engine 'ptx' alone; choose that, too")
    if capability is not None and not re.fullmatch(r"[1-9]\d*\.\d", capability):
        raise ValueError(f"{capability!r} is no compute capability; they are written as 9.0")
    for each in filter(None, fail.split(",")):
        found = _FAILURE.fullmatch(each)
        if found is None:
            raise ValueError(
                f"{each!r}: calls that shall fail are written NAME:N, NAME:N+ or NAME:N:CODE"
            )
        if not _has(found[1]):
            raise ValueError(f"{each!r}: the stand-in has no function {found[1]!r}")


def _has(function: str) -> bool:
    """Return whether the stand-in defines a function, in whatever version."""
    name = re.escape(function.encode())
    return re.search(rb"\0" + name + rb"(_v\d+)?(_ptsz|_ptds)?\0", _library_bytes()) is not None


@cache
def _library_bytes() -> bytes:
    return (library_folder() / "libcuda.so.1").read_bytes()


def _first(folder: Path, name: str) -> str:
    others = os.environ.get(name)
    return f"{folder}{os.pathsep}{others}" if others else str(folder)
