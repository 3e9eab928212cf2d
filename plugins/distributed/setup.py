"""Compile the counters in shared memory, and the way to other processes' memory."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"tangrad_distributed.{name}",
                [f"src/tangrad_distributed/{name}.pyx"],
                extra_compile_args=["-O2", "-g0"],
            )
            for name in ("_peers", "_signal")
        ],
        compiler_directives={"language_level": 3},
    ),
)
