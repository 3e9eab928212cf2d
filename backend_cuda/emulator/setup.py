"""Compile the stand-in for the driver library against NVIDIA's header."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = Path(__file__).resolve().parent
NATIVE = HERE / "src" / "tangrad_cuda_emulator" / "native"
HEADER_WHEELS = ("nvidia-cuda-runtime", "nvidia-cuda-profiler-api")
FLAGS = (
    "-std=c++17 -O1 -g0 -fPIC -frounding-math -Wall -Wextra -Wno-deprecated-declarations".split()
)

DECLARED = re.compile(r"CUDAAPI\s+(cu[A-Z]\w*)\s*\(")
RENAMED = re.compile(r"#\s*define\s+cu[A-Z]\w*\s+(?:__CUDA_API_\w+\(\s*)?(cu[A-Z]\w*)")
ERROR = re.compile(r"\b(CUDA_(?:SUCCESS|ERROR_\w+))\s*=\s*\d+")


class BuildLibrary(build_py):
    """Put libcuda.so.1 beside the Python files."""

    def run(self) -> None:
        super().run()
        target = HERE / "src" if self.editable_mode else Path(self.build_lib)
        made = target / "tangrad_cuda_emulator" / "lib"
        made.mkdir(parents=True, exist_ok=True)
        compile_library(made / "libcuda.so.1")


class PlatformDistribution(Distribution):
    """Have the wheel named after the platform, though Python itself loads nothing of it."""

    def has_ext_modules(self) -> bool:
        return True


def compile_library(library: Path) -> None:
    """Compile what is in native/, with an answer for every function that it lacks."""
    includes = [folder for name in HEADER_WHEELS for folder in include_folders(name)]
    folder = HERE / "build" / "native"
    folder.mkdir(parents=True, exist_ok=True)
    headers = "\n".join(path.read_text("utf-8") for path in headers_of(includes))
    write(folder / "error_names.inc", error_names(headers))
    sources = sorted(NATIVE.glob("*.cpp"))
    flags = [*FLAGS, f'-DTANGRAD_NATIVE="{NATIVE}"', f"-I{NATIVE}", f"-I{folder}"]
    flags += [f"-isystem{path}" for path in includes]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda source: compile_one(source, folder, flags), sources))
    absent = folder / "absent.cpp"
    write(absent, absent_functions(headers, objects))
    objects.append(compile_one(absent, folder, FLAGS))
    script = folder / "exports.map"
    write(script, "{ global: cu[A-Z]*; tangrad_emulator_*; local: *; };\n")
    call(
        "g++",
        "-shared",
        "-Wl,-soname,libcuda.so.1",
        f"-Wl,--version-script={script}",
        "-Wl,-s",
        "-static-libstdc++",
        "-static-libgcc",
        "-o",
        str(library),
        *map(str, objects),
        "-ldl",
        "-pthread",
    )


def include_folders(wheel: str) -> list[Path]:
    """Return where the headers of a wheel of NVIDIA's lie."""
    files = distribution(wheel).files or ()
    found = {Path(str(file.locate())).parent for file in files if file.suffix == ".h"}
    return sorted(folder for folder in found if folder.name == "include")


def headers_of(includes: list[Path]) -> list[Path]:
    """Return the headers that declare the driver's functions."""
    names = ("cuda.h", "cudaProfiler.h")
    return [folder / name for folder in includes for name in names if (folder / name).exists()]


def error_names(headers: str) -> str:
    """Return a row of a table for each error that the headers know."""
    names = dict.fromkeys(ERROR.findall(headers))
    return "".join(f'{{{name}, "{name}"}},\n' for name in names)


def absent_functions(headers: str, objects: list[Path]) -> str:
    """Return functions that answer for what the emulator lacks.

    Their parameters do not matter to what they do, and the header that would check them is not
    included here.
    """
    listed = call("nm", "--defined-only", "--extern-only", "-fposix", *map(str, objects))
    present = {line.split()[0] for line in listed.splitlines() if line and not line.endswith(":")}
    absent = sorted({*DECLARED.findall(headers), *RENAMED.findall(headers)} - present)
    lines = [
        f'extern "C" __attribute__((visibility("default"))) int {name}() {{ return 801; }}'
        for name in absent
    ]
    return "// 801 is CUDA_ERROR_NOT_SUPPORTED.\n" + "\n".join(lines) + "\n"


def compile_one(source: Path, folder: Path, flags: list[str]) -> Path:
    """Compile one file unless its object is newer than everything it may be made of."""
    target = folder / f"{source.stem}.o"
    newest = max(path.stat().st_mtime for path in (source, *NATIVE.glob("*.h*"), Path(__file__)))
    if not target.exists() or target.stat().st_mtime < newest:
        call("g++", *flags, "-c", "-o", str(target), str(source))
    return target


def write(path: Path, text: str) -> None:
    """Write a file unless it says that already."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def call(*command: str) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}\nfailed: {' '.join(command)}")
    if done.stderr:
        print(done.stderr, file=sys.stderr)
    return done.stdout


setup(cmdclass={"build_py": BuildLibrary}, distclass=PlatformDistribution)
