"""Build the CPU backend: render kernels from the core's definitions, compile each per level.

Environment:
    TANGRAD_JOBS: number of files compiled at once (default: all cores).
    TANGRAD_LEVELS: instruction-set levels to build, such as "avx512" (default: all).
    TANGRAD_SANITIZE: such as "address,undefined"; compiles the sanitizers in.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import ClassVar

from Cython.Build import cythonize
from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from render.levels import USUAL, X86_64  # noqa: E402

NATIVE = Path("src/tangrad_cpu/native")
# Compiled once; every other C file is a kernel file, compiled for each level.
SHARED = ("aligned.c", "pool.c", "support.c")
# Long functions have to be inlined into the loops of these files, which -O3 does: they are 1.5 to 7
# times as fast as by the usual flags. pointwise_loop.c is what every small operation goes through.
INLINING = (
    "pointwise_loop.c",
    "reduce_logsumexp.c",
    "reduce_norm_power.c",
    "scans.c",
    "sort.c",
    "vmath_special.c",
)
# The power of float64 is longer than what GCC puts into several loops of one file by itself.
LARGE = ("reduce_norm_power.c",)
GROWING = [
    "--param=max-inline-insns-single=2000",
    "--param=inline-unit-growth=2000",
    "--param=large-function-growth=20000",
]
# Hundreds of plain loops: what remains of each gets neither a second vector loop, of half the
# width, nor one unrolled, which take longer to compile than the loop itself.
PLAIN = ["--param=vect-epilogues-nomask=0", "-fno-peel-loops"]
SANITIZE = os.environ.get("TANGRAD_SANITIZE", "")

LEVELS: dict[str, list[str]] = {"baseline": []}
# The platform that is built for: cross-builds set it in _PYTHON_HOST_PLATFORM.
if sysconfig.get_platform().endswith(("x86_64", "amd64")):
    LEVELS = X86_64

ALL_LEVELS = list(LEVELS)
if os.environ.get("TANGRAD_LEVELS"):
    LEVELS = {name: LEVELS[name] for name in os.environ["TANGRAD_LEVELS"].split(",")}
# A wheel for some machines only carries their level in its name, where a build's number may stand.
ORIGIN = {} if list(LEVELS) == ALL_LEVELS else {"build_number": f"0{'.'.join(LEVELS)}"}

FLAGS = [
    "-std=gnu11",
    "-fPIC",
    "-fvisibility=hidden",
    # An expression means the same on every device: no fused multiply-add unless it says so.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-semantic-interposition",
    "-g0",
    "-pthread",
    *([f"-fsanitize={SANITIZE}", "-g1", "-fno-omit-frame-pointer"] if SANITIZE else []),
]
LINK_FLAGS = ["-pthread", "-lm", *([f"-fsanitize={SANITIZE}"] if SANITIZE else ["-Wl,-s"])]


class BuildKernels(build_ext):
    """Render, compile every kernel file for every level, and link all into one extension."""

    def build_extension(self, ext: Extension) -> None:
        from render.write import write_sources

        from tangrad.plugin import include_directory

        folder = Path(self.build_temp) / "generated"
        generated = write_sources(folder, list(LEVELS), kernel_files())
        # The extension with the others, not by setuptools after them, when one core would idle.
        shared = [folder / "tables.c", folder / "special.c", *map(Path, ext.sources)]
        ext.sources = []
        include = [include_directory(), str(NATIVE), str(folder), sysconfig.get_path("include")]
        work = handwritten() + [(path, None) for path in shared]
        work += [(path, level) for path in generated for level in LEVELS]
        ext.extra_objects = [str(path) for path in compile_all(work, include)]
        # Else setuptools looks at the Cython source only, and does not link again.
        ext.depends = ext.extra_objects
        ext.include_dirs = include
        super().build_extension(ext)


class CompileEarly(Command):
    """Compile what is written by hand: it needs the core's header, but no core that is built."""

    user_options: ClassVar = [("include=", None, "folder of the core's sources")]

    def initialize_options(self) -> None:
        self.include = ""

    def finalize_options(self) -> None:
        """Accept any folder: the compiler tells what is missing in it."""

    def run(self) -> None:
        """Leave the objects where the build of the extension looks for them."""
        include = [self.include, str(NATIVE), sysconfig.get_path("include")]
        compile_all(handwritten(), include)


def kernel_files() -> list[Path]:
    """Return the handwritten kernel files."""
    return sorted(path for path in NATIVE.rglob("*.c") if path.name not in SHARED)


