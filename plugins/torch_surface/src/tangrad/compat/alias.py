"""Write a package `torch` into an environment, so that `import torch` is tangrad everywhere in it.

It has PyTorch's name and version in its metadata, so that `pip install` of what needs PyTorch does
not fetch it, and `pip uninstall torch` takes it away. A constraint in the environment's pip
configuration keeps pip from replacing it by PyTorch itself.
"""

from __future__ import annotations

import ast
import base64
import configparser
import hashlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import tangrad
from tangrad.plugin import scripts

INSTALLER = "tangrad"
CONSTRAINTS = "tangrad-constraints.txt"
_SOURCE = '''"""Give tangrad to those who import {name}; see `python -m tangrad alias remove`."""

import sys

import tangrad

del sys.modules[__name__]  # this module, in whose place the stand-in comes
from tangrad.compat.stand_in import install

install()
__import__("{name}")
'''
_SCRIPT = '''#!{python}
"""Run what PyTorch installs under this name; see `python -m tangrad alias remove`."""

from runpy import run_module

run_module("{module}", run_name="__main__")
'''


class AliasError(RuntimeError):
    """The alias cannot be written here."""


def version() -> str:
    """Return the version of PyTorch that the alias has, with tangrad's own behind the plus."""
    return str(tangrad.__version__)


# Small packages that PyTorch brings along, and that libraries import without asking for them.
BROUGHT_ALONG = ("filelock", "fsspec", "jinja2", "typing-extensions")


def metadata_text(name: str) -> str:
    """Return the metadata of the distribution that the alias shows."""
    required = "".join(f"Requires-Dist: {other}\n" for other in ("tangrad", *BROUGHT_ALONG))
    return (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version()}\n"
        f"Summary: tangrad under the name {name}\n{required}"
    )


def _folder(site: Path) -> Path:
    return site / f"torch-{version()}.dist-info"


def _site() -> Path:
    return Path(sysconfig.get_path("purelib"))


def _commands() -> Path:
    return Path(sysconfig.get_path("scripts"))


def _real_pytorch() -> str | None:
    """Return where a PyTorch is installed that is none of ours, or None."""
    for found in metadata.distributions(name="torch"):
        if (found.read_text("INSTALLER") or "").strip() != INSTALLER:
            return str(found.locate_file(""))
    for folder in sys.path:
        code = Path(folder or ".") / "torch" / "__init__.py"
        if code.is_file() and "import tangrad" not in code.read_text(errors="replace"):
            return str(code)
    return None


def install() -> list[str]:
    """Write the alias into this environment; once more writes it anew.

    Returns:
        What was written.

    Raises:
        AliasError: PyTorch itself is installed here, or the environment cannot be written.
    """
    real = _real_pytorch()
    if real is not None:
        raise AliasError(
            f"PyTorch itself is installed in {real}; `pip uninstall torch` first, or run single "
            "programs by `python -m tangrad run`"
        )
    remove()
    site = _site()
    files = {
        Path("torch/__init__.py"): _SOURCE.format(name="torch"),
        Path("functorch/__init__.py"): _SOURCE.format(name="functorch"),
        Path(_folder(site).name, "METADATA"): metadata_text("torch"),
        Path(_folder(site).name, "INSTALLER"): f"{INSTALLER}\n",
        Path(_folder(site).name, "top_level.txt"): "torch\nfunctorch\n",
        **_scripts(site),
    }
    try:
        for place, text in files.items():
            (site / place).parent.mkdir(parents=True, exist_ok=True)
            (site / place).write_text(text)
            if text.startswith("#!"):
                (site / place).chmod(0o755)
        record = Path(_folder(site).name, "RECORD")
        (site / record).write_text("".join([*_record(files), f"{record.as_posix()},,\n"]))
        return [str(site / place) for place in files] + _constrain()
    except OSError as error:
        raise AliasError(f"{site} cannot be written: {error}") from None


def _scripts(site: Path) -> dict[Path, str]:
    """Return the commands that PyTorch has, by their places as seen from the packages' folder."""
    folder = Path(os.path.relpath(_commands(), site))
    return {
        folder / name: _SCRIPT.format(python=sys.executable, module=f"torch.{module}")
        for name, module in scripts().items()
    }


