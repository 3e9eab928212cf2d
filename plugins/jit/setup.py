"""Compile the compiled parts against the core's table of C functions.

Environment:
    TANGRAD_SANITIZE: such as "address,undefined"; compiles the sanitizers in.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Built beside the core, it is compiled against the core's sources.
INCLUDE = os.environ.get("TANGRAD_INCLUDE")
if INCLUDE is None:
    from tangrad.plugin import include_directory

    INCLUDE = include_directory()

MODULES = (
    "_guards",
    "_queue",
    "_run",
    "codegen._emit",
    "codegen._execute",
    "scripting.machine._machine",
)

# The emitter takes some ten microseconds for a kernel: it had better be small.
SPEED = {"codegen._emit": "-Os"}
# No exception passes through C, so nobody needs tables to unwind it; without the symbol table and
# with code and constants on shared pages, the wheel is smaller by a tenth.
COMPILE_FLAGS = [
    "-g0",
    "-fvisibility=hidden",
    "-fno-semantic-interposition",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-pthread",
]
LINK_FLAGS = ["-pthread", "-Wl,--strip-all", "-Wl,-z,noseparate-code"]
SANITIZE = os.environ.get("TANGRAD_SANITIZE", "")
if SANITIZE:  # what is found is told by names and lines
    COMPILE_FLAGS += [f"-fsanitize={SANITIZE}", "-g1", "-fno-omit-frame-pointer"]
    LINK_FLAGS = ["-pthread", f"-fsanitize={SANITIZE}"]


def extension(name: str) -> Extension:
    """Return one extension module, named by its path below the package."""
    return Extension(
        f"tangrad_jit.{name}",
        [f"src/tangrad_jit/{name.replace('.', '/')}.pyx"],
        include_dirs=[INCLUDE],
        extra_compile_args=[SPEED.get(name, "-O2"), *COMPILE_FLAGS],
        extra_link_args=LINK_FLAGS,
    )


setup(
    ext_modules=cythonize(
        [extension(name) for name in MODULES],
        include_path=[str(Path(INCLUDE).parent)],
        # What compares and runs graphs is of one process: to pickle it is refused, without code.
        compiler_directives={"auto_pickle": False},
    )
)
