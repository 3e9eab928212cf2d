"""Build pycuda where no CUDA toolkit is, and install it with NVRTC.

pycuda is published as sources alone and needs CUDA's headers and a driver library to link with.
The headers are in wheels of NVIDIA's; the driver library comes with a GPU's driver and with
nothing else, so a stub of it is made here: a library of that name which defines every function that
the headers declare.  It is linked with and thrown away; what runs is the driver of the machine.  A
stub without the symbols would not do: linkers that drop unneeded libraries would drop it.

A wheel that was built is kept in the user's cache, and taken from there the next time.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: What is built where nothing else is asked for.
PYCUDA = "2026.1"
#: What pycuda imports when it runs.
RUN_TIME = ("pytools>=2011.2", "platformdirs>=2.2.0", "mako", "numpy>=1.26")


@dataclass(frozen=True)
class Toolkit:
    """Name the wheels that stand for one major version of the CUDA toolkit.

    Attributes:
        headers: wheels that hold ``cuda.h`` and ``cudaProfiler.h`` with what they include.
        compiler: the wheel of NVRTC.
        oldest_driver: the first driver, by the number that it tells, that runs what is built.
    """

    headers: tuple[str, ...]
    compiler: str
    oldest_driver: int


TOOLKITS = {
    12: Toolkit(
        ("nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cuda-profiler-api-cu12==12.9.79"),
        "nvidia-cuda-nvrtc-cu12>=12.6,<13",
        12000,
    ),
    13: Toolkit(
        ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-profiler-api==13.0.85"),
        "nvidia-cuda-nvrtc>=13.0,<14",
        13000,
    ),
}

#: How the headers declare a function, and how they give it the name of its newest form.
_DECLARED = re.compile(r"CUDAAPI\s+(cu[A-Z]\w*)\s*\(")
_RENAMED = re.compile(r"#\s*define\s+cu[A-Z]\w*\s+(?:__CUDA_API_\w+\(\s*)?(cu[A-Z]\w*)")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build pycuda's wheel, then install it, or leave it in a folder.

    Args:
        arguments: those of the command line; the process's own by default.

    Raises:
        SystemExit: when a step fails; what it printed is shown.
    """
    options = _parser().parse_args(arguments)
    major = options.cuda or _major_of_the_driver()
    wheel = build(options.pycuda, major, cache=options.cache, tell=print)
    if options.wheel_dir:
        options.wheel_dir.mkdir(parents=True, exist_ok=True)
        print(shutil.copy(wheel, options.wheel_dir))
        return
    print(f"installing pycuda, NVRTC {major} and what they need", flush=True)
    _pip("install", str(wheel), TOOLKITS[major].compiler, *RUN_TIME)
    print("done: `python -m tangrad info` tells whether a GPU is found")


