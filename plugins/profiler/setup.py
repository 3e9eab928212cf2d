"""Compile the recorder against the core's table of C functions."""

from Cython.Build import cythonize
from setuptools import Extension, setup

from tangrad.plugin import include_directory

setup(
    ext_modules=cythonize(
        [
            Extension(
                "tangrad_profiler._record",
                ["src/tangrad_profiler/_record.pyx"],
                include_dirs=[include_directory(), "src/tangrad_profiler/native"],
                depends=[
                    "src/tangrad_profiler/native/log.h",
                    "src/tangrad_profiler/native/reader.pxi",
                ],
                extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-pthread"],
                extra_link_args=["-pthread", "-Wl,--strip-debug"],
            )
        ],
        include_path=[include_directory()],
    )
)
