"""The cache of compiled kernels: shared by processes, and no more than a cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tangrad.plugin.compiled import cache

WRITE = """
import sys
from tangrad.plugin.compiled import cache

for k in range(200):
    made = cache.cached(f"{k % 5:064x}", lambda: bytes([k % 5]) * 100_000)
    assert made == bytes([k % 5]) * 100_000
    if k % 7 == 0:
        cache.forget(f"{k % 5:064x}")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def refuse() -> bytes:
    raise AssertionError("made again")


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_was_made_once_is_read_afterwards() -> None:
    assert cache.cached("ab" * 32, lambda: b"binary") == b"binary"
    assert cache.cached("ab" * 32, refuse) == b"binary"


def test_source_architecture_and_compiler_tell_entries_apart() -> None:
    keys = {
        cache.key_of("f", "sm_80", "12.1"),
        cache.key_of("f", "sm_90", "12.1"),
        cache.key_of("f", "sm_80", "12.2"),
        cache.key_of("g", "sm_80", "12.1"),
        cache.key_of("f", "sm_8", "012.1"),
    }
    assert len(keys) == 5


@pytest.mark.parametrize("damage", [b"", b"tangrad1", b"x" * 100])
def test_a_damaged_entry_is_made_anew(folder: Path, damage: bytes) -> None:
    cache.cached("ab" * 32, lambda: b"first")
    (entry,) = entries(folder)
    entry.write_bytes(damage)
    assert cache.cached("ab" * 32, lambda: b"second") == b"second"
    assert cache.cached("ab" * 32, refuse) == b"second"


def test_one_flipped_bit_is_noticed(folder: Path) -> None:
    cache.cached("ab" * 32, lambda: bytes(1000))
    (entry,) = entries(folder)
    content = bytearray(entry.read_bytes())
    content[-1] ^= 1
    entry.write_bytes(content)
    assert cache.cached("ab" * 32, lambda: b"anew") == b"anew"


def test_a_folder_that_cannot_be_written_costs_the_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "file" / "kernels"))
    assert cache.cached("ab" * 32, lambda: b"binary") == b"binary"


def test_a_full_disk_leaves_no_part_of_an_entry(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    assert cache.cached("ab" * 32, lambda: b"binary") == b"binary"
    assert entries(folder) == []


def test_an_empty_setting_switches_the_cache_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.FOLDER_VARIABLE, "")
    assert cache.folder() is None
    assert cache.cached("ab" * 32, lambda: b"binary") == b"binary"


def test_what_fails_to_compile_leaves_no_entry(folder: Path) -> None:
    def broken() -> bytes:
        raise RuntimeError("syntax")

    with pytest.raises(RuntimeError, match="syntax"):
        cache.cached("ab" * 32, broken)
    assert not folder.exists()


def test_processes_that_write_and_remove_at_once_read_whole_entries(folder: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", WRITE]) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert not [path for path in entries(folder) if path.name.startswith(".")]
