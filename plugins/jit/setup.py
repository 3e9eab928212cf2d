"""Compile the compiled parts against the core's table of C functions."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Built beside the core, it is compiled against the core's sources.
INCLUDE = os.environ.get("TANGRAD_INCLUDE")
if INCLUDE is None:
    from tangrad.plugin import include_directory

    INCLUDE = include_directory()

MODULES = ("_guards", "_queue", "_run", "codegen._emit", "codegen._execute")

# The emitter takes some ten microseconds for a kernel: it had better be small.
SPEED = {"codegen._emit": "-Os"}


def extension(name: str) -> Extension:
    """Return one extension module, named by its path below the package."""
    return Extension(
        f"tangrad_jit.{name}",
        [f"src/tangrad_jit/{name.replace('.', '/')}.pyx"],
        include_dirs=[INCLUDE],
        extra_compile_args=[SPEED.get(name, "-O2"), "-g0", "-fvisibility=hidden", "-pthread"],
        extra_link_args=["-pthread", "-Wl,--strip-all", "-Wl,-z,noseparate-code"],
    )


setup(
    ext_modules=cythonize(
        [extension(name) for name in MODULES], include_path=[str(Path(INCLUDE).parent)]
    )
)
