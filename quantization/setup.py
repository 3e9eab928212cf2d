"""Build the kernels: one extension in C, with every instruction-set level in it."""

from __future__ import annotations

import os

from setuptools import Extension, setup

# Built beside the core, it is compiled against the core's sources.
INCLUDE = os.environ.get("TANGRAD_INCLUDE")
if INCLUDE is None:
    from tangrad.plugin import include_directory

    INCLUDE = include_directory()

NATIVE = "src/tangrad_quantization/native"

setup(
    ext_modules=[
        Extension(
            "tangrad_quantization._kernels",
            [f"{NATIVE}/{name}.c" for name in ("kernels", "convolution", "direct", "levels")],
            include_dirs=[INCLUDE, NATIVE],
            depends=[
                f"{NATIVE}/{name}.h"
                for name in (
                    *("call", "convolution", "level", "gemm_level", "avx2_product", "amx_product"),
                    *("vnni_product", "finish_level", "fused_level", "depthwise_level"),
                    "groups_level",
                )
            ],
            extra_compile_args=[
                "-std=gnu11",
                "-O3",
                "-fvisibility=hidden",
                # The same steps in float32 on every level: no fused multiply-add.
                "-ffp-contract=off",
                "-fno-math-errno",
                "-fno-trapping-math",
                "-g0",
            ],
            extra_link_args=["-lm", "-Wl,-s"],
        )
    ]
)
