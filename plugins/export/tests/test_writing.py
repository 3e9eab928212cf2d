"""Files are written whole, all or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from compiling import needs_compiler, self_tested

import tangrad
from tangrad_export.writing import write_files


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none/a.c'"):
        tangrad.export.c(lambda x: x + 1, (tangrad.ones(2),), tmp_path / "none" / "a.c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", [0, 1, 2, 3])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_stood_there_stays_unless_all_is_written(
    failing: int, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "a.c", tmp_path / "a.h"]
    for path in paths:
        path.write_text(f"old {path.name}")
    calls = iter(range(10))
    replace = os.replace

    def breaking(*args: object) -> None:
        if next(calls) == failing:
            raise error
        replace(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "replace", breaking)
    with pytest.raises(type(error)):
        write_files(dict.fromkeys(paths, b"new"))
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "a.c": "old a.c",
        "a.h": "old a.h",
    }


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_files({tmp_path / "a.c": b"x", tmp_path / "a.h": b"y"})
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "a.c"
    link.symlink_to(tmp_path / "real" / "b.c")
    write_files({link: b"x", tmp_path / "a.h": b"y"})
    assert link.is_symlink()
    assert (tmp_path / "real" / "b.c").read_bytes() == b"x"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.c", "a.h", "real"]


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="needs a device that takes all")
def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    link = tmp_path / "a.c"
    link.symlink_to("/dev/null")
    write_files({link: b"x", tmp_path / "a.h": b"y"})
    assert Path("/dev/null").is_char_device()
    assert (tmp_path / "a.h").read_bytes() == b"y"


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 126 + ".c")
    write_files({path: b"x"})
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_an_error_of_the_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda number: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full: '.*a.c'"):
        write_files({tmp_path / "a.c": b"x"})


@needs_compiler
@pytest.mark.parametrize("name", ['a"b.c', "a\nb.c", "a\\b.c", "int.c", "1 2.c", "ü-.c"])
def test_a_file_of_any_name_compiles(name: str, tmp_path: Path) -> None:
    tangrad.export.c(lambda x: x + 1, (tangrad.ones(2),), tmp_path / name)
    self_tested(tmp_path / name)


def test_a_path_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="names no file"):
        tangrad.export.c(lambda x: x + 1, (tangrad.ones(2),), "")
