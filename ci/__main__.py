"""Run the tests from installed wheels, in the environment of this Python.

``python -m ci`` is the short form, meant for `tox run -e ci`: whatever of ours is installed is
replaced. ``python -m ci onnx cpu`` runs all tests of one combination of packages, and
``python -m ci --each`` those of every combination, one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build_wheelhouse import DIST, ROOT
from ci.packages import (
    CORE,
    CPU,
    Package,
    closure,
    combinations,
    installed_with,
    is_ours,
    minutes,
    read_packages,
    tests_of,
)

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
PROCESSES = os.environ.get("TANGRAD_TEST_PROCESSES", "2")
#: Each process begins with a half of the tests, so that neighbours share what they have prepared.
PYTEST = (
    *(sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "ci.shares"),
    *("-n", PROCESSES, "--dist", "worksteal"),
)
#: What has to work with nothing of ours but what pip installs with a package.
BY_ITSELF = """
import sys, tangrad
from importlib.metadata import distribution
for entry in distribution(sys.argv[1]).entry_points:
    entry.load()
x = tangrad.ones(2, requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2.0, 2.0]
"""


def main(words: Sequence[str]) -> int:
    """Do what the command line says and return the exit status."""
    at = words.index("--") if "--" in words else len(words)
    made = argparse.ArgumentParser(
        prog="python -m ci",
        description=(__doc__ or "").partition("\n")[0],
        epilog="What follows -- is for pytest.",
    )
    made.add_argument("combination", nargs="*", help="packages whose tests run: onnx cpu")
    made.add_argument("--each", action="store_true", help="run each combination, short form")
    made.add_argument("--list", action="store_true", help="show the packages' minutes")
    made.add_argument("--install", action="store_true", help="install the combination, or all")
    made.add_argument("--uninstall", action="store_true", help="remove every package of ours")
    arguments, extra = made.parse_args(words[:at]), words[at + 1 :]
    packages = read_packages()
    if arguments.list:
        return show(packages)
    if arguments.uninstall:
        return uninstall()
    if arguments.each:
        prepare(packages)
        os.environ["TANGRAD_TESTS"] = "fast"
        return max(run(packages, names, extra) for names in combinations(packages))
    wanted = names_of(packages, arguments.combination)
    prepare(packages, closure(packages, wanted))
    if arguments.install:
        return install(closure(packages, wanted))
    if arguments.combination:
        return run(packages, wanted, extra)
    short = ["-m", "not own_factor", *extra]
    return max(each_by_itself(packages), core_by_itself(packages), run(packages, wanted, short))


def show(packages: dict[str, Package]) -> int:
    """Print the minutes of the short form."""
    for package in packages.values():
        print(f"{package.minutes:>6.2f}  {package.factor}")
    print(f"{minutes(packages.values()):>6.2f}  with wheels, combinations and collection")
    return 0


def names_of(packages: dict[str, Package], factors: Sequence[str]) -> list[str]:
    """Return the packages that factors name; `full`, or none, means all.

    Args:
        packages: by name.
        factors: `onnx`, `cpu`; or one name of a tox environment, `py313-onnx-cpu`.

    Raises:
        SystemExit: there is no such package.
    """
    known = {package.factor: package.name for package in packages.values()}
    if len(factors) == 1 and factors[0] not in known:
        factors = [part for part in factors[0].split("-") if not re.fullmatch(r"py\d+", part)]
    if not factors or "full" in factors:
        return list(packages)
    if unknown := set(factors) - set(known):
        raise SystemExit(f"no package {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [known[factor] for factor in factors]


def prepare(packages: dict[str, Package], names: Iterable[str] = ()) -> None:
    """Build wheels while requirements are fetched.

    Args:
        packages: all of this repository, by name.
        names: those that are needed; all if there are none.

    Raises:
        SystemExit: one of the two failed.
    """
    chosen = [packages[name] for name in names or packages]
    lines = sorted({line for package in chosen for line in package.requirements})
    listed = ["-r", str(ROOT / "tests" / "requirements.txt")]
    # All are proved at every instruction-set level; the short form at this machine's.
    full = ["--portable"] if os.environ.get("TANGRAD_TESTS") == "full" else []
    wheels = [] if len(chosen) == len(packages) else [package.name for package in chosen]
    work = {
        "requirements": [*PIP, "install", "--quiet", *listed, *lines],
        "wheels": [sys.executable, str(ROOT / "build_wheelhouse.py"), *full, *wheels],
    }
    started = {name: subprocess.Popen(command) for name, command in work.items()}
    if failed := [name for name, process in started.items() if process.wait()]:
        raise SystemExit(f"could not make ready: {', '.join(failed)}")
    for line in sorted({line for package in chosen for line in package.apart}):
        folder = Path(sys.prefix, "apart", line)
        if not folder.exists():
            pip("install", "--quiet", "--no-deps", "--target", str(folder), line)


def pip(*words: str) -> None:
    """Run pip.

    Raises:
        SystemExit: it failed.
    """
    if subprocess.run([*PIP, *words]).returncode:
        raise SystemExit(f"pip {' '.join(words)} failed")


def install(names: Sequence[str]) -> int:
    """Leave the wheels of these packages installed, and no other one of ours.

    Raises:
        SystemExit: something else is installed afterwards.
    """
    uninstall()
    pip("install", "--quiet", "--no-deps", "--no-index", *(str(wheel_of(name)) for name in names))
    if (now := installed()) != sorted(names):
        raise SystemExit(f"wanted {', '.join(sorted(names))}; installed are {', '.join(now)}")
    return 0


def uninstall() -> int:
    """Remove every package of ours from this environment."""
    if old := installed():
        pip("uninstall", "--quiet", "--yes", *old)
    return 0


def installed() -> list[str]:
    """Return the sorted names of our packages that are installed in this environment."""
    # Not importlib.metadata's cache of this process: pip ran in another one.
    code = "import importlib.metadata as m; print(*{d.metadata['Name'] for d in m.distributions()})"
    names = subprocess.check_output([sys.executable, "-I", "-c", code], text=True).split()
    return sorted(name for name in names if is_ours(name.lower()))


def wheel_of(name: str) -> Path:
    """Return the wheel that the wheelhouse built last for this interpreter."""
    record = DIST / f".{name}-{sys.implementation.cache_tag}.json"
    return DIST / json.loads(record.read_text("utf-8"))["wheel"]


def each_by_itself(packages: dict[str, Package]) -> int:
    """Load each package where nothing of ours is but what pip installs with it."""
    uninstall()
    names = [package.name for package in packages.values() if package.tests]
    with ThreadPoolExecutor(int(PROCESSES)) as pool:
        told = dict(zip(names, pool.map(lambda n: by_itself(packages, n), names), strict=True))
    failed = {name: errors for name, errors in told.items() if errors}
    for name, errors in failed.items():
        print(f"{name} does not work by itself:\n{errors}")
    print(f"by themselves: {len(names) - len(failed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed else 0


def by_itself(packages: dict[str, Package], name: str) -> str:
    """Return what a package says that does not work with what pip installs with it; or ""."""
    with tempfile.TemporaryDirectory() as folder:
        for wheel in map(wheel_of, installed_with(packages, name)):
            zipfile.ZipFile(wheel).extractall(folder)
        command = [sys.executable, "-c", BY_ITSELF, name]
        environment = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def core_by_itself(packages: dict[str, Package]) -> int:
    """Run the tests of a core that stands alone."""
    install([CORE])
    alone = packages[CORE].folder / "tests" / "alone"
    return subprocess.run([*PYTEST, str(alone)], cwd=ROOT).returncode


def run(packages: dict[str, Package], names: Sequence[str], extra: Sequence[str]) -> int:
    """Run all tests of one combination; the first package says how, the CPU's is a condition."""
    chosen = [packages[name] for name in names]
    tested = [p for p in chosen if p.name != CPU or len(chosen) in (1, len(packages))]
    options = chosen[0].arguments
    command = [*PYTEST, *options, *tests_of(tested), *extra]
    print("$ python", shlex.join(command[1:]), flush=True)
    install(closure(packages, names))
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
