"""What tools/pytorch_tests.py makes of verdicts: causes, comparisons and the page."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FULL = os.environ.get("TANGRAD_TESTS") == "full"
FETCHED = os.environ.get("TANGRAD_PYTORCH_TESTS", "")
TESTS = """
import unittest
import torch

class TestNumbers(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(torch.ones(2).sum().item(), 2)

    def test_wrong_on_both(self):
        self.assertEqual(torch.ones(2).sum().item(), 3)

    def test_who(self):
        self.assertEqual(type(torch.ones(2)).__module__, "torch")

    def test_dies(self):
        if type(torch.ones(2)).__module__ != "torch":
            import os
            os._exit(9)

    def test_left(self):
        if type(torch.ones(2)).__module__ != "torch":
            torch.no_such_name
"""


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def part(name: str) -> Any:
    return importlib.import_module(f"pytorch_suite.{name}")


def missed(kind: str, name: str, text: str = "") -> dict[str, str]:
    return {"verdict": "error", "kind": kind, "name": name, "text": text}


@pytest.mark.parametrize(
    ("entry", "cause"),
    [
        ({"verdict": "pass"}, ""),
        ({"verdict": "hang"}, "hang"),
        ({"verdict": "crash"}, "crash"),
        ({"verdict": "skip"}, "skipped"),
        ({"verdict": "skip", "text": "PyTorch is built without MKL-DNN support"}, "private"),
        (None, "skipped"),
        ({"verdict": "fail", "kind": "AssertionError", "text": "1 != 2"}, "value"),
        ({"verdict": "fail", "kind": "AssertionError", "text": "X not raised"}, "accepted"),
        ({"verdict": "fail", "kind": "AssertionError", "text": '"a" does not match "b"'}, "words"),
        ({"verdict": "error", "kind": "RuntimeError", "text": "no"}, "raised"),
        (
            missed("MissingPluginError", "", "'tangrad.nested.nested_tensor' does not exist"),
            "apart",
        ),
        (missed("NotImplementedError", "", "torch.sparse_bsr has no definition: it"), "raised"),
        (missed("AttributeError", "itt"), "name"),
        (missed("AttributeError", "_lazy_clone"), "private"),
        (missed("PrivateName", "torch._refs.sum"), "private"),
        (missed("AttributeError", "", "module 'torch._refs.a' has no attribute 'b'"), "private"),
        (missed("PrivateName", "torch._not_listed"), "name"),
        (
            missed("MissingPluginError", "m", "it has no 'tangrad._functorch.x': not there"),
            "private",
        ),
        (missed("AssertionError", "", '"a" does not match "private name torch._C.x"'), "private"),
        (missed("ImportError", "m", "cannot import name '_lazy_clone' from 'm'"), "private"),
        (
            missed("AttributeError", "", "<m> does not have the attribute '_lazy_clone'"),
            "private",
        ),
        (
            missed("AttributeError", "", "'types.SimpleNamespace' object has no attribute 'x'"),
            "private",
        ),
        (missed("TypeError", "", "'StubModule' object is not callable"), "private"),
    ],
)
def test_a_verdict_has_a_cause(entry: dict[str, Any] | None, cause: str) -> None:
    assert part("causes").cause(entry) == cause


def test_only_tests_that_pass_on_pytorch_count() -> None:
    theirs = {
        "a": {"verdict": "pass"}, "b": {"verdict": "fail"}, "c": {"verdict": "pass"},
        "<end>": {"verdict": "end"},
    }  # fmt: skip
    ours = {"a": {"verdict": "pass"}, "b": {"verdict": "pass"}, "c": {"verdict": "start"}}
    assert part("causes").compare(theirs, ours) == {"a": {"cause": ""}}
    unloaded = {"<load>": {"verdict": "load", "kind": "ImportError", "text": "no"}}
    assert [t["cause"] for t in part("causes").compare(theirs, unloaded).values()] == [
        "skipped"
    ] * 2


def test_layouts_that_are_not_asked_for_are_apart_by_name() -> None:
    names = ("t_SparseCSR_float64", "t_SparseCSC_float64", "t_SparseCSR_SparseBSC")
    passed = {name: {"verdict": "pass"} for name in names}
    found = part("causes").compare(passed, passed)
    assert [found[name]["cause"] for name in names] == ["", "apart", "apart"]


def test_what_passed_and_fails_is_told() -> None:
    good, bad = {"cause": ""}, {"cause": "value", "kind": "E", "text": "1 != 2\nmore"}
    before = {"files": {"f.py": {"a": good, "b": bad}}}
    now = {"files": {"f.py": {"a": bad, "b": bad, "new": bad}, "g.py": {"a": bad}}}
    assert part("causes").broken(before, now) == ["f.py::a: value E 1 != 2"]


def report_of(file: str, **run: str) -> dict[str, Any]:
    tests = {"a": {"cause": ""}, "b": {"cause": "value"}, "c": {"cause": "private"}}
    return {"torch": "2.13.0", "files": {file: tests}, "runs": {file: run}}


def test_the_page_counts_by_file_and_cause() -> None:
    page = part("page").page(report_of("f.py", commit="abc", date="2000-01-01"))
    counts = "| 3 | 1 | 33.3 | 50.0 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 |"
    assert f"| `f.py` {counts} abc | 2000-01-01 |" in page
    assert "PyTorch 2.13.0." in page
    assert max(map(len, page.splitlines())) < 160


def test_the_page_counts_main_files_together() -> None:
    make = part("page").page
    first = make(report_of("f.py", commit="abc", date="2000-01-01"))
    both = make(report_of("g.py", commit="abc", date="2000-01-01"), before=first, main=["g.py"])
    assert "| 1 main files | 3 | 1 |" in both
    assert "| all | 6 | 2 |" in both
    again = make(report_of("g.py", commit="abc", date="2000-01-01"), before=both, main=["g.py"])
    assert again == both


def test_the_page_keeps_rows_of_files_that_did_not_run() -> None:
    make = part("page").page
    first = make(report_of("f.py", commit="abc", date="2000-01-01"))
    both = make(report_of("g.py", commit="def", date="2000-01-02"), before=first)
    row = next(line for line in first.splitlines() if "`f.py`" in line)
    assert row in both
    assert "def | 2000-01-02 |" in both
    nothing = {"torch": "2.13.0", "files": {"f.py": {}}, "runs": {"f.py": {}}}
    assert row in make(nothing, before=first)
    assert "| all | 6 | 2 |" in both
    again = make(report_of("f.py", commit="ghi", date="2000-01-03"), before=both)
    assert "abc" not in again
    assert "ghi | 2000-01-03 |" in again
    assert "| all | 6 | 2 |" in again


def test_a_file_runs_on_both_and_goes_on_after_a_crash(tmp_path: Path) -> None:
    for needed in ("torch", "expecttest", "hypothesis", "scipy", "tangrad.compat.stand_in"):
        pytest.importorskip(needed)
    source, work = tmp_path / "tests", tmp_path / "work"
    source.mkdir()
    (source / "test_numbers.py").write_text(TESTS, "utf-8")
    command = [sys.executable, str(ROOT / "tools" / "pytorch_tests.py"), "--source", str(source),
               "--work", str(work), "--file", "test_numbers.py"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = json.loads((work / "report.json").read_text("utf-8"))["files"]["test_numbers.py"]
    causes = {name.rpartition(".")[2]: test["cause"] for name, test in made.items()}
    assert causes == {
        "test_sum": "", "test_who": "value", "test_dies": "crash", "test_left": "name",
    }  # fmt: skip


@pytest.mark.skipif(not (FULL and FETCHED), reason="PyTorch's tests: TANGRAD_PYTORCH_TESTS=FOLDER")
def test_no_test_of_pytorchs_fails_that_passed_in_the_run_before() -> None:
    tool = ROOT / "tools" / "pytorch_tests.py"
    command = [sys.executable, str(tool), "--source", FETCHED, "--work", f"{FETCHED}/.verdicts"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_class_that_cannot_make_its_tests_costs_only_itself() -> None:
    class TestWhole(unittest.TestCase):
        def test_one(self) -> None:
            pass

    class TestBroken(TestWhole):
        def __init__(self, name: str) -> None:
            raise RuntimeError("needs what is not there")

    module = ModuleType("test_file")
    module.__dict__.update(TestWhole=TestWhole, TestBroken=TestBroken)
    made, unmade = part("worker").made_cases(module)
    assert [type(case) for case in made] == [TestWhole]
    assert {name: str(error) for name, error in unmade.items()} == {
        "TestBroken.test_one": "needs what is not there"
    }
