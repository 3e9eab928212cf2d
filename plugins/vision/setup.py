"""Build the extension: kernels of ops for device cpu, and what decoders of pictures call."""

from __future__ import annotations

import os

from setuptools import Extension, setup

# Built beside the core, it is compiled against the core's sources.
INCLUDE = os.environ.get("TANGRAD_INCLUDE")
if INCLUDE is None:
    from tangrad.plugin import include_directory

    INCLUDE = include_directory()

NATIVE = "src/tangrad_vision/native"

setup(
    ext_modules=[
        Extension(
            "tangrad_vision._kernels",
            [f"{NATIVE}/{name}.c" for name in ("module", "boxes", "regions", "deform", "pictures")],
            include_dirs=[INCLUDE, NATIVE],
            depends=[f"{NATIVE}/{name}.h" for name in ("vision", "levels", "regions", "deform")],
            extra_compile_args=[
                "-std=gnu11",
                "-O3",
                "-fvisibility=hidden",
                # The same steps on every level: no fused multiply-add.
                "-ffp-contract=off",
                "-fno-math-errno",
                "-fno-trapping-math",
                "-g0",
            ],
            extra_link_args=["-lm", "-Wl,-s"],
        )
    ]
)
