"""Weights from an address, and models of a folder with a `hubconf.py`: `torch.hub`.

Weights are loaded as `tangrad.load` loads them, so no code of the file runs. Models of
repositories are code, which this module does not download: whoever trusts a repository clones it
and passes the folder with `source="local"`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
from importlib import import_module
from types import ModuleType
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

import tangrad

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # of a name such as resnet18-bfd8deac.pth
_CHUNK = 1 << 20
_dir: str | None = None


def get_dir() -> str:
    """Return where downloads are kept: `set_dir`, `$TORCH_HOME/hub` or `~/.cache/torch/hub`."""
    if _dir is not None:
        return _dir
    return os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    """Return `$TORCH_HOME` or `~/.cache/torch`; other libraries keep their weights there too."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def set_dir(d: str | os.PathLike[str]) -> None:
    """Set where downloads are kept."""
    global _dir
    _dir = os.path.expanduser(d)


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Download what is at an address; the file appears when it is complete and right.

    Args:
        url: the address; `file:` works too.
        dst: the file.
        hash_prefix: beginning of the SHA-256 of the content, as hexadecimal digits.
        progress: say on standard error what is downloaded, and its size.

    Raises:
        RuntimeError: the content has another hash.
        OSError: the address cannot be read, or the file not be written.
    """
    digest = hashlib.sha256()
    folder = os.path.dirname(os.path.abspath(dst))
    descriptor, path = tempfile.mkstemp(dir=folder, suffix=".partial")
    try:
        request = Request(url, headers={"User-Agent": "tangrad.hub"})
        with os.fdopen(descriptor, "wb") as file, urlopen(request) as source:
            if progress:
                print(f"{url}: {source.headers.get('Content-Length', '?')} bytes", file=sys.stderr)
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                file.write(chunk)
        found = digest.hexdigest()
        if hash_prefix is not None and not found.startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')
        os.replace(path, dst)
    except BaseException:
        os.unlink(path)
        raise


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """Load weights from an address, keeping the file for the next time.

    Args:
        url: the address.
        model_dir: where the file is kept; by default `checkpoints` in `get_dir()`.
        map_location: as in `tangrad.load`.
        progress: say what is downloaded.
        check_hash: the file's name ends in `-<beginning of its SHA-256>`, which is checked.
        file_name: name of the kept file; by default that of the address.
        weights_only: accepted for compatibility; no code of the file runs in any case.

    Returns:
        What the file holds.

    Raises:
        RuntimeError: the content has another hash.
        SerializationError: it is no file of weights.
    """
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found and found.group(1), progress)
    return tangrad.load(path, map_location=map_location)


def _configuration(repo_or_dir: str, source: str) -> ModuleType:
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise NotImplementedError(
            f"hub: {repo_or_dir!r} would be code from the network, which is not run here; clone "
            'the repository and pass its folder with source="local"'
        )
    folder = os.path.abspath(os.path.expanduser(repo_or_dir))
    path = os.path.join(folder, "hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    missing = [
        name
        for name in getattr(module, "dependencies", ())
        if name != "torch" and importlib.util.find_spec(name) is None
    ]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(module: ModuleType, name: str) -> Any:
    if not isinstance(name, str):
        raise ValueError("Invalid input: model should be a string of function name")
    found = getattr(module, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = None,
    verbose: bool = True,
    *,
    source: str = "github",
) -> Any:
    """Return the names of the models that a folder offers; arguments as of `load`."""
    module = _configuration(github, source)
    return [f for f in dir(module) if callable(getattr(module, f)) and not f.startswith("_")]


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = None,
    *,
    source: str = "github",
) -> str | None:
    """Return the documentation of a model; arguments as of `load`."""
    documentation: str | None = _entry(_configuration(github, source), model).__doc__
    return documentation


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a function of a folder's `hubconf.py`, which runs that file.

    Args:
        repo_or_dir: the folder.
        model: name of the function.
        *args: its arguments.
        source: "local"; the code of "github" is not downloaded.
        trust_repo: accepted for compatibility, as the next three: there is no download.
        force_reload: as above.
        verbose: as above.
        skip_validation: as above.
        **kwargs: further arguments of the function.

    Returns:
        What the function gives, usually a module.

    Raises:
        NotImplementedError: `source` is "github".
        ValueError: `source` is something else.
        RuntimeError: the function, or a package that the file depends on, is not there.
    """
    return _entry(_configuration(repo_or_dir, source), model)(*args, **kwargs)


class _Progress:
    """Tell of progress on standard error, in the place of the package tqdm where that is missing.

    Args:
        total: what `update` adds up to, or None.
        disable: tell nothing.
        ignored: what else tqdm takes.
    """

    def __init__(
        self, total: float | None = None, disable: bool = False, *ignored: Any, **options: Any
    ) -> None:
        self.total, self.disable, self.n = total, disable, 0.0

    def update(self, n: float) -> None:
        """Say that there are `n` more."""
        self.n += n
        if not self.disable:
            told = f"{self.n:.1f}" if not self.total else f"{100 * self.n / self.total:.1f}%"
            print(f"\r{told}", end="", file=sys.stderr, flush=True)

    def set_description(self, *ignored: Any, **options: Any) -> None:
        """Take a description, which is not told."""

    def write(self, s: str) -> None:
        """Print a line."""
        print(s, file=sys.stderr)

    def close(self) -> None:
        """Tell no more."""
        self.disable = True

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.disable:
            print(file=sys.stderr)


def __getattr__(name: str) -> Any:
    if name != "tqdm":  # which other libraries import from here
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module("tqdm").tqdm
    except ImportError:
        return _Progress
