"""What continuous integration runs: every package's tests, within the minutes that they state."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import ci.__main__ as command
from ci import packages as described
from ci import shares
from ci.packages import Package, closure, combinations, installed_with, read_packages

ROOT = Path(__file__).resolve().parents[1]
ALL = read_packages()


def package(name: str, *siblings: str) -> Package:
    folder = ROOT / "plugins" / name
    return Package(name, folder, requires=siblings, siblings=siblings, tests=(folder / "tests",))


@pytest.fixture
def house() -> dict[str, Package]:
    names = ("tangrad-core", "tangrad-cpu", "tangrad-a", "tangrad-b", "tangrad-testing", "tangrad")
    return {**{n: package(n) for n in names}, "tangrad-c": package("tangrad-c", "tangrad-a")}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What would be run: commands of pytest, and packages before they are installed."""
    asked: list[tuple[str, ...]] = []

    class Done:
        returncode = 0

    def note(words: list[str], **options: object) -> Done:
        asked.append(tuple(words))
        return Done()

    monkeypatch.setattr(command.subprocess, "run", note)
    monkeypatch.setattr(command, "prepare", lambda packages, names=(): None)
    monkeypatch.setattr(command, "install", lambda names: asked.append(tuple(names)) or 0)
    monkeypatch.setattr(command, "each_by_itself", lambda packages: 0)
    return asked


def test_the_packages_minutes_fit_into_the_time() -> None:
    assert described.minutes(ALL.values()) <= described.LIMIT, (
        "the packages' minutes are too many: mark tests `slow`, or make them faster, and take from"
        " `minutes` in [tool.tangrad.ci]\n"
        + "\n".join(f"{package.minutes:6.2f} {name}" for name, package in ALL.items())
    )


def test_every_package_with_tests_states_its_minutes() -> None:
    assert not [name for name, package in ALL.items() if package.tests and not package.minutes]


def test_the_short_form_runs_every_package_s_tests_together(ran) -> None:
    assert command.main([]) == 0
    whole = ran[-1]
    assert ran[-2] == tuple(ALL)
    assert set(described.tests_of(ALL.values())) <= set(whole)
    for folder in [*ROOT.glob("*/tests"), *ROOT.glob("*/*/tests"), ROOT / "tests"]:
        place = folder.relative_to(ROOT)
        if place.parts[0] not in {"examples", "dist", ".tox"}:
            assert str(place) in whole


def test_what_the_short_form_runs_depends_on_the_commit_alone(ran) -> None:
    command.main([])
    (whole,) = (words for words in ran if "core/tests" in words)
    options = [word for word in whole[1:] if word.startswith("-")]
    assert options == ["-m", "-q", "-rfE", "-p", "-n", "--dist", "-m"]
    assert whole[-2:] == ("-m", "not own_factor")


def test_before_it_the_core_stands_alone(ran) -> None:
    command.main([])
    assert ran[0] == ("tangrad-core",)
    assert ran[1][-1].endswith("core/tests/alone")


def test_a_failure_in_any_part_is_a_failure(ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "each_by_itself", lambda packages: 1)
    assert command.main([]) == 1


def test_the_full_form_runs_each_package_alone_and_with_the_cpu(house) -> None:
    assert combinations(house) == [
        ["tangrad", "tangrad-core", "tangrad-testing"],
        *(["tangrad-cpu"], ["tangrad-a"], ["tangrad-b"], ["tangrad-c"]),
        *(["tangrad-a", "tangrad-cpu"], ["tangrad-b", "tangrad-cpu"]),
        ["tangrad-c", "tangrad-cpu"],
    ]


def test_each_combination_runs_its_tests_in_the_short_form(ran, monkeypatch) -> None:
    monkeypatch.setenv("TANGRAD_TESTS", "full")
    assert command.main(["--each"]) == 0
    assert os.environ["TANGRAD_TESTS"] == "fast"
    assert len(ran) == 2 * len(combinations(ALL))


def test_every_package_with_tests_is_in_a_combination() -> None:
    proved = {name for names in combinations(ALL) for name in names}
    assert {name for name, package in ALL.items() if package.tests} <= proved


