"""Compile the counters in shared memory."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "tangrad_distributed._signal",
                ["src/tangrad_distributed/_signal.pyx"],
                extra_compile_args=["-O2", "-g0"],
            )
        ],
        compiler_directives={"language_level": 3},
    ),
)
