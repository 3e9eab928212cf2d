"""Compile exported files, run their self-tests, and call them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tangrad

STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror")
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]

needs_compiler = pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang")


def compiled(source: Path, target: Path, *flags: str, compiler: str | None = None) -> None:
    """Compile a file without a warning."""
    command = [compiler or COMPILERS[0], *STRICT, *flags, str(source), "-o", str(target)]
    command += ["-lm"] * ("-c" not in flags)  # clang warns of a library where nothing is linked
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[:3000]
    assert said.stderr == ""


def self_tested(source: Path, *flags: str, most: float = 1e-5) -> None:
    """Run a file's self-test, under the sanitizers."""
    target = source.with_suffix(".test")
    checked = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    compiled(source, target, "-O1", "-DTANGRAD_SELF_TEST", *checked, *flags)
    said = subprocess.run(
        [str(target)], capture_output=True, text=True, check=False, cwd=source.parent
    )
    last = said.stdout.strip().split("\n")[-1]
    assert last.startswith("max error "), said.stdout + said.stderr[:3000]
    assert said.returncode == 0, last
    assert float(last.split()[-1]) <= most


def loaded(source: Path, *flags: str) -> ctypes.CDLL:
    """Return a file as a shared library."""
    target = source.with_suffix(".so")
    compiled(source, target, "-O1", "-shared", "-fPIC", *flags)
    return ctypes.CDLL(str(target))


def pointer(array: Any) -> ctypes.c_void_p:
    """Return an array's address."""
    made: ctypes.c_void_p = array.ctypes.data_as(ctypes.c_void_p)
    return made


def exported(model: Any, args: Any, folder: Path, name: str = "model", **options: Any) -> Path:
    """Export a model and return the C file."""
    path = folder / f"{name}.c"
    tangrad.export.c(model, args, path, **options)
    return path


def array(t: Any) -> Any:
    """Return a tensor as a contiguous array."""
    return np.ascontiguousarray(t.detach().numpy())
