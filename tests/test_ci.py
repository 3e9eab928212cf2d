"""What continuous integration proves: every combination has its step, and all fit into the time."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import ci.__main__ as command
from ci import durations, environment, running, steps
from ci.sampling import fitting
from ci.steps import Package, Step, closure, combine, plan, read_packages

ROOT = Path(__file__).resolve().parents[1]


def package(name: str, *siblings: str, minutes: float = 1.0) -> Package:
    tests = (Path("plugins") / name / "tests",)
    return Package(name, tests[0].parent, siblings, (), tests, (), minutes, 0.5, minutes)


@pytest.fixture
def house() -> dict[str, Package]:
    names = ("tangrad-core", "tangrad-cpu", "tangrad-a", "tangrad-b", "tangrad-testing")
    return {**{n: package(n) for n in names}, "tangrad-c": package("tangrad-c", "tangrad-a")}


def test_the_steps_of_this_repository_fit_into_the_time() -> None:
    planned = plan(read_packages(), "a commit")
    assert round(steps.total_minutes(planned), 6) <= steps.LIMIT, (
        "the packages' minutes are too many: take some from [tool.tangrad.ci] of a pyproject.toml\n"
        + "\n".join(f"{step.minutes:6.2f} {step.name}" for step in planned)
    )
    assert all(running.seconds_of_tests(step) > 0 for step in planned)


def test_every_package_with_tests_is_proved() -> None:
    tested = {name for name, package in read_packages().items() if package.tests}
    proved = {name for step in plan(read_packages(), "") for name in step.packages}
    assert tested <= proved


def test_each_package_runs_alone_with_the_cpu_and_beside_all_others(house) -> None:
    names = [step.name for step in plan(house, "a commit")]
    assert names[:7] == ["core by itself", "core", "cpu", "a", "b", "testing", "c"]
    assert names[7:10] == ["a + cpu", "b + cpu", "c + cpu"]
    assert names[10] == "all together"
    assert len(names) == 12


def test_a_large_suite_gives_way_to_packages_that_come_later(house) -> None:
    house["tangrad-core"] = replace(house["tangrad-core"], minutes=12.0, least_minutes=6.0)
    assert plan(house, "")[1].minutes == 12.0
    house["tangrad-d"] = package("tangrad-d", minutes=14.0)
    planned = plan(house, "")
    assert 6.0 < planned[1].minutes < 12.0
    assert steps.total_minutes(planned) == pytest.approx(steps.LIMIT)
    house["tangrad-e"] = package("tangrad-e", minutes=30.0)
    planned = plan(house, "")
    assert planned[1].minutes == 6.0
    assert steps.total_minutes(planned) > steps.LIMIT


def test_the_commit_chooses_the_pair(house) -> None:
    pairs = {plan(house, str(commit))[-1].name for commit in range(50)}
    assert pairs == {"a + b", "a + c", "b + c"}
    assert plan(house, "one") == plan(house, "one")


def test_a_step_installs_what_its_package_needs_and_nothing_else(house) -> None:
    usual = {"tangrad-core", "tangrad-testing"}
    assert set(closure(house, ["tangrad-c"])) == {*usual, "tangrad-a", "tangrad-c"}
    assert set(closure(house, ["tangrad-b"])) == {*usual, "tangrad-b"}


def test_beside_the_cpu_the_other_package_s_tests_run(house) -> None:
    step = combine(house, ["tangrad-a", "tangrad-cpu"])
    assert step.tests == (Path("plugins/tangrad-a/tests"),)
    assert "tangrad-cpu" in step.packages


def test_a_package_that_needs_a_missing_one_is_refused(house) -> None:
    house["tangrad-d"] = package("tangrad-d", "tangrad-missing")
    with pytest.raises(ValueError, match="need tangrad-missing"):
        plan(house, "")


def test_a_package_s_row_is_read_from_its_pyproject(tmp_path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        """
        [project]
        name = "tangrad-thing"
        dependencies = ["tangrad-core~=0.2.0", "rich>=13"]
        [tool.tangrad.ci]
        minutes = 1.5
        minutes-with-cpu = 0.75
        requirements = ["onnx>=1.17", "tangrad-other"]
        apart = ["old==1.0"]
        arguments = ["--tangrad-device=thing"]
        """
    )
    read = steps.read_package(tmp_path)
    assert (read.minutes, read.minutes_with_cpu) == (1.5, 0.75)
    assert read.siblings == ("tangrad-core", "tangrad-other")
    assert read.requirements == ("rich>=13", "onnx>=1.17")
    assert read.apart == ("old==1.0",)
    assert read.tests == (tmp_path / "tests",)
    assert read.arguments == ("--tangrad-device=thing",)


def test_what_stands_beside_no_other_version_is_installed_once_and_alone(
    tmp_path, monkeypatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(environment, "_pip", lambda *words: asked.append(words))
    monkeypatch.setattr(environment.sys, "prefix", str(tmp_path))
    folder = tmp_path / "apart" / "old==1.0"
    described = replace(package("tangrad-a"), apart=("old==1.0",))
    environment.install_apart([described, described])
    assert asked == [("install", "--quiet", "--no-deps", "--target", str(folder), "old==1.0")]
    folder.mkdir(parents=True)
    environment.install_apart([described])
    assert len(asked) == 1


@pytest.mark.parametrize(("form", "requirements"), [("fast", ()), ("full", ("ray>=2",))])
def test_the_full_form_may_need_more(tmp_path, monkeypatch, form, requirements) -> None:
    monkeypatch.setenv("TANGRAD_TESTS", form)
    text = '[project]\nname = "tangrad-thing"\n'
    text += '[tool.tangrad.ci]\nfull-requirements = ["ray>=2"]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    assert steps.read_package(tmp_path).requirements == requirements


def test_an_unknown_key_of_a_row_is_refused(tmp_path) -> None:
    text = '[project]\nname = "tangrad-thing"\n[tool.tangrad.ci]\nminute = 2'
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ValueError, match="knows no minute"):
        steps.read_package(tmp_path)


NAMES = [f"tests/test_a.py::test_{number}" for number in range(200)]


def test_all_tests_run_if_they_fit() -> None:
    assert fitting(NAMES, dict.fromkeys(NAMES, 0.5), 100.0) == set(NAMES)


def test_what_is_chosen_fills_the_time_and_differs_from_step_to_step() -> None:
    expected = dict.fromkeys(NAMES, 0.5)
    chosen = fitting(NAMES, expected, 30.0, "core")
    assert len(chosen) == 60
    assert chosen == fitting(NAMES[::-1], expected, 30.0, "core")
    assert chosen != fitting(NAMES, expected, 30.0, "cpu")


def test_one_test_runs_however_short_the_time_is() -> None:
    assert len(fitting(NAMES, dict.fromkeys(NAMES, 0.5), 0.0)) == 1


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path) -> None:
    mark = tmp_path / "child"
    code = (
        "import subprocess, sys, time;"
        f"c = subprocess.Popen(['sleep', '600']); open({str(mark)!r}, 'w').write(str(c.pid));"
        "time.sleep(600)"
    )
    for limit in (2.0, 10.0, 50.0):  # a busy machine takes its time to start them
        assert running.run_within([sys.executable, "-c", code], limit) is None
        if mark.exists() and mark.read_text():
            break
    end = time.monotonic() + 100
    while is_running(int(mark.read_text())) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(int(mark.read_text()))


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z" and os.path.exists(f"/proc/{process}")


def test_the_end_tells_every_failure(capsys) -> None:
    step = Step("a + cpu", (), (), (), 1.0, 1.0)
    good = running.Outcome(step, 30.0, "", {"passed": 5, "failed": [], "skipped": 1})
    bad = running.Outcome(step, 60.0, "tests failed", {"passed": 2, "failed": ["t.py::test_x"]})
    hung = running.Outcome(step, 180.0, "stopped after 3.0 minutes")
    assert running.tell([good])
    assert not running.tell([good, bad, hung])
    text = capsys.readouterr().out
    assert "FAILED t.py::test_x" in text
    assert "stopped after 3.0 minutes" in text
    assert text.rstrip().endswith("total: 7 passed, 2 failed, 1 skipped")


def test_durations_of_new_files_are_added_and_known_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "durations.json"
    file.write_text('{"calibration": 1.0, "usual": 0.1, "files": {"b.py": 2.0}}', "utf-8")
    monkeypatch.setattr(durations, "FILE", file)
    reports = [{"files": {"a.py": [3.0, 2], "b.py": [9.0, 1]}}, {"files": {"a.py": [8.0, 4]}}]
    assert durations.record_new(reports, slowness=2.0) == ["a.py"]
    assert json.loads(file.read_text("utf-8")) == {
        "calibration": 1.0,
        "usual": 0.1,
        "files": {"a.py": 1.0, "b.py": 2.0},
    }


@pytest.mark.parametrize("slowness", [1.0, 3.0])
def test_the_tests_of_a_step_do_not_depend_on_the_machine(
    slowness: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run_within(command: list[str], seconds: float) -> int:
        asked.extend(word for word in command if word.startswith("--sample"))
        return 0

    monkeypatch.setattr(running, "install", lambda packages: None)
    monkeypatch.setattr(running, "run_within", run_within)
    running.run(Step("a", (), (), (), minutes=2.0, least_minutes=2.0), slowness)
    assert asked[0] == "--sample-salt=a"
    assert asked[2] == "--sample-seconds=81"


def test_how_slow_the_machine_is_is_looked_at_before_every_step(
    house, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, asked = iter([1.0, 2.5, 1.0]), []

    def run(step: Step, slowness: float, extra: object) -> running.Outcome:
        asked.append((step.name, slowness))
        return running.Outcome(step)

    monkeypatch.setattr(command, "prepare", lambda packages: 0.0)
    monkeypatch.setattr(durations, "slowness", lambda: next(looks))
    monkeypatch.setattr(command, "weight", lambda packages: 1)
    monkeypatch.setattr(running, "run", run)
    assert command.run_all(house, plan(house, "")[:3], (), record=False, record_new=False) == 0
    assert [slowness for _, slowness in asked] == [1.0, 2.5, 1.0]


def test_a_run_that_leaves_too_much_on_disk_is_red(
    house, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(command, "prepare", lambda packages: 0.0)
    monkeypatch.setattr(command, "weight", lambda packages: 7_000_000_000)
    assert command.run_all(house, [], (), record=False, record_new=False) == 1
    assert "disk: 7.0 GB on disk, more than 6" in capsys.readouterr().out


def test_what_lies_on_disk_is_the_environment_the_wheels_and_the_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, size in (("env/lib/a", 5), ("dist/b", 70), ("a/build/c", 900), ("a/src/d", 4000)):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_bytes(bytes(size))
    (tmp_path / "env" / "link").symlink_to(tmp_path / "a" / "src")
    monkeypatch.setattr(environment.sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setattr(environment, "DIST", tmp_path / "dist")
    assert environment.weight([replace(package("tangrad-a"), folder=tmp_path / "a")]) == 975