def _record(files: dict[Path, str]) -> Iterator[str]:
    for place, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        yield f"{place.as_posix()},sha256={digest.decode()},{len(text.encode())}\n"


def next_steps() -> str:
    """Return how libraries that need PyTorch are installed beside the alias.

    uv reads no configuration of pip, and takes PyTorch itself where nothing holds the version.
    """
    constraints = Path(sys.prefix) / CONSTRAINTS
    return f"""
`import torch` gives tangrad here. Install what needs it, such as torchvision:
  pip install torchvision                 # pip keeps the alias by {_configuration()[0].name}
  uv pip install -c {constraints} torchvision
                                          # or, for all calls of uv: UV_CONSTRAINT={constraints}
In a project of uv, whose lock would name PyTorch, write into pyproject.toml
  [tool.uv]
  override-dependencies = ["torch ; sys_platform == 'never'"]
and call `uv sync --inexact`, which removes nothing that it did not install."""


def remove() -> list[str]:
    """Take the alias and the constraint away; return what was removed."""
    gone = []
    for found in list(metadata.distributions(name="torch", path=[str(_site())])):
        if (found.read_text("INSTALLER") or "").strip() != INSTALLER:
            continue
        for file in found.files or ():
            place = Path(str(found.locate_file(file)))
            if place.exists():
                place.unlink()
                gone.append(str(place))
    for name in ("torch", "functorch", _folder(_site()).name):
        _remove_empty(_site() / name)
    return gone + _release()


def _remove_empty(folder: Path) -> None:
    cache = folder / "__pycache__"
    if cache.is_dir():
        for file in cache.iterdir():
            file.unlink()
        cache.rmdir()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


# -- pip's configuration of this environment

_SECTION, _OPTION = "install", "constraint"


def _configuration() -> tuple[Path, configparser.RawConfigParser]:
    file = Path(sys.prefix) / ("pip.ini" if os.name == "nt" else "pip.conf")
    parser = configparser.RawConfigParser()
    parser.read(file, encoding="utf-8")
    return file, parser


def _told_by_pip(*options: str) -> list[str]:
    """Return the constraints that pip has in force; those of `install` hide the others."""
    command = [sys.executable, "-m", "pip", "config", *options, "list"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (line.partition("=") for line in asked.stdout.splitlines())
    values = {key.strip(): value for key, _, value in lines}
    for section in (_SECTION, "global"):
        if f"{section}.{_OPTION}" in values:
            return str(ast.literal_eval(values[f"{section}.{_OPTION}"])).split()
    return []


def _constrain() -> list[str]:
    """Have pip keep the version; return what was written."""
    ours = Path(sys.prefix) / CONSTRAINTS
    ours.write_text(f"torch=={version().partition('+')[0]}\n")
    others = [place for place in _told_by_pip() if place != str(ours)]
    file, parser = _configuration()
    if not parser.has_section(_SECTION):
        parser.add_section(_SECTION)
    parser.set(_SECTION, _OPTION, "\n".join([*others, str(ours)]))
    with open(file, "w", encoding="utf-8") as target:
        parser.write(target)
    return [str(ours), str(file)]


def _release() -> list[str]:
    """Take the constraint out of pip's configuration; return what was changed."""
    ours = Path(sys.prefix) / CONSTRAINTS
    if not ours.exists():
        return []
    ours.unlink()
    file, parser = _configuration()
    own = parser.get(_SECTION, _OPTION, fallback="").split()
    # What pip has elsewhere is in force again as soon as this file says nothing.
    elsewhere = {*_told_by_pip("--user"), *_told_by_pip("--global")}
    kept = [place for place in own if place != str(ours) and place not in elsewhere]
    if kept:
        parser.set(_SECTION, _OPTION, "\n".join(kept))
    elif parser.has_option(_SECTION, _OPTION):
        parser.remove_option(_SECTION, _OPTION)
        if not parser.options(_SECTION):
            parser.remove_section(_SECTION)
    if parser.sections():
        with open(file, "w", encoding="utf-8") as target:
            parser.write(target)
    elif file.exists():
        file.unlink()
    return [str(ours), str(file)]
