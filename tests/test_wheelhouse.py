"""The wheelhouse rebuilds what changed and nothing else, for this machine or for all."""

from __future__ import annotations

import importlib.util
import os
import threading
from pathlib import Path

import pytest

from backend_cpu.render import levels

ROOT = Path(__file__).resolve().parents[1]
PROJECT = '[project]\nname = "{}"\ndependencies = []\n[build-system]\nrequires = [{}]\n'


@pytest.fixture
def wheelhouse(tmp_path, monkeypatch):
    """The script, pointed at an empty repository and with a compiler that only counts."""
    spec = importlib.util.spec_from_file_location("wheelhouse", ROOT / "build_wheelhouse.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "DIST", tmp_path / "dist")
    monkeypatch.setattr(module, "CORE", tmp_path / "core")
    module.DIST.mkdir()
    module.built, module.piped = [], []

    def build_wheel(package: Path, jobs: int, tools: Path) -> Path:
        module.built.append(package.name)
        folder = module.DIST / f".building-{package.name}"
        folder.mkdir()
        wheel = folder / f"{package.name}-0.1.0-py3-none-any.whl"
        wheel.write_text("")
        return wheel

    monkeypatch.setattr(module, "_build_wheel", build_wheel)
    monkeypatch.setattr(module, "_pip", lambda *arguments: module.piped.append(arguments))
    return module


def make_package(folder: Path, name: str, requires: str = "", table: str = "") -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(name, requires) + table)
    (folder / "src" / "thing.py").write_text("value = 1")
    return folder


@pytest.fixture
def house(tmp_path) -> dict[str, Path]:
    """A core, a package that compiles against it, and one that does not."""
    return {
        "core": make_package(tmp_path / "core", "tangrad", '"setuptools"'),
        "backend_x": make_package(tmp_path / "backend_x", "tangrad-x", '"tangrad~=0.1.0"'),
        "leaf": make_package(tmp_path / "plugins" / "leaf", "tangrad-leaf", '"setuptools"'),
    }


def test_what_needs_the_core_s_headers_alone_is_built_beside_it(
    wheelhouse, house, monkeypatch
) -> None:
    table = '[tool.tangrad.build]\nneeds = "headers"'
    place = house["leaf"].parent / "compiled"
    make_package(place, "tangrad-compiled", '"tangrad~=0.1.0"', table)
    build_wheel, beside = wheelhouse._build_wheel, threading.Event()

    def build(package: Path, *arguments: object) -> Path:
        if package == house["core"]:
            assert beside.wait(100), "the core is waited for"
        if package == place:
            beside.set()
        return build_wheel(package, *arguments)

    monkeypatch.setattr(wheelhouse, "_build_wheel", build)
    wheelhouse.build_all(1)
    assert wheelhouse.built.index("compiled") < wheelhouse.built.index("core")
    assert wheelhouse.built.index("core") < wheelhouse.built.index("backend_x")


def test_what_can_begin_early_begins_beside_the_others_and_is_built_last(
    wheelhouse, house, monkeypatch
) -> None:
    table = '[tool.tangrad.build]\nearly = "compile"'
    make_package(house["core"].parent / "backend_e", "tangrad-e", '"tangrad~=0.1.0"', table)
    begun = []
    monkeypatch.setattr(wheelhouse, "_begin", lambda folder, *rest: begun.append(folder.name))
    wheelhouse.build_all(1)
    assert "backend_e" in begun
    assert wheelhouse.built[-1] == "backend_e"


def test_no_package_of_an_earlier_build_is_there_when_the_core_describes_itself(
    wheelhouse, house
) -> None:
    wheelhouse.build_all(1)
    (place,) = wheelhouse.DIST.glob(".tools-*")
    made = place / "lib" / "python3.11" / "site-packages" / "tangrad_x-0.1.0.dist-info"
    made.mkdir(parents=True)
    (house["core"] / "src" / "thing.py").write_text("value = 2")
    wheelhouse.build_all(1)
    removed = [call for call in wheelhouse.piped if call[1] == "uninstall"]
    assert [call[2:] for call in removed] == [("--yes", "tangrad_x")]