def test_a_combination_installs_what_its_package_needs_and_nothing_else(house) -> None:
    usual = {"tangrad", "tangrad-core", "tangrad-testing"}
    assert set(closure(house, ["tangrad-c"])) == {*usual, "tangrad-a", "tangrad-c"}
    assert set(closure(house, ["tangrad-b"])) == {*usual, "tangrad-b"}
    assert installed_with(house, "tangrad-c") == ("tangrad-core", "tangrad-a", "tangrad-c")


@pytest.mark.parametrize("asked", [["onnx", "cpu"], ["onnx-cpu"], ["py313-onnx-cpu"]])
def test_beside_the_cpu_the_other_package_s_tests_run(ran, asked: list[str]) -> None:
    command.main([*asked, "--", "-k", "relu"])
    assert "tangrad-cpu" in ran[0]
    assert ran[1][-3:] == ("plugins/onnx/tests", "-k", "relu")


def test_the_cpu_alone_runs_its_tests_and_the_core_s_on_its_device(ran) -> None:
    command.main(["cpu"])
    assert {"--tangrad-device=cpu", "backend_cpu/tests", "core/tests"} <= set(ran[1])


def test_an_unknown_package_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match="no package onyx; there are core, cpu"):
        command.main(["onyx-cpu"])


def test_a_package_that_needs_a_missing_one_is_refused(house) -> None:
    house["tangrad-d"] = package("tangrad-d", "tangrad-missing")
    with pytest.raises(ValueError, match="need tangrad-missing"):
        closure(house, ["tangrad-d"])


def test_a_package_s_row_is_read_from_its_pyproject(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        """
        [project]
        name = "tangrad-thing"
        dependencies = ["tangrad-core~=0.2.0", "rich>=13"]
        [tool.tangrad.ci]
        minutes = 1.5
        requirements = ["onnx>=1.17", "tangrad-other"]
        apart = ["old==1.0"]
        arguments = ["--tangrad-device=thing"]
        """
    )
    read = described.read_package(tmp_path)
    assert read.minutes == 1.5
    assert read.requires == ("tangrad-core",)
    assert read.siblings == ("tangrad-core", "tangrad-other")
    assert read.requirements == ("rich>=13", "onnx>=1.17")
    assert read.apart == ("old==1.0",)
    assert read.tests == (tmp_path / "tests",)
    assert read.arguments == ("--tangrad-device=thing",)


@pytest.mark.parametrize(("form", "requirements"), [("fast", ()), ("full", ("ray>=2",))])
def test_the_full_form_may_need_more(tmp_path, monkeypatch, form, requirements) -> None:
    monkeypatch.setenv("TANGRAD_TESTS", form)
    text = '[project]\nname = "tangrad-thing"\n'
    text += '[tool.tangrad.ci]\nfull-requirements = ["ray>=2"]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    assert described.read_package(tmp_path).requirements == requirements


def test_an_unknown_key_of_a_row_is_refused(tmp_path: Path) -> None:
    text = '[project]\nname = "tangrad-thing"\n[tool.tangrad.ci]\nminute = 2'
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ValueError, match="knows no minute"):
        described.read_package(tmp_path)


def test_versions_that_conflict_are_installed_once_and_alone(tmp_path, monkeypatch) -> None:
    asked: list[tuple[str, ...]] = []

    class Process:
        def __init__(self, words: list[str]) -> None:
            self.wait = lambda: 0

    monkeypatch.setattr(command, "pip", lambda *words: asked.append(words))
    monkeypatch.setattr(command.subprocess, "Popen", Process)
    monkeypatch.setattr(command.sys, "prefix", str(tmp_path))
    folder = tmp_path / "apart" / "old==1.0"
    house = {"tangrad-a": replace(package("tangrad-a"), apart=("old==1.0",))}
    command.prepare(house)
    assert asked == [("install", "--quiet", "--no-deps", "--target", str(folder), "old==1.0")]
    folder.mkdir(parents=True)
    command.prepare(house)
    assert len(asked) == 1


def test_minutes_are_counted_for_the_innermost_package() -> None:
    owners = {
        "tests/test_ci.py": "tangrad",
        "core/tests/test_version.py": "tangrad-core",
        "backend_cuda/tests/test_ptx.py": "tangrad-cuda",
        "backend_cuda/emulator/tests/test_memory.py": "tangrad-cuda-emulator",
    }
    assert {file: shares.owner(ALL, file) for file in owners} == owners
