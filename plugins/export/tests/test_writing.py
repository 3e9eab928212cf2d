"""Files are written whole, all or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tangrad
from tangrad_export.writing import write_files


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
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
