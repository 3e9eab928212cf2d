"""Build a wheel of every package in this repository into dist/, or of those that are wanted.

The packages pin each other and are on no index while they are being built, so they are installed
from this folder: ``pip install --find-links dist "tangrad[cpu]"``.  A wheel is kept while the
sources it was made from are unchanged.

``build_wheelhouse.py "tangrad[standard]"`` builds what that installs, and leaves out the rest.

Kernels are compiled for the instruction-set level of this machine, which takes a third of the time
that all levels take; ``--portable`` compiles all, for wheels that go elsewhere.

What is made from the core's definitions waits for the core; everything else is built beside it,
what needs its headers alone too, and that first. All wheels are built in one environment,
dist/.tools-*, because an isolated one for each takes longer to make than most wheels.  A package
may say more of its build::

    [tool.tangrad.build]
    variables = ["TANGRAD_SANITIZE"]  # of the environment, on which its wheel depends
    early = "compile_early"           # command of its setup.py that needs the core's sources only
    needs = "headers"                 # of the core: setup.py finds them in TANGRAD_INCLUDE
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import venv
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from backend_cpu.render.levels import of_this_machine

ROOT = Path(__file__).resolve().parent
DIST = ROOT / "dist"
CORE = ROOT / "core"
PLACES = ("backend_*", "backend_*/*", "quantization", "plugins/*")
# What a build leaves behind in a package's folder, and what has no influence on the wheel.
NOT_SOURCES = {"build", "tests", "__pycache__"}
GENERATED = {"_index.py"}
# The package of the whole repository has no modules.
OF_THE_WHOLE = ("pyproject.toml", "README.md", "LICENSE")
SOURCE_SUFFIXES = frozenset(
    ".py .pyi .pyx .pxi .pxd .h .hpp .cpp .cl .cu .toml .json .in .typed .md".split()
)
STARTED = time.monotonic()


def main() -> None:
    """Build what is missing or out of date and list the wheelhouse."""
    global DIST
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wanted", nargs="*", help='such as "tangrad[standard]" (default: all)')
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="builds at once")
    parser.add_argument("--force", action="store_true", help="rebuild even what is up to date")
    parser.add_argument("--portable", action="store_true", help="compile every level of x86-64")
    parser.add_argument("--out", type=Path, default=DIST, help="another folder than dist/")
    arguments = parser.parse_args()
    DIST = arguments.out.resolve()
    choose_levels(arguments.portable)
    if arguments.force:
        shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir(parents=True, exist_ok=True)
    build_all(arguments.jobs, arguments.wanted)
    for wheel in sorted(DIST.glob("*.whl")):
        print(f"{os.path.relpath(wheel, ROOT)}  {wheel.stat().st_size / 2**20:.2f} MiB")


def choose_levels(portable: bool) -> None:
    """Have kernels compiled for all levels, or for what TANGRAD_LEVELS or this machine says."""
    if portable:
        os.environ.pop("TANGRAD_LEVELS", None)
    else:
        os.environ.setdefault("TANGRAD_LEVELS", of_this_machine())


def build_all(jobs: int, wanted: Sequence[str] = ()) -> None:
    """Build the core, beside it what does not wait for it, then the rest.

    Args:
        jobs: builds at once.
        wanted: requirements; only what they need is built, or all if there are none.
    """
    chosen = needed_for(wanted) if wanted else package_folders()
    digests = {folder: digest for folder, digest in all_digests().items() if folder in chosen}
    missing = [folder for folder, digest in digests.items() if not is_built(folder, digest)]
    if not missing:
        return
    tools = prepare_tools(list(digests))
    if CORE in missing:
        _remove_ours(tools)
    after = [folder for folder in missing if _waits_for_the_core(folder)]
    beside = [folder for folder in missing if folder not in (CORE, *after)]
    # What is compiled takes longest.
    beside.sort(key=lambda folder: not _compiles_against_the_core(folder))
    # What can begin early comes last, and begins while the others are built.
    after = [folder for folder in in_order_of_need(after, digests) if folder in missing]
    after.sort(key=lambda folder: _settings(folder).get("early") is not None)
    enough = threading.Event()

    def use_the_other_processor() -> None:
        for folder in beside:
            build(folder, digests[folder], 1, tools)
        for folder in after:
            _begin(folder, tools, enough)

    with ThreadPoolExecutor(1) as pool:
        # The core is one long file.
        other = pool.submit(use_the_other_processor)
        try:
            if CORE in missing:
                build(CORE, digests[CORE], jobs, tools)
            if after:
                _install(CORE, tools)
                for folder in in_order_of_need(after, digests):
                    if folder not in missing:
                        _install(folder, tools)
            for folder in after:
                if _settings(folder).get("early") is not None:
                    enough.set()
                    other.result()
                build(folder, digests[folder], jobs, tools)
                if any(folder in _needed_to_build(later, digests) for later in after):
                    _install(folder, tools)
        finally:
            enough.set()
        other.result()


def in_order_of_need(folders: Sequence[Path], known: Iterable[Path]) -> list[Path]:
    """Return the folders with those that they need to build, each after what it needs."""
    ordered: list[Path] = []
    for folder in folders:
        needed = in_order_of_need(_needed_to_build(folder, known), known)
        ordered += [other for other in (*needed, folder) if other not in ordered]
    return ordered


def _needed_to_build(folder: Path, known: Iterable[Path]) -> list[Path]:
    """Return the packages of this repository, the core aside, that must be there to build one."""
    wanted = {_plain_name(line) for line in _read(folder)["build-system"]["requires"]}
    return [other for other in known if other != CORE and _read(other)["project"]["name"] in wanted]


def package_folders() -> list[Path]:
    """Return the folders of all packages of this repository, the core's first.

    The repository's own is the last: the package without modules that requires the others.
    """
    found = {path.parent for place in PLACES for path in ROOT.glob(f"{place}/pyproject.toml")}
    whole = [ROOT] if (ROOT / "pyproject.toml").exists() else []
    return [CORE, *sorted(found), *whole]


def needed_for(wanted: Sequence[str]) -> list[Path]:
    """Return the folders of the packages that some requirements need, the core's first.

    Args:
        wanted: names of packages of this repository, with extras.

    Raises:
        SystemExit: there is no such package here.
    """
    folders = {_read(folder)["project"]["name"]: folder for folder in package_folders()}
    found, left, seen = [CORE], list(wanted), set()
    while left:
        requirement = left.pop()
        if requirement in seen:
            continue
        seen.add(requirement)
        name, extras = _plain_name(requirement), requirement.partition("[")[2]
        if name not in folders:
            raise SystemExit(f"there is no package {name} here, only {', '.join(sorted(folders))}")
        document = _read(folders[name])
        project = document["project"]
        lists = [project.get("dependencies", ()), document["build-system"]["requires"]]
        for extra in filter(None, map(str.strip, extras.partition("]")[0].split(","))):
            if extra not in project.get("optional-dependencies", {}):
                raise SystemExit(f"{name} has no extra {extra}")
            lists.append(project["optional-dependencies"][extra])
        left += [line for lines in lists for line in lines if _is_ours(line)]
        if folders[name] not in found:
            found.append(folders[name])
    return found


def all_digests() -> dict[Path, str]:
    """Return the digest of each package's sources, by folder, the core's first."""
    core = digest_of(CORE)
    others = package_folders()[1:]
    digests = {CORE: core}
    for folder in in_order_of_need(others, others):
        needed = [core] if _compiles_against_the_core(folder) else []
        needed += [digests[other] for other in _needed_to_build(folder, others)]
        digests[folder] = digest_of(folder, "".join(needed))
    return {folder: digests[folder] for folder in (CORE, *others)}


def is_built(package: Path, digest: str) -> bool:
    """Say whether the wheelhouse holds the wheel of these sources."""
    known = _recorded(package)
    return known.get("digest") == digest and (DIST / known["wheel"]).exists()


def build(package: Path, digest: str, jobs: int, tools: Path) -> None:
    """Build the wheel of `package` in the place of the one before it.

    Args:
        package: folder of the package.
        digest: of its sources.
        jobs: files to compile at once.
        tools: the Python to build with.
    """
    name = _read(package)["project"]["name"]
    _tell(f"building {name}")
    wheel = _build_wheel(package, jobs, tools)
    if known := _recorded(package):
        (DIST / known["wheel"]).unlink(missing_ok=True)
    shutil.move(wheel, DIST / wheel.name)
    shutil.rmtree(wheel.parent)
    record = json.dumps({"digest": digest, "wheel": wheel.name})
    _record_of(package).write_text(record, "utf-8")
    _tell(f"built {wheel.name}")


def _begin(package: Path, tools: Path, enough: threading.Event) -> None:
    """Do what a package can do without the core, until the core is there."""
    command = _settings(package).get("early")
    if command is None or enough.is_set():
        return
    name = _read(package)["project"]["name"]
    _tell(f"beginning {name}")
    with subprocess.Popen(
        [str(tools), "setup.py", "--quiet", command, f"--include={_headers()}"],
        cwd=package,
        env={**os.environ, "TANGRAD_JOBS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        # What fails here fails again in the build, which tells why.
        while process.poll() is None and not enough.wait(0.1):
            pass
        process.terminate()


def prepare_tools(folders: Sequence[Path]) -> Path:
    """Return a Python that has what the packages are built with, ours left out."""
    wanted = sorted({line for folder in folders for line in _build_requirements(folder)})
    folder = DIST / f".tools-{sys.implementation.cache_tag}"
    python, record = folder / "bin" / "python", folder / "requirements.json"
    has = json.loads(record.read_text("utf-8")) if record.exists() and python.exists() else []
    if sys.version not in has or not {*wanted} <= {*has}:
        _tell("preparing the tools: " + ", ".join(wanted))
        venv.create(folder, clear=True, symlinks=True)
        _pip(python, "install", *wanted)
        record.write_text(json.dumps([sys.version, *wanted]), "utf-8")
    return python


def _build_requirements(package: Path) -> list[str]:
    """Return what a package is built with; besides, what a core needs that others import."""
    document = _read(package)
    lines = list(document["build-system"]["requires"])
    if package == CORE:
        lines += document["project"]["dependencies"]
    return [line for line in lines if not _is_ours(line)]


def _compiles_against_the_core(package: Path) -> bool:
    return any(_is_ours(line) for line in _read(package)["build-system"]["requires"])


def _waits_for_the_core(package: Path) -> bool:
    return _compiles_against_the_core(package) and _settings(package).get("needs") != "headers"


def _headers() -> Path:
    """Return the folder of the core's headers, which is the same in its sources and installed."""
    return CORE / "src" / "tangrad"


