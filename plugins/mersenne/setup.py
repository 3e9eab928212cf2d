"""Compile the twister, which needs nothing of the core."""

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = "src/tangrad_mersenne"

setup(
    ext_modules=cythonize(
        [
            Extension(
                "tangrad_mersenne._twister",
                [f"{SOURCES}/_twister.pyx", f"{SOURCES}/twister.c"],
                include_dirs=[SOURCES],
                depends=[f"{SOURCES}/twister.h", f"{SOURCES}/twister_loops.h"],
                libraries=["m"],
                extra_compile_args=[
                    "-O3",
                    # An expression means the same on every machine.
                    "-ffp-contract=off",
                    # Neither changes a number; with them roots and choices are vectors, too.
                    "-fno-math-errno",
                    "-fno-trapping-math",
                    "-fvisibility=hidden",
                    "-g0",
                ],
                extra_link_args=["-Wl,--strip-all"],
            )
        ],
        compiler_directives={"language_level": 3},
    )
)
