"""Call NVRTC, which compiles CUDA C++ in the process, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from tangrad_cuda import libraries

# Include-free source, products and sums rounded one by one as everywhere in tangrad.
OPTIONS = ("--std=c++17", "--fmad=false")
_OLDEST = (12, 0)


class CompileError(RuntimeError):
    """NVRTC refused a source.

    Attributes:
        log: what the compiler said.
    """

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


@cache
def library() -> ctypes.CDLL:
    """Return NVRTC.

    Raises:
        RuntimeError: it is not installed, or too old; the message says what to install.
    """
    tried: list[str] = []
    for path in libraries.find("libnvrtc.so"):
        try:
            # NVRTC opens its builtins by a bare name, which only the loader's own paths resolve.
            for builtins in path.parent.glob("libnvrtc-builtins.so*"):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return _checked(ctypes.CDLL(str(path)), str(path))
        except OSError as error:
            tried.append(f"{path}: {error}")
    try:
        return _checked(ctypes.CDLL("libnvrtc.so"), "libnvrtc.so")
    except OSError as error:
        tried.append(str(error))
    raise RuntimeError(
        "NVRTC, which compiles kernels, cannot be loaded; run: pip install nvidia-cuda-nvrtc "
        f"({'; '.join(tried)})"
    )


def _checked(found: ctypes.CDLL, path: str) -> ctypes.CDLL:
    found.nvrtcGetErrorString.restype = ctypes.c_char_p
    major, minor = ctypes.c_int(), ctypes.c_int()
    found.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    if (major.value, minor.value) < _OLDEST:
        raise RuntimeError(
            f"{path} is NVRTC {major.value}.{minor.value}; {_OLDEST[0]}.{_OLDEST[1]} or newer is "
            "needed; run: pip install -U nvidia-cuda-nvrtc"
        )
    return found


@cache
def version() -> tuple[int, int]:
    """Return NVRTC's version, such as (13, 0)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@cache
def architectures() -> tuple[int, ...]:
    """Return the compute capabilities that NVRTC compiles for, as 75, 80, ..., ascending."""
    count = ctypes.c_int()
    _check(library().nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
    found = (ctypes.c_int * count.value)()
    _check(library().nvrtcGetSupportedArchs(found), "nvrtcGetSupportedArchs")
    return tuple(sorted(found))


def compile(
    source: str, architecture: int, image: str = "cubin", options: Sequence[str] = ()
) -> bytes:
    """Compile CUDA C++.

    Args:
        source: text that includes nothing; kernels are `extern "C"`.
        architecture: compute capability, such as 90.
        image: "cubin", for that architecture alone, or "ptx", for it and newer ones.
        options: further options of the compiler.

    Returns:
        The image; PTX without its final zero byte.

    Raises:
        CompileError: the compiler refuses the source; `log` has its messages.
    """
    nvrtc = library()
    program = ctypes.c_void_p()
    _check(
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"tangrad.cu", 0, None, None
        ),
        "nvrtcCreateProgram",
    )
    try:
        kind = "sm" if image == "cubin" else "compute"
        given = [f"--gpu-architecture={kind}_{architecture}", *OPTIONS, *options]
        texts = (ctypes.c_char_p * len(given))(*(text.encode() for text in given))
        status = nvrtc.nvrtcCompileProgram(program, len(given), texts)
        if status:
            raise _refused(program, status, architecture)
        if image == "cubin":
            return _taken(program, "nvrtcGetCUBIN")
        return _taken(program, "nvrtcGetPTX").rstrip(b"\0")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _taken(program: ctypes.c_void_p, function: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library(), f"{function}Size")(program, ctypes.byref(size)), f"{function}Size")
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library(), function)(program, buffer), function)
    return buffer.raw


def _refused(program: ctypes.c_void_p, status: int, architecture: int) -> CompileError:
    log = _taken(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")
    reason = library().nvrtcGetErrorString(status).decode()
    first = next((line for line in log.splitlines() if "error" in line), log[:200])
    return CompileError(f"NVRTC, for sm_{architecture}: {reason}: {first}", log)


def _check(status: int, function: str) -> None:
    if status:
        reason = library().nvrtcGetErrorString(status).decode()
        raise RuntimeError(f"{function}: {reason}")
