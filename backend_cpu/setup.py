"""Build the CPU backend: render kernels from the core's definitions, compile each per level.

Environment:
    TANGRAD_JOBS: number of files compiled at once (default: all cores).
    TANGRAD_LEVELS: instruction-set levels to build, such as "avx512" (default: all).
    TANGRAD_SANITIZE: such as "address,undefined"; compiles the sanitizers in.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
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
# Hundreds of plain loops: what remains of each gets neither a second vector loop, of half the
# width, nor one unrolled, which take longer to compile than the loop itself.
PLAIN = ["--param=vect-epilogues-nomask=0", "-fno-peel-loops"]
SANITIZE = os.environ.get("TANGRAD_SANITIZE", "")

LEVELS: dict[str, list[str]] = {"baseline": []}
# The platform that is built for: cross-builds set it in _PYTHON_HOST_PLATFORM.
if sysconfig.get_platform().endswith(("x86_64", "amd64")):
    LEVELS = X86_64

if os.environ.get("TANGRAD_LEVELS"):
    LEVELS = {name: LEVELS[name] for name in os.environ["TANGRAD_LEVELS"].split(",")}

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
        generated = write_sources(folder, list(LEVELS), self.kernel_files())
        include = [include_directory(), str(NATIVE), str(folder), sysconfig.get_path("include")]
        shared = [NATIVE / name for name in SHARED]
        shared += [folder / "tables.c", folder / "special.c"]
        # With the others, not by setuptools after them, when one core would stand idle.
        shared += [Path(source) for source in ext.sources]
        ext.sources = []
        work = [(path, None) for path in shared]
        work += [(path, level) for path in [*self.kernel_files(), *generated] for level in LEVELS]
        # The largest files first: the last to finish decides how long all take.
        work.sort(key=lambda item: -item[0].stat().st_size)
        jobs = int(os.environ.get("TANGRAD_JOBS") or os.cpu_count() or 1)
        with ThreadPoolExecutor(jobs) as pool:
            objects = list(pool.map(lambda item: self.compile(*item, include), work))
        ext.extra_objects = [str(path) for path in objects]
        # Else setuptools looks at the Cython source only, and does not link again.
        ext.depends = ext.extra_objects
        ext.include_dirs = include
        super().build_extension(ext)

    def kernel_files(self) -> list[Path]:
        """Return the handwritten kernel files."""
        return sorted(path for path in NATIVE.rglob("*.c") if path.name not in SHARED)

    def compile(self, source: Path, level: str | None, include: list[str]) -> Path:
        """Compile one file for one level, unless the object is newer than all it is made of."""
        target = Path(self.build_temp) / "objects" / f"{source.stem}.{level or 'shared'}.o"
        target.parent.mkdir(parents=True, exist_ok=True)
        depends = [source, *NATIVE.rglob("*.h"), *source.parent.glob("*.h")]
        if target.exists() and not self.force:
            built = target.stat().st_mtime
            if all(path.stat().st_mtime < built for path in depends):
                return target
        compiler = os.environ.get("CC", sysconfig.get_config_var("CC") or "cc").split()
        if level is None:
            flags = ["-O2"]
        else:
            flags = ["-O3"] if source.name in INLINING else USUAL
            flags = [*flags, *(PLAIN if source.name.startswith("pointwise_") else [])]
            flags = [*flags, f"-DTGC_LEVEL={level}", *LEVELS[level]]
        paths = [f"-I{path}" for path in include]
        command = [*compiler, *FLAGS, *flags, *paths, "-c", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        return target


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
    cmdclass={"build_ext": BuildKernels},
)
