"""Compile the recorder against the core's table of C functions."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Built beside the core, it is compiled against the core's sources.
INCLUDE = os.environ.get("TANGRAD_INCLUDE")
if INCLUDE is None:
    from tangrad.plugin import include_directory

    INCLUDE = include_directory()

setup(
    ext_modules=cythonize(
        [
            Extension(
                "tangrad_profiler._record",
                ["src/tangrad_profiler/_record.pyx"],
                include_dirs=[INCLUDE, "src/tangrad_profiler/native"],
                depends=[
                    "src/tangrad_profiler/native/log.h",
                    "src/tangrad_profiler/native/control.pxi",
                    "src/tangrad_profiler/native/reader.pxi",
                ],
                extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-pthread"],
                extra_link_args=["-pthread", "-Wl,--strip-debug"],
            )
        ],
        include_path=[str(Path(INCLUDE).parent)],
    )
)