def _plain_name(requirement: str) -> str:
    """Return the name that a requirement starts with."""
    return re.split(r"[\[\s~<>=!;]", requirement.strip(), maxsplit=1)[0]


def _is_ours(requirement: str) -> bool:
    return re.match(r"tangrad(?![A-Za-z0-9])", requirement) is not None


def _install(package: Path, tools: Path) -> None:
    """Install a wheel of ours where others are built."""
    wheel = DIST / _recorded(package)["wheel"]
    _pip(tools, "install", "--no-deps", "--no-index", "--force-reinstall", str(wheel))


def _remove_ours(tools: Path) -> None:
    """Uninstall what an earlier build has installed: the core's stubs tell of all that is there."""
    places = tools.parents[1].glob("lib/python*/site-packages/tangrad*.dist-info")
    names = [place.name.partition("-")[0] for place in places]
    if names:
        _pip(tools, "uninstall", "--yes", *names)


def _build_wheel(package: Path, jobs: int, tools: Path) -> Path:
    """Build `package` and return the wheel in a new folder."""
    # setuptools packs whatever it finds there, modules deleted since the last build included.
    for collected in package.glob("build/lib*"):
        shutil.rmtree(collected)
    target = Path(tempfile.mkdtemp(prefix=".building-", dir=DIST))
    variables = {"TANGRAD_JOBS": str(jobs)}
    if _settings(package).get("needs") == "headers":
        variables["TANGRAD_INCLUDE"] = str(_headers())
    # pip would start four interpreters, which takes longer than most builds.
    program = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"
    try:
        _run([str(tools), "-P", "-c", program, str(target)], package, **variables)
    except BaseException:
        shutil.rmtree(target)
        raise
    (wheel,) = target.glob("*.whl")
    return wheel


