"""The wheelhouse rebuilds what changed and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def wheelhouse(tmp_path, monkeypatch):
    """The script, pointed at an empty repository and with a compiler that only counts."""
    spec = importlib.util.spec_from_file_location("wheelhouse", ROOT / "build_wheelhouse.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "DIST", tmp_path / "dist")
    module.DIST.mkdir()
    module.built = []

    def build_wheel(package: Path, jobs: int) -> Path:
        module.built.append(package.name)
        folder = module.DIST / ".building"
        folder.mkdir()
        wheel = folder / f"{package.name}-0.1.0-py3-none-any.whl"
        wheel.write_text("")
        return wheel

    monkeypatch.setattr(module, "_build_wheel", build_wheel)
    return module


@pytest.fixture
def package(tmp_path) -> Path:
    folder = tmp_path / "thing"
    (folder / "src").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "thing"')
    (folder / "src" / "thing.py").write_text("value = 1")
    return folder


def test_an_unchanged_package_keeps_its_wheel(wheelhouse, package) -> None:
    assert wheelhouse.build(package, 1) == wheelhouse.build(package, 1)
    assert wheelhouse.built == ["thing"]


@pytest.mark.parametrize("changed", ["src/thing.py", "pyproject.toml", "src/new.pxi"])
def test_a_changed_source_rebuilds_the_package(wheelhouse, package, changed) -> None:
    wheelhouse.build(package, 1)
    with (package / changed).open("a") as file:
        file.write("\n# changed")
    wheelhouse.build(package, 1)
    assert wheelhouse.built == ["thing", "thing"]


@pytest.mark.parametrize("ignored", ["tests/test_thing.py", "build/lib/thing.py", "src/_index.py"])
def test_what_does_not_enter_the_wheel_rebuilds_nothing(wheelhouse, package, ignored) -> None:
    wheelhouse.build(package, 1)
    (package / ignored).parent.mkdir(parents=True, exist_ok=True)
    (package / ignored).write_text("value = 2")
    wheelhouse.build(package, 1)
    assert wheelhouse.built == ["thing"]


def test_a_package_follows_what_it_compiles_against(wheelhouse, package) -> None:
    wheelhouse.build(package, 1, depends="core before")
    wheelhouse.build(package, 1, depends="core after")
    assert wheelhouse.built == ["thing", "thing"]


def test_a_lost_wheel_is_built_again(wheelhouse, package) -> None:
    wheelhouse.build(package, 1)
    next(wheelhouse.DIST.glob("*.whl")).unlink()
    wheelhouse.build(package, 1)
    assert wheelhouse.built == ["thing", "thing"]
