"""Make wheels for another machine from those of this one: their extension modules are built anew.

All else in a wheel is the same on every machine. A cross compiler of the system makes the objects,
and zig's linker links them (`link.py`), as for this machine. Python's headers are those of the
interpreter here: CPython's on Linux say the same of every processor of 64 bits, but for what the
interpreter alone asks of its assembler.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tools.release import wheels

#: Machines for which kernels are written and tested.
MACHINES = ("aarch64",)


def compiler_for(machine: str) -> str:
    """Return the command of the cross compiler.

    Raises:
        SystemExit: it is not here.
    """
    command = os.environ.get(f"CC_{machine}") or f"{machine}-linux-gnu-gcc"
    if shutil.which(command.split()[0]) is None:
        raise SystemExit(
            f"{command} is not here: install gcc-{machine}-linux-gnu, or name a cross compiler in "
            f"CC_{machine}"
        )
    return command


def settings(machine: str, tag: str, epoch: int) -> dict[str, str]:
    """Return the variables of the environment that extension modules are built with.

    Args:
        machine: that they are for, such as "aarch64".
        tag: of the interpreter's modules, such as "cpython-311".
        epoch: date of all files.
    """
    return {
        **wheels.settings(epoch, machine),
        "CC": compiler_for(machine),
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "SETUPTOOLS_EXT_SUFFIX": f".{tag}-{machine}-linux-gnu.so",
    }


def wheel_for(
    machine: str, wheel: Path, package: Path, tools: Path, folder: Path, epoch: int
) -> Path:
    """Make the wheel for another machine.

    Args:
        machine: the other machine, one of `MACHINES`.
        wheel: for this machine.
        package: folder of its sources.
        tools: the Python that built it, with what packages are built with.
        folder: where modules and wheel go.
        epoch: date of all files.

    Raises:
        SystemExit: the compiler is not here, a build failed, or a module is missing in it.
    """
    (tag,) = _tags_of(wheel)
    built = folder / f"{package.name}-{tag}"
    shutil.rmtree(built, ignore_errors=True)
    command = [str(tools), "setup.py", "--quiet", "build_ext", "--force"]
    command += [f"--build-lib={built / 'lib'}", f"--build-temp={built / 'objects'}"]
    variables = {**os.environ, **settings(machine, tag, epoch)}
    variables.pop("TANGRAD_LEVELS", None)
    done = subprocess.run(
        command, cwd=package, env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{package.name} was not built for {machine}:\n{done.stdout}{done.stderr}")
    return exchanged(wheel, built / "lib", machine, folder)


def exchanged(wheel: Path, modules: Path, machine: str, folder: Path) -> Path:
    """Write a wheel with its extension modules exchanged for those of another machine.

    Args:
        wheel: for this machine.
        modules: folder of the other machine's, at the same places.
        machine: the other machine.
        folder: where the wheel goes.

    Raises:
        SystemExit: a module is missing.
    """
    here = platform.machine()
    made = folder / wheel.name.replace(f"_{here}.whl", f"_{machine}.whl")
    rows: list[str] = []
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            name, content = entry.filename, old.read(entry)
            if name.endswith(".dist-info/RECORD"):
                content = ("".join(rows) + f"{name},,\n").encode()
            elif found := _module_of(name):
                name = f"{found[0]}.{found[1]}-{machine}-linux-gnu.so"
                if not (modules / name).exists():
                    raise SystemExit(f"{wheel.name}: {name} was not built for {machine}")
                content = (modules / name).read_bytes()
            elif name.endswith(".dist-info/WHEEL"):
                content = content.replace(f"linux_{here}".encode(), f"linux_{machine}".encode())
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            rows.append(f"{name},sha256={digest.decode()},{len(content)}\n")
            told = zipfile.ZipInfo(name, entry.date_time)
            told.external_attr, told.compress_type = entry.external_attr, entry.compress_type
            new.writestr(told, content)
    return made


def compiled(found: list[Path], packages: list[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield each wheel that has extension modules, with the folder of its package."""
    folders = {}
    for package in packages:
        document = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))
        folders[document["project"]["name"].replace("-", "_")] = package
    for wheel in found:
        if _tags_of(wheel):
            yield wheel, folders[wheel.name.partition("-")[0]]


def _tags_of(wheel: Path) -> set[str]:
    """Return the interpreters that a wheel's extension modules are for."""
    with zipfile.ZipFile(wheel) as opened:
        return {found[1] for found in map(_module_of, opened.namelist()) if found}


def _module_of(name: str) -> tuple[str, str] | None:
    """Return an extension module's path without its ending, and its interpreter's tag."""
    found = re.fullmatch(rf"(.*)\.(cpython-\d+)-{platform.machine()}-linux-gnu\.so", name)
    return (found[1], found[2]) if found else None