def test_packages_that_need_headers_alone_take_them_from_where_they_are_told(wheelhouse) -> None:
    folders = (path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
    packages = [*folders, ROOT / "quantization", ROOT / "backend_cpu"]
    chosen = [p for p in packages if wheelhouse._settings(p).get("needs") == "headers"]
    assert chosen
    assert all('environ.get("TANGRAD_INCLUDE")' in (p / "setup.py").read_text() for p in chosen)


def test_only_what_is_wanted_is_built_with_what_it_depends_on(wheelhouse, house) -> None:
    with (house["core"] / "pyproject.toml").open("a") as file:
        file.write("[project.optional-dependencies]\nx = ['tangrad-x~=0.1.0']\n")
    with (house["leaf"] / "pyproject.toml").open("r+") as file:
        text = file.read().replace("dependencies = []", "dependencies = ['tangrad[x]', 'numpy']")
        file.seek(0)
        file.write(text)
    make_package(house["leaf"].parent / "other", "tangrad-other")
    wheelhouse.build_all(1, ["tangrad-leaf>=0.1"])
    assert sorted(wheelhouse.built) == ["backend_x", "core", "leaf"]
    wheelhouse.build_all(1)
    assert wheelhouse.built[3:] == ["other"]


def test_what_is_wanted_and_not_here_is_refused(wheelhouse, house) -> None:
    with pytest.raises(SystemExit, match="no package tangrad-y here, only tangrad, tangrad-leaf"):
        wheelhouse.build_all(1, ["tangrad-y"])
    with pytest.raises(SystemExit, match="tangrad has no extra y"):
        wheelhouse.build_all(1, ["tangrad[y]"])


def test_unchanged_packages_keep_their_wheels(wheelhouse, house) -> None:
    wheelhouse.build_all(1)
    assert sorted(wheelhouse.built) == ["backend_x", "core", "leaf"]
    wheelhouse.build_all(1)
    assert len(wheelhouse.built) == 3


@pytest.mark.parametrize("changed", ["src/thing.py", "pyproject.toml", "src/new.pxi"])
def test_a_changed_source_rebuilds_its_package(wheelhouse, house, changed) -> None:
    wheelhouse.build_all(1)
    with (house["leaf"] / changed).open("a") as file:
        file.write("\n# changed")
    wheelhouse.built.clear()
    wheelhouse.build_all(1)
    assert wheelhouse.built == ["leaf"]


@pytest.mark.parametrize("ignored", ["tests/test_thing.py", "build/lib/thing.py", "src/_index.py"])
def test_what_does_not_enter_the_wheel_rebuilds_nothing(wheelhouse, house, ignored) -> None:
    wheelhouse.build_all(1)
    path = house["leaf"] / ignored
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("value = 2")
    wheelhouse.build_all(1)
    assert len(wheelhouse.built) == 3


def test_only_what_compiles_against_the_core_follows_it(wheelhouse, house) -> None:
    wheelhouse.build_all(1)
    (house["core"] / "src" / "thing.py").write_text("value = 2")
    wheelhouse.built.clear()
    wheelhouse.build_all(1)
    assert wheelhouse.built == ["core", "backend_x"]


def test_a_package_inside_another_is_one_of_its_own(wheelhouse, house) -> None:
    inner = make_package(house["backend_x"] / "emulator", "tangrad-x-emulator", '"setuptools"')
    wheelhouse.build_all(1)
    (inner / "src" / "thing.py").write_text("value = 2")
    wheelhouse.built.clear()
    wheelhouse.build_all(1)
    assert wheelhouse.built == ["emulator"]


def test_a_lost_wheel_is_built_again(wheelhouse, house) -> None:
    wheelhouse.build_all(1)
    next(wheelhouse.DIST.glob("leaf*.whl")).unlink()
    wheelhouse.built.clear()
    wheelhouse.build_all(1)
    assert wheelhouse.built == ["leaf"]


def test_a_variable_that_a_package_names_is_part_of_its_digest(
    wheelhouse, tmp_path, monkeypatch
) -> None:
    table = '[tool.tangrad.build]\nvariables = ["TANGRAD_LEVELS"]'
    minding = make_package(tmp_path / "a", "a", table=table)
    other = make_package(tmp_path / "b", "b")
    digests = []
    for value in ("avx2", "avx512"):
        monkeypatch.setenv("TANGRAD_LEVELS", value)
        digests.append((wheelhouse.digest_of(minding), wheelhouse.digest_of(other)))
    assert digests[0][0] != digests[1][0]
    assert digests[0][1] == digests[1][1]


@pytest.mark.parametrize(
    ("portable", "asked", "built"),
    [
        (False, None, levels.of_this_machine()),
        (False, "avx2", "avx2"),
        (True, None, None),
        (True, "avx2", None),
    ],
)
def test_kernels_are_built_for_this_machine_unless_they_are_to_be_portable(
    wheelhouse, monkeypatch, portable, asked, built
) -> None:
    monkeypatch.setenv("TANGRAD_LEVELS", asked or "")
    if asked is None:
        monkeypatch.delenv("TANGRAD_LEVELS")
    wheelhouse.choose_levels(portable)
    assert os.environ.get("TANGRAD_LEVELS") == built


V3 = "sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.skipif(levels.platform.machine() != "x86_64", reason="the levels are x86-64's")
@pytest.mark.parametrize(
    ("flags", "best"),
    [("sse2", "baseline"), (V3, "avx2"), (V4, "avx512"), (V4.replace("fma", ""), "baseline")],
)
def test_the_level_is_the_best_whose_instructions_are_all_there(tmp_path, flags, best) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nflags\t\t: {flags}\n\nprocessor : 1\n")
    assert levels.of_this_machine(cpuinfo) == best
    assert levels.of_this_machine(tmp_path / "missing") == "baseline"
