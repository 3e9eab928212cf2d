"""Build the compiled part of the core and the index of its op definitions.

Environment:
    TANGRAD_COVERAGE: "1" compiles line tracing into the extensions, for coverage of Cython.
    TANGRAD_JOBS: number of extensions compiled at once (default 1).
    TANGRAD_SANITIZE: such as "address,undefined"; compiles the sanitizers in.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
PACKAGE = Path("src/tangrad")
NATIVE_C = sorted(str(path) for path in (PACKAGE / "native").rglob("*.c"))
COVERAGE = os.environ.get("TANGRAD_COVERAGE") == "1"

COMPILE_FLAGS = [
    # An expression means the same on every device: no fused multiply-add unless it says fma.
    "-ffp-contract=off",
    "-fvisibility=hidden",
    # Calls inside the library are direct, and calls out of it skip the procedure linkage table.
    "-fno-semantic-interposition",
    "-fno-plt",
    "-g0",
    # No exception passes through C: tables to unwind it are a fifteenth of the extension.
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-pthread",
    # What GCC 14 refuses is refused by every compiler, so that it is seen here.
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
    "-Werror=implicit-function-declaration",
]
# The symbol table goes: it is a tenth of the extension, and nobody else looks a name up in it. Code
# and constants share pages: each extension is a page smaller.
LINK_FLAGS = ["-pthread"]
if sys.platform == "linux":
    LINK_FLAGS += ["-Wl,--strip-all", "-Wl,-z,noseparate-code"]
SANITIZE = os.environ.get("TANGRAD_SANITIZE", "")
if SANITIZE:  # what is found is told by names and lines
    COMPILE_FLAGS += [f"-fsanitize={SANITIZE}", "-g1", "-fno-omit-frame-pointer"]
    LINK_FLAGS = ["-pthread", f"-fsanitize={SANITIZE}"]


def extension(name: str, *sources: str, optimize: str = "-O2") -> Extension:
    """Describe one extension module, rebuilt when anything it includes has changed."""
    included = [path for pattern in ("*.pxi", "*.h", "*.pxd") for path in PACKAGE.rglob(pattern)]
    return Extension(
        name,
        list(sources),
        include_dirs=[str(PACKAGE), str(PACKAGE / "native"), str(PACKAGE / "serialization")],
        depends=sorted(str(path) for path in included),
        define_macros=[("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")] if COVERAGE else [],
        libraries=["m"],
        extra_compile_args=[optimize, *COMPILE_FLAGS],
        extra_link_args=LINK_FLAGS,
    )


class BuildModules(build_py):
    """Write the index of op definitions, collect the Python modules, and pack their data."""

    def run(self) -> None:
        # By its path: the package cannot be imported before it is built.
        place = HERE / PACKAGE / "ops" / "definition" / "indexing.py"
        spec = importlib.util.spec_from_file_location("indexing", place)
        indexing = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(indexing)
        indexing.build_index(HERE / PACKAGE / "ops")
        super().run()
        if not self.editable_mode:
            for data in Path(self.build_lib).rglob("*.json"):
                table = json.loads(data.read_text("utf-8"))
                for row in table.values():
                    if "refused" in row:  # whoever reads them splits at spaces, too
                        row["refused"] = [" ".join(row["refused"])]
                data.write_text(json.dumps(table, separators=(",", ":")), "utf-8")


class BuildExtensions(build_ext):
    """Compile as many extensions at once as TANGRAD_JOBS says."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or int(os.environ.get("TANGRAD_JOBS", "1"))

    def run(self) -> None:
        """Compile, then let the package that a wheel is made of describe itself in stubs."""
        super().run()
        built = Path(self.build_lib).resolve()
        if not self.inplace and (built / "tangrad" / "__init__.py").exists():
            environment = {**os.environ, "PYTHONPATH": str(built), "TANGRAD_DISABLE_PLUGINS": "1"}
            # -B: what stands there is packed, and compiled modules would double the wheel.
            command = [sys.executable, "-B", "-m", "tangrad.plugin.stubs", str(built)]
            command += ["--core", str(HERE / "stubs" / "_C.pyi")]
            subprocess.run(command, env=environment, check=True)


setup(
    ext_modules=cythonize(
        [
            extension("tangrad._C", f"{PACKAGE}/_C.pyx", *NATIVE_C),
            extension(
                "tangrad.serialization._checksum",
                f"{PACKAGE}/serialization/_checksum.pyx",
                f"{PACKAGE}/serialization/crc32.c",
                optimize="-Os",  # its loop is of intrinsics: as fast, and smaller by a tenth
            ),
        ],
        include_path=["src", str(PACKAGE)],
        compiler_directives={"language_level": 3, "linetrace": COVERAGE},
        # Line tracing changes the generated C but not its inputs' dates.
        force=COVERAGE,
    ),
    cmdclass={"build_py": BuildModules, "build_ext": BuildExtensions},
)