def build(
    version: str = PYCUDA,
    major: int = 13,
    *,
    cache: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Path:
    """Return a wheel of pycuda for this Python, built unless the cache holds it.

    Args:
        version: of pycuda.
        major: of the CUDA toolkit whose headers are used; a driver of the same or a later one runs
            what is built.
        cache: folder that keeps the wheels; by default below the user's cache.
        tell: is called with a line about each step.

    Raises:
        SystemExit: when a step fails, or there is no C++ compiler.
    """
    toolkit = TOOLKITS[major]
    kept = (cache or default_cache()) / _key(version, toolkit)
    if wheels := sorted(kept.glob("*.whl")):
        tell(f"pycuda {version} was built before: {wheels[0]}")
        return wheels[0]
    compiler = _find_compiler()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pycuda-", dir=kept.parent) as name:
        folder = Path(name)
        tell(f"fetching the sources of pycuda {version}")
        sources = fetch_sources(version, folder)
        tell(f"fetching CUDA's headers: {', '.join(toolkit.headers)}")
        include = fetch_headers(toolkit, folder)
        tell("making a stub of the driver library to link with")
        stub = make_stub(include, folder, compiler)
        _configure(sources, include, stub)
        tell("compiling pycuda, which takes about three minutes")
        done = folder / "done"
        environment = {"CFLAGS": f"{os.environ.get('CFLAGS', '')} -O1 -g0"}
        _pip("wheel", "--no-deps", "--wheel-dir", str(done), str(sources), **environment)
        # Another process may have been faster; what it made is as good.
        if not kept.exists():
            done.replace(kept)
    return next(kept.glob("*.whl"))


def default_cache() -> Path:
    """Return the folder below which built wheels of pycuda are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tangrad" / "pycuda"


def fetch_sources(version: str, folder: Path) -> Path:
    """Fetch and unpack pycuda's sources into `folder`, and return where they are."""
    target = folder / "sources"
    wanted = f"pycuda=={version}"
    _pip("download", "--no-deps", "--no-binary", "pycuda", "--dest", str(target), wanted)
    with tarfile.open(next(target.glob("*.tar.gz"))) as archive:
        archive.extractall(target, filter="data")
    return next(path for path in target.iterdir() if path.is_dir())


def fetch_headers(toolkit: Toolkit, folder: Path) -> Path:
    """Unpack the wheels of `toolkit` and return one folder that holds their headers."""
    unpacked, include = folder / "wheels", folder / "include"
    _pip("install", "--no-deps", "--target", str(unpacked), *toolkit.headers)
    for header in unpacked.glob("nvidia/**/include"):
        shutil.copytree(header, include, dirs_exist_ok=True)
    return include


def make_stub(include: Path, folder: Path, compiler: str) -> Path:
    """Compile a library that defines what ``cuda.h`` declares, and return its folder."""
    target = folder / "stub"
    target.mkdir()
    names = declared_functions(include / name for name in ("cuda.h", "cudaProfiler.h"))
    source = target / "stub.c"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names), "utf-8")
    command = [compiler, "-xc", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1"]
    _call([*command, "-o", str(target / "libcuda.so"), str(source)])
    return target


def declared_functions(headers: Iterable[Path]) -> list[str]:
    """Return the names of the driver's functions that `headers` declare, in all their forms."""
    text = "\n".join(header.read_text("utf-8", "replace") for header in headers)
    return sorted({*_DECLARED.findall(text), *_RENAMED.findall(text)})


def _configure(sources: Path, include: Path, stub: Path) -> None:
    settings = {
        "CUDA_INC_DIR": [str(include)],
        "CUDADRV_LIB_DIR": [str(stub)],
        "CUDADRV_LIBNAME": ["cuda"],
        # Neither is used, and each would need a library more.
        "CUDA_ENABLE_CURAND": False,
        "CUDA_ENABLE_GL": False,
    }
    lines = "".join(f"{name} = {value!r}\n" for name, value in settings.items())
    (sources / "siteconf.py").write_text(lines, "utf-8")


def _key(version: str, toolkit: Toolkit) -> str:
    """Return a name that differs where the wheels would."""
    told = "\0".join((version, *toolkit.headers, sysconfig.get_platform(), sys.version))
    digest = hashlib.sha256(told.encode()).hexdigest()[:12]
    return f"{version}-{sys.implementation.cache_tag}-{digest}"


def _major_of_the_driver() -> int:
    """Return the newest toolkit that the driver of this machine runs; without one, the newest."""
    told = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(told))
    except OSError:
        return max(TOOLKITS)
    runs = [major for major, each in TOOLKITS.items() if told.value >= each.oldest_driver]
    if failed or not runs:
        oldest = min(TOOLKITS)
        raise SystemExit(
            f"the NVIDIA driver here knows CUDA {told.value // 1000}.{told.value % 1000 // 10}; "
            f"tangrad-cuda needs one for CUDA {oldest} or newer: update the driver"
        )
    return max(runs)


def _find_compiler() -> str:
    found = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")
    if found is None:
        raise SystemExit(
            "pycuda is C++, and no compiler is found here: install g++, or name one by CXX"
        )
    return found


def _pip(*arguments: str, **variables: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    _call([sys.executable, "-m", "pip", arguments[0], *quiet, *arguments[1:]], **variables)


def _call(command: list[str], **variables: str) -> None:
    """Run a command without its output, unless it fails."""
    done = subprocess.run(
        command,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nfailed: {' '.join(command)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tangrad_cuda install",
        description="Build pycuda from its sources and NVIDIA's header wheels, without a toolkit.",
    )
    add = parser.add_argument
    add("--wheel-dir", type=Path, metavar="DIR", help="leave the wheel in DIR, install nothing")
    add(
        "--cuda",
        type=int,
        choices=sorted(TOOLKITS),
        help="default: what the driver runs",
    )
    add("--pycuda", default=PYCUDA, metavar="VERSION", help="version of pycuda (%(default)s)")
    add("--cache", type=Path, metavar="DIR", help="where built wheels are kept")
    return parser


if __name__ == "__main__":
    main()
