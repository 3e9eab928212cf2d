"""Build the do-nothing backend against the tangrad that is importable, or a given header."""

import os

from setuptools import Extension, setup

from tangrad.plugin import include_directory

setup(
    name="noop-backend",
    version="0.1.0",
    ext_modules=[
        Extension(
            "noop_backend",
            ["noop_backend.c"],
            include_dirs=[os.environ.get("TANGRAD_INCLUDE") or include_directory()],
        )
    ],
)
