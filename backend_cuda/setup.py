"""Compile what launches kernels, in C, against the core's table of C functions."""

from Cython.Build import cythonize
from setuptools import Extension, setup

from tangrad.plugin import include_directory

FOLDER = "src/tangrad_cuda"

setup(
    ext_modules=cythonize(
        [
            Extension(
                "tangrad_cuda._launch",
                [f"{FOLDER}/_launch.pyx"],
                include_dirs=[include_directory(), f"{FOLDER}/native"],
                depends=[
                    f"{FOLDER}/native/{name}"
                    for name in ("launch.h", "frames.h", "ring.pxi", "calls.pxi", "plans.pxi")
                ],
                extra_compile_args=["-O2", "-g0", "-fvisibility=hidden"],
                extra_link_args=["-Wl,--strip-debug"],
            )
        ],
        include_path=[include_directory(), FOLDER],
    )
)