def handwritten() -> list[tuple[Path, str | None]]:
    """Return the handwritten files with the levels that they are compiled for."""
    shared = [(NATIVE / name, None) for name in SHARED]
    return [*shared, *((path, level) for path in kernel_files() for level in LEVELS)]


def compile_all(work: list[tuple[Path, str | None]], include: list[str]) -> list[Path]:
    """Compile files, as many at once as TANGRAD_JOBS says, and tell how far it is.

    Args:
        work: C files with their levels.
        include: folders of headers, that of the core first, that of Python last.

    Returns:
        The objects.
    """
    # The largest files first: the last to finish decides how long all take.
    work = sorted(work, key=lambda item: -item[0].stat().st_size)
    headers = {
        path.relative_to(NATIVE).as_posix(): path.read_bytes() for path in NATIVE.rglob("*.h")
    }
    interface = "native/tangrad_abi.h"
    headers[interface] = (Path(include[0]) / interface).read_bytes()
    # One folder for all interpreters: kernels see nothing of Python, and are compiled once.
    folder = HERE / "build" / f"objects.{sysconfig.get_platform()}"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = int(os.environ.get("TANGRAD_JOBS") or os.cpu_count() or 1)
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(compile_one, *item, folder, include, headers) for item in work]
        for done, _ in enumerate(as_completed(running), 1):
            if done % max(1, len(work) // 8) == 0:
                print(f"progress: {done} of {len(work)} kernel files", flush=True)
    return [future.result() for future in running]


def compile_one(
    source: Path, level: str | None, folder: Path, include: list[str], headers: dict[str, bytes]
) -> Path:
    """Compile one file for one level, unless there is the object of just that.

    Args:
        source: C file.
        level: name of the level, or None for what all levels share.
        folder: where the object goes.
        include: folders of headers.
        headers: the contents of all headers, by their paths.
    """
    compiler = os.environ.get("CC", sysconfig.get_config_var("CC") or "cc").split()
    command = [*compiler, *FLAGS, *flags_of(source, level)]
    depends = [*command, included_by(source, headers), *([] if level else include[-1:])]
    key = hashlib.sha256(" ".join(depends).encode() + source.read_bytes()).hexdigest()
    stem = f"{source.stem}.{level or 'shared'}"
    target = folder / f"{stem}.{key[:16]}.o"
    if target.exists():
        return target
    # Those of other sources or flags are of no use any more.
    for old in folder.glob(f"{stem}.*"):
        old.unlink()
    part = folder / f"{stem}.{os.getpid()}.part"
    command += [*(f"-I{path}" for path in include), "-c", str(source), "-o", str(part)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return part.rename(target)


def flags_of(source: Path, level: str | None) -> list[str]:
    """Return the flags that a file is compiled with for a level."""
    if level is None:
        return ["-O2"]
    flags = ["-O3"] if source.name in INLINING else USUAL
    if source.name in LARGE:
        flags = [*flags, *GROWING]
    if source.name in LARGE or source.name.startswith("pointwise_"):
        flags = [*flags, *PLAIN]
    return [*flags, f"-DTGC_LEVEL={level}", *LEVELS[level]]


def included_by(source: Path, headers: dict[str, bytes]) -> str:
    """Hash the headers that a file includes, and those that they include.

    Args:
        source: C file.
        headers: contents by path, as files name them; a header beside another goes by its name.
    """
    folder = source.parent.relative_to(NATIVE) if source.is_relative_to(NATIVE) else Path()
    left, found = [(folder, source.read_bytes())], set()
    while left:
        folder, text = left.pop()
        for name in re.findall(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.MULTILINE):
            beside, named = (folder / name.decode()).as_posix(), name.decode()
            path = beside if beside in headers else named
            if path in headers and path not in found:
                found.add(path)
                left.append((Path(path).parent, headers[path]))
    total = hashlib.sha256()
    for path in sorted(found):
        total.update(f"{path}:{len(headers[path])}:".encode() + headers[path])
    return total.hexdigest()


setup(
    ext_modules=cythonize(
        [
            Extension(
                "tangrad_cpu._kernels",
                ["src/tangrad_cpu/_kernels.pyx"],
                extra_compile_args=["-O2", *FLAGS],
                extra_link_args=LINK_FLAGS,
            )
        ],
        compiler_directives={"language_level": 3},
    ),
    cmdclass={"build_ext": BuildKernels, "compile_early": CompileEarly},
    options={"bdist_wheel": ORIGIN},
)
