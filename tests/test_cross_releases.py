"""Wheels for another machine: those of this one with their extension modules exchanged."""

from __future__ import annotations

import base64
import hashlib
import platform
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.release import cross, wheels  # noqa: E402

HERE = platform.machine()
OTHER = "aarch64" if HERE != "aarch64" else "riscv64"
INFO = "tangrad_part-0.2.0.dist-info"
DATE = (2026, 1, 2, 3, 4, 6)


def wheel(folder: Path) -> Path:
    files = {
        "tangrad_part/__init__.py": "x = 1\n",
        f"tangrad_part/_fast.cpython-311-{HERE}-linux-gnu.so": "of this machine",
        f"{INFO}/WHEEL": f"Wheel-Version: 1.0\nTag: cp311-cp311-linux_{HERE}\n",
        f"{INFO}/RECORD": "",
    }
    path = folder / f"tangrad_part-0.2.0-cp311-cp311-linux_{HERE}.whl"
    with zipfile.ZipFile(path, "w") as opened:
        for name, content in files.items():
            opened.writestr(zipfile.ZipInfo(name, DATE), content)
    return path


def test_modules_tag_and_record_are_those_of_the_other_machine(tmp_path: Path) -> None:
    module = tmp_path / "lib" / "tangrad_part" / f"_fast.cpython-311-{OTHER}-linux-gnu.so"
    module.parent.mkdir(parents=True)
    module.write_bytes(b"of the other one")
    made = cross.exchanged(wheel(tmp_path), tmp_path / "lib", OTHER, tmp_path)
    assert made.name == f"tangrad_part-0.2.0-cp311-cp311-linux_{OTHER}.whl"
    with zipfile.ZipFile(made) as opened:
        names = opened.namelist()
        assert f"tangrad_part/{module.name}" in names
        assert not [name for name in names if HERE in name]
        assert f"linux_{OTHER}" in opened.read(f"{INFO}/WHEEL").decode()
        assert {entry.date_time for entry in opened.infolist()} == {DATE}
        rows = [row.split(",") for row in opened.read(f"{INFO}/RECORD").decode().splitlines()]
        assert [row[0] for row in rows] == names
        for name, digest, size in rows[:-1]:
            content = opened.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            assert (digest, int(size)) == (f"sha256={expected.decode()}", len(content))


def test_a_module_that_was_not_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"_fast.*was not built for {OTHER}"):
        cross.exchanged(wheel(tmp_path), tmp_path / "lib", OTHER, tmp_path)


def test_a_build_for_another_machine_has_its_compiler_name_and_glibc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(f"CC_{OTHER}", sys.executable)
    said = cross.settings(OTHER, "cpython-312", 1_800_000_000)
    assert said["CC"] == sys.executable
    assert said["LDSHARED"].endswith(f" {OTHER}-linux-gnu.2.28")
    assert said["_PYTHON_HOST_PLATFORM"] == f"linux-{OTHER}"
    assert said["SETUPTOOLS_EXT_SUFFIX"] == f".cpython-312-{OTHER}-linux-gnu.so"
    assert wheels.tag(OTHER) == f"manylinux_2_28_{OTHER}"
    monkeypatch.setenv(f"CC_{OTHER}", "no-such-compiler")
    with pytest.raises(SystemExit, match=f"no-such-compiler.*gcc-{OTHER}-linux-gnu"):
        cross.compiler_for(OTHER)


def test_wheels_of_python_alone_serve_every_machine(tmp_path: Path) -> None:
    alone = tmp_path / "tangrad_part-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(alone, "w") as opened:
        opened.writestr("tangrad_part/__init__.py", "")
    package = tmp_path / "part"
    package.mkdir()
    (package / "pyproject.toml").write_text('[project]\nname = "tangrad-part"\n', "utf-8")
    found = [alone, wheel(tmp_path)]
    assert list(cross.compiled(found, [package])) == [(found[1], package)]
