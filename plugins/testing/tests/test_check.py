"""The command that proves a device: what it prints, writes and answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tangrad
import tangrad_testing
from tangrad_testing import scorecard

SOURCES = [str(Path(m.__file__).parents[1]) for m in (tangrad, tangrad_testing)]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "PYTHONPATH": path},
    )


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("-W", "error", "-m", "tangrad", "check", *arguments)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict, str]:
    folder = tmp_path_factory.mktemp("card")
    done = check("loopback", "--json", str(folder / "card.json"), "--html", str(folder / "a.html"))
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads((folder / "card.json").read_text())
    return done.stdout, facts, (folder / "a.html").read_text()


def test_loopback_conforms_on_every_level(card: tuple[str, dict, str]) -> None:
    levels = card[1]["levels"]
    assert [row["level"] for row in levels] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert all(row["passed"] > 0 and row["failed"] == 0 for row in levels)


def test_the_card_says_in_text_what_it_says_in_json_and_html(card: tuple[str, dict, str]) -> None:
    text, facts, page = card
    assert facts["passed"]
    assert "all passed" in text
    assert "all passed" in page
    for reason in facts["not_applicable"]:
        assert reason in text
    for title in ("Levels", "Kernels to write next", "Calls in 2 steps of training"):
        assert title in text
        assert title in page


FAILING = {
    "device": "box", "properties": {"name": "box", "total_memory": "64"}, "tangrad": "0.1.0",
    "oracle": "known", "passed": False, "seconds": 1.25,
    "levels": [{"level": 0, "title": "driver contract", "passed": 7, "failed": 1,
                "not_applicable": 12, "seconds": 1.2}],
    "failures": [{"level": 0, "check": "copies", "says": "", "message": "got <1>, expected 2"}],
    "not_applicable": {}, "kernels": {"ran": {}, "never_ran": {}, "not_counted": {}},
    "steps": [], "next": [], "speed": [],
}  # fmt: skip


def test_a_card_begins_or_ends_with_its_verdict_and_names_what_failed() -> None:
    text, page = scorecard.as_text(FAILING), scorecard.as_html(FAILING)
    assert text.startswith("Device 'box' (total_memory 64), tangrad 0.1.0\n")
    assert text.endswith("NOT CONFORMING: 1 failed, 1.2 s of checks")
    assert "FAILED level 0, copies: got <1>, expected 2\n" in text
    row = "      0  driver contract       7       1              12     1.20\n"
    assert row in text
    assert page.index("NOT CONFORMING: 1 failed") < page.index("<b>level 0, copies</b>: got &lt;1")
    assert page.index("<h2>Failures") < page.index("<h2>Levels")
    assert "<td class='number'>12</td>" in page


def test_nothing_checked_is_not_all_passed() -> None:
    idle = {**FAILING, "passed": True, "levels": [], "failures": []}
    assert scorecard.as_text(idle).endswith("nothing was checked, 1.2 s of checks")


def test_the_card_names_the_kernels_to_write_next_by_what_typical_steps_call(
    card: tuple[str, dict, str],
) -> None:
    facts = card[1]
    assert [step["model"] for step in facts["steps"]] == ["MLP", "CNN", "Transformer"]
    assert all(step["decomposition"] and not step["kernel"] for step in facts["steps"])
    calls = [row["calls"] for row in facts["next"]]
    assert calls == sorted(calls, reverse=True)
    assert {"mm", "mul", "add_plain"} <= {row["op"] for row in facts["next"]}


def test_a_device_of_thirty_lines_passes_every_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "add-a-device.md").read_text("utf-8")
    (driver,) = re.findall(r"```python\n(# src/tangrad_box.py\n.*?)```", page, re.DOTALL)
    assert len(driver.splitlines()) <= 30
    (tmp_path / "tangrad_box.py").write_text(driver, "utf-8")
    told = tmp_path / "tangrad_box-1.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: tangrad-box\nVersion: 1\n")
    (told / "entry_points.txt").write_text("[tangrad.devices]\nbox = tangrad_box:Box\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    done = check("box", "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
    levels = json.loads(done.stdout)["levels"]
    assert [row["level"] for row in levels if row["passed"]] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_one_op_is_checked_in_all_dtypes() -> None:
    done = check("loopback", "--op", "hypot", "--json", "-")
    assert done.returncode == 0
    levels = {row["level"]: row for row in json.loads(done.stdout)["levels"]}
    assert levels[1]["passed"] + levels[1]["not_applicable"] == 17


def test_the_list_names_every_check_and_runs_none() -> None:
    done = check("loopback", "--level", "0", "--list")
    assert done.returncode == 0
    assert "0  copies_may_overlap: copy_within moves overlapping bytes" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonesuch"], "Expected one of cpu, meta, reference"),
        (["loopback", "--op", "nonesuch"], "no op is named nonesuch"),
        (["loopback", "--level", "12"], "no level 12: there are 0 to 8"),
    ],
)
def test_what_cannot_be_checked_is_said_on_one_line(arguments: list[str], says: str) -> None:
    done = check(*arguments)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unknown_device_is_one_line_for_pytest_as_well() -> None:
    body = "tangrad_testing.conformance.test_levels"
    done = run("-m", "pytest", "-p", "no:cacheprovider", "--pyargs", body,
               "--tangrad-device=nonesuch")  # fmt: skip
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.startswith("ERROR: --tangrad-device=nonesuch: Expected one of cpu")
    assert "Traceback" not in done.stderr


def test_without_torch_the_kit_compares_with_the_reference_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('not installed here')")
    (tmp_path / "test_all.py").write_text(
        "from tangrad_testing.conformance.test_forward import *\n"
        "from tangrad_testing.conformance.test_reference import *\n"
    )
    code = (
        "import importlib.util as u, sys; find = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a);"
        f"sys.path.insert(0, {str(tmp_path)!r}); import pytest;"
        f"sys.exit(pytest.main(['-p', 'no:cacheprovider', {str(tmp_path)!r},"
        "'-rN', '-vv', '--tangrad-device=loopback', '--tangrad-op=exp']))"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tangrad: PyTorch is not installed: the oracle is the reference device" in done.stdout
    # All dtypes: an op that is asked for by name takes all of its samples.
    assert done.stdout.count("test_result_is_that_of_the_reference[exp-") == 15


def test_checking_loads_no_torch() -> None:
    code = (
        "import sys; from tangrad.cli import main;"
        "status = main(['check', 'loopback', '--level', '0']);"
        "sys.exit(status or 'torch' in sys.modules or 'pytest' in sys.modules)"
    )
    assert run("-c", code).returncode == 0


COUNTED = """
import sys
from tangrad_testing import computing_loopback, loopback, scorecard
from tangrad_testing.levels import Device

class Idle(computing_loopback.Computing):
    def kernels(self):
        table = super().kernels()
        return {**table, "erfinv": (self.pointwise(abs), ("float32",))}

loopback.Loopback = Idle
card = scorecard.make(Device("loopback"), [4])
assert card["kernels"]["never_ran"]["erfinv"] == ["float32"], card["kernels"]
assert "float32" in card["kernels"]["ran"]["mul"]
assert not card["kernels"]["not_counted"]
assert card["steps"][0]["kernel"]["mm"] > 0
"""


def test_the_card_names_kernels_that_never_ran() -> None:
    done = run("-c", COUNTED)
    assert done.returncode == 0, done.stderr


def test_tests_of_others_may_have_cases_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "test_others.py").write_text(
        "import pytest, tangrad\n"
        "@pytest.mark.parametrize('case', [tangrad.ones(2), 3])\n"
        "def test_case(case): assert case is not None\n"
    )
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path), "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
