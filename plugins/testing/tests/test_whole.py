"""A run of the whole kit in pieces: counted, resumed, and not stopped by what crashes or hangs."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tangrad_testing import whole
from tangrad_testing.recording import LONGEST_LINE, last_line, outcomes, write

TESTS = """
    import os, time
    import pytest
    def test_good(): pass
    def test_bad(): assert 1 == 2, "one is not two"
    def test_skipped(): pytest.skip("not here")
    @pytest.mark.xfail(strict=True, reason="known")
    def test_known(): assert False
    def test_crash(): os.abort()
    def test_hang(): time.sleep(600)
    def test_last(): pass
"""


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let one piece be a file of tests; returns where they are written down."""
    (tmp_path / "test_some.py").write_text(textwrap.dedent(TESTS), "utf-8")
    monkeypatch.setattr(whole, "pieces", lambda *_: [[str(tmp_path / "test_some.py")]])
    return tmp_path / "record.jsonl"


def test_every_test_has_an_outcome_whatever_crashes_or_hangs(record: Path) -> None:
    whole.run("reference", record, 8, limit=15)
    found = {test.partition("::")[2]: line for test, line in outcomes(record).items()}
    assert {test: line["outcome"] for test, line in found.items()} == {
        "test_good": "passed",
        "test_bad": "failed",
        "test_skipped": "skipped",
        "test_known": "xfailed",
        "test_crash": "crashed",
        "test_hang": "hung",
        "test_last": "passed",
    }
    assert "one is not two" in found["test_bad"]["says"]
    size = record.stat().st_size
    whole.run("reference", record, 8, limit=15)
    assert record.stat().st_size == size
    text = whole.report(record)
    assert "failed test_some.py::test_bad: AssertionError: one is not two" in text
    assert "1 crashed, 1 failed, 1 hung, 2 passed, 1 skipped, 1 xfailed" in text


def test_a_line_that_a_kill_left_unfinished_is_passed_over(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    record.write_text(
        json.dumps({"test": "a", "outcome": "passed"}) + '\n{"test": "b", "ou', "utf-8"
    )
    write(record, test="c", outcome="failed")
    assert sorted(outcomes(record)) == ["a", "c"]


def test_the_last_line_is_found_without_the_others(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    record.touch()
    assert last_line(record) == {}
    for test in ("a" * LONGEST_LINE, "b"):
        write(record, test=test, outcome="started")
    assert last_line(record)["test"] == "b"
    with record.open("a", encoding="utf-8") as file:
        file.write('{"test": "c", "ou')
    assert last_line(record)["test"] == "b"


def test_what_ends_before_its_first_test_is_an_error(record: Path) -> None:
    with pytest.raises(RuntimeError, match="ended before its first test"):
        whole.run("no_such_device", record, 8, limit=15)


def test_a_process_that_did_not_come_to_its_tests_has_not_ended(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="ended before its first test"):
        whole.run("reference", record, 8, limit=15)


def test_pieces_hold_every_op_once() -> None:
    from tangrad_testing.cases import op_names

    plain, *rest = whole.pieces(50)
    ops = [a.partition("=")[2] for piece in rest for a in piece if a.startswith("--tangrad-op")]
    assert sorted(ops) == op_names()
    assert not any("op=" in a for a in plain)


def test_the_first_ops_of_the_order_are_left_out() -> None:
    _, *every = whole.pieces(10**6)
    (kit, *late), *others = whole.pieces(10**6, first=7)
    assert ([kit, *late], others) == ([whole.KIT, *every[0][8:]], [])


def test_what_ran_when_all_was_stopped_runs_again(record: Path) -> None:
    record.touch()
    write(record, test="test_some.py::test_good", outcome="started")
    write(record, test="test_other.py::test_gone", outcome="started")
    for name in ("bad", "skipped", "known", "crash", "hang", "last"):
        write(record, test=f"test_some.py::test_{name}", outcome="passed")
    whole.run("reference", record, 8, limit=15)
    found = outcomes(record)
    assert found["test_some.py::test_good"]["outcome"] == "passed"
    assert found["test_other.py::test_gone"]["outcome"] == "interrupted"


def test_ops_that_have_ended_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "record.jsonl"
    told: list[list[str]] = []

    def run_piece(device: str, record: Path, piece: list[str], limit: float) -> bool:
        told.append(piece)
        return True

    monkeypatch.setattr(whole, "run_piece", run_piece)
    monkeypatch.setattr("tangrad_testing.cases.op_names", lambda: ["abs", "add", "mul", "sub"])
    whole.run("reference", record, 3, limit=15)
    whole.run("reference", record, 2, limit=15, arguments=["-k", "float32"])
    whole.run("reference", record, 1, limit=15)
    sizes = [len([a for a in piece if "op=" in a]) for piece in told]
    assert sizes == [0, 3, 1, 0, 2, 2]


def test_counts_are_told_by_body_and_dtype(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    record.touch()
    for dtype, outcome in (("float32", "passed"), ("bool", "failed"), ("bool", "passed")):
        write(record, test=f"test_x.py::test_y[add-{dtype}-{outcome}]", outcome=outcome)
    lines = whole.report(record).splitlines()
    told = {line[:70].strip(): line[70:].strip() for line in lines}
    assert told["dtype bool"] == "1 failed, 1 passed"
    assert told["dtype float32"] == "1 passed"
    assert told["test_x.py::test_y"] == told["all"] == "1 failed, 2 passed"