def _pip(python: Path, *arguments: str) -> None:
    """Run pip for another Python."""
    command = [sys.executable, "-m", "pip", "--python", str(python), *arguments]
    _run(command, ROOT, PIP_DISABLE_PIP_VERSION_CHECK="1")


def _run(command: list[str], folder: Path, **variables: str) -> None:
    """Run a command in a folder, showing the lines that a build prints for people.

    Raises:
        SystemExit: it failed; holds what it printed.
    """
    said = []
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if "progress:" in line:
                _tell(line.partition("progress:")[2].strip())
    if process.returncode:
        raise SystemExit(f"{''.join(said)}\nfailed: {' '.join(command)}")


def _tell(text: str) -> None:
    print(f"{time.monotonic() - STARTED:5.0f} s  {text}", flush=True)


def _record_of(package: Path) -> Path:
    # Wheels for several interpreters stand side by side.
    name = _read(package)["project"]["name"]
    return DIST / f".{name}-{sys.implementation.cache_tag}.json"


def _recorded(package: Path) -> dict[str, str]:
    path = _record_of(package)
    known: dict[str, str] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return known


def _read(package: Path) -> dict[str, Any]:
    return tomllib.loads((package / "pyproject.toml").read_text("utf-8"))


def _settings(package: Path) -> dict[str, Any]:
    """Return what a package says of its build."""
    found: dict[str, Any] = _read(package).get("tool", {}).get("tangrad", {}).get("build", {})
    return found


def digest_of(package: Path, depends: str = "") -> str:
    """Hash the sources of `package` with everything else that its wheel depends on.

    Args:
        package: its folder.
        depends: digest of what it compiles against.
    """
    variables = _settings(package).get("variables", ())
    settings = [f"{name}={os.environ.get(name, '')}" for name in variables]
    total = hashlib.sha256("\0".join([depends, sys.version, *settings]).encode())
    for path in _sources(package):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(package)} {content}\n".encode())
    return total.hexdigest()


def _sources(package: Path) -> Iterator[Path]:
    if package == ROOT:
        yield from (ROOT / name for name in OF_THE_WHOLE)
        return
    # The emulator of a device has a folder of its own inside the device's.
    nested = {folder for folder in package_folders() if package in folder.parents}
    for path in sorted(package.rglob("*")):
        inside = path.relative_to(package)
        if NOT_SOURCES.intersection(inside.parts) or path.name in GENERATED:
            continue
        if nested.intersection(path.parents):
            continue
        # A C file beside a Cython file of the same name is what Cython made of it.
        is_handwritten_c = path.suffix == ".c" and not path.with_suffix(".pyx").exists()
        if path.is_file() and (path.suffix in SOURCE_SUFFIXES or is_handwritten_c):
            yield path


if __name__ == "__main__":
    main()
