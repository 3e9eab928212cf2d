"""Compile CUDA C++ to PTX by NVRTC, which runs without a GPU."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from tangrad_cuda_emulator.settings import PREFIX

WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")


class CompileError(RuntimeError):
    """NVRTC refused a source; the message is what it said."""


@cache
def library() -> ctypes.CDLL:
    """Return NVRTC from NVIDIA's wheel.

    Raises:
        RuntimeError: the wheel is not installed.
    """
    for wheel in WHEELS:
        try:
            paths = [Path(str(file.locate())) for file in files(wheel) or ()]
        except PackageNotFoundError:
            continue
        # The library asks for its builtins by a bare name; so they have to be there before it.
        for start in ("libnvrtc-builtins.so", "libnvrtc.so"):
            (path,) = (path for path in paths if path.name.startswith(start))
            found = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        return found
    raise RuntimeError(f"NVRTC is not installed; run: pip install {WHEELS[0]}")


def compile_to_ptx(source: str, *options: str) -> str:
    """Return the PTX of a source that includes nothing.

    Args:
        source: CUDA C++.
        options: of NVRTC, beside the architecture that the emulator shows.

    Raises:
        CompileError: the compiler refuses the source.
        RuntimeError: NVRTC is not installed.
    """
    nvrtc = library()
    capability = os.environ.get(PREFIX + "CAPABILITY", "") or "9.0"
    given = [f"--gpu-architecture=compute_{capability.replace('.', '')}", "--std=c++17", *options]
    texts = (ctypes.c_char_p * len(given))(*(text.encode() for text in given))
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        if nvrtc.nvrtcCompileProgram(program, len(given), texts):
            raise CompileError(_text(program, "ProgramLog"))
        return _text(program, "PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(program: ctypes.c_void_p, what: str) -> str:
    nvrtc, size = library(), ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode("utf-8", "replace")
