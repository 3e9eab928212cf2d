"""Archives of data sets that are whole, damaged, or reach out of their folder."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tangrad_vision import guards

# The names that torchvision's module has, and how it extracts; its files are not installed here.
MODULE = """
import bz2, gzip, lzma, os

_COMPRESSED_FILE_OPENERS = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}
_ARCHIVE_EXTRACTORS = {".tar": None, ".zip": None}

def _detect_file_type(file):
    *rest, last = ["", *os.fspath(file).rpartition("/")[2].split(".")[1:]]
    if "." + last in _ARCHIVE_EXTRACTORS:
        return "." + last, "." + last, None
    if rest[-1:] == ["tar"]:
        return ".tar." + last, ".tar", "." + last
    return "." + last, None, "." + last if "." + last in _COMPRESSED_FILE_OPENERS else None

def _decompress(from_path, to_path=None, remove_finished=False):
    raise NotImplementedError
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a module by torchvision's name, with what is added to it."""
    package = tmp_path / "site" / "torchvision" / "datasets"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "utils.py").write_text(MODULE, "utf-8")
    names = ("torchvision", "torchvision.datasets", "torchvision.datasets.utils")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    guards.install()
    import torchvision.datasets.utils as made

    yield made
    for name in names:
        sys.modules.pop(name, None)


def extract(module: Any, path: Path, folder: Path) -> None:
    """Extract an archive as `torchvision.datasets.utils.extract_archive` does."""
    _, kind, compression = module._detect_file_type(path)
    module._ARCHIVE_EXTRACTORS[kind](path, folder, compression)


def packed(path: Path, *members: tuple[Any, bytes]) -> Path:
    """Write an archive of the kind that the name says."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in members:
                file.writestr(name, content)
        return path
    with tarfile.open(path, f"w:{path.suffix[1:].replace('tar', '')}") as tar:  # type: ignore[call-overload]
        for name, content in members:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def left(folder: Path) -> list[str]:
    """Return what lies below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


KINDS = pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz", "a.zip"])


@KINDS
def test_archives_are_extracted_over_what_is_there(module: Any, tmp_path: Path, name: str) -> None:
    archive = packed(tmp_path / name, ("sub/one.txt", b"one"), ("two.txt", b"two"))
    target = tmp_path / "to"
    target.mkdir()
    (target / "two.txt").write_bytes(b"mine")
    extract(module, archive, target)
    assert left(target) == ["sub", "sub/one.txt", "two.txt"]
    assert (target / "two.txt").read_bytes() == b"two"


@KINDS
@pytest.mark.parametrize("outside", ["../out.txt", "sub/../../out.txt", "/out.txt"])
def test_a_member_outside_the_folder_is_refused(
    module: Any, tmp_path: Path, name: str, outside: str
) -> None:
    archive = packed(tmp_path / name, ("inside.txt", b"1"), (outside, b"2"))
    with pytest.raises(RuntimeError, match=f"{name}: member .*out.txt' lies outside"):
        extract(module, archive, tmp_path / "to")
    assert left(tmp_path / "to") == []
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("goal", ["/etc/passwd", "../site"])
def test_links_out_of_the_folder_are_refused(module: Any, tmp_path: Path, goal: str) -> None:
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, goal
    archive = packed(tmp_path / "a.tar", (link, b""), ("link/out.txt", b"2"))
    with pytest.raises(RuntimeError, match=r"a\.tar: .*link.*nothing of it was extracted"):
        extract(module, archive, tmp_path / "to")
    assert left(tmp_path / "to") == []


def test_links_inside_the_folder_and_empty_folders_stay(module: Any, tmp_path: Path) -> None:
    link, empty = tarfile.TarInfo("link"), tarfile.TarInfo("empty")
    link.type, link.linkname = tarfile.SYMTYPE, "one.txt"
    empty.type = tarfile.DIRTYPE
    archive = packed(tmp_path / "a.tar", ("one.txt", b"one"), (link, b""), (empty, b""))
    extract(module, archive, tmp_path / "to")
    assert (tmp_path / "to" / "link").read_bytes() == b"one"
    assert left(tmp_path / "to") == ["empty", "link", "one.txt"]


@KINDS
@pytest.mark.parametrize("part", [0.0, 0.5, 0.9])
def test_nothing_of_a_cut_archive_stays(
    module: Any, tmp_path: Path, name: str, part: float
) -> None:
    archive = packed(tmp_path / name, *((f"{k}.txt", os.urandom(20_000)) for k in range(4)))
    content = archive.read_bytes()
    archive.write_bytes(content[: int(part * len(content))])
    with pytest.raises(RuntimeError, match=f"(?s){name}: .*nothing of it was extracted"):
        extract(module, archive, tmp_path / "to")
    assert left(tmp_path / "to") == []


@pytest.mark.parametrize(
    ("name", "pack"), [("w.gz", gzip.compress), ("w.bz2", bz2.compress), ("w.xz", lzma.compress)]
)
def test_a_compressed_file_is_replaced_whole(
    module: Any, tmp_path: Path, name: str, pack: Any
) -> None:
    archive, target = tmp_path / name, tmp_path / "w"
    content = os.urandom(9_000)
    archive.write_bytes(pack(content)[:5_000])
    target.write_bytes(b"mine")
    with pytest.raises(RuntimeError, match=f"(?s){name}: .*nothing of it was extracted"):
        module._decompress(archive, remove_finished=True)
    assert target.read_bytes() == b"mine"
    archive.write_bytes(pack(content))
    assert module._decompress(str(archive), remove_finished=True) == target
    assert target.read_bytes() == content
    assert not archive.exists()
    with pytest.raises(RuntimeError, match="Couldn't detect a compression"):
        module._decompress("a.zip")
