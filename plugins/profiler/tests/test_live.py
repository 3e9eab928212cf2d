"""The terminal view shows what runs, and takes nothing from the profile."""

from __future__ import annotations

import io
import subprocess
import sys
import time

import pytest

import tangrad
from tangrad.profiler import profile
from tangrad_profiler.live import Live


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_rows_are_what_ran_and_the_profile_keeps_all():
    file = io.StringIO()
    with profile() as prof, Live(prof._recording, interval=0.001, file=file):
        x = tangrad.ones(2)
        for looks in range(1, 6):
            x.exp()
            end = time.monotonic() + 100
            while file.getvalue().count("ops/s") < looks and time.monotonic() < end:
                time.sleep(0.005)
    text = file.getvalue()
    assert "aten::exp" in text
    assert text.count("ops/s") > 5
    (row,) = [r for r in prof.key_averages() if r.key == "aten::exp"]
    assert row.count == 5


def test_terminal_gets_a_table_by_rich():
    pytest.importorskip("rich")
    file = Terminal()
    with profile() as prof, Live(prof._recording, interval=0.01, file=file):
        tangrad.ones(2).exp()
        time.sleep(0.05)
    assert "aten::exp" in file.getvalue()
    assert "own time" in file.getvalue()


def test_terminal_without_rich_gets_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    file = Terminal()
    with profile() as prof, Live(prof._recording, file=file):
        tangrad.ones(2).exp()
    assert "aten::exp" in file.getvalue()


def test_closed_stream_does_not_end_the_program():
    file = io.StringIO()
    with profile() as prof, Live(prof._recording, interval=0.001, file=file):
        file.close()
        time.sleep(0.05)
        tangrad.ones(2)
    assert "aten::ones" in {r.key for r in prof.key_averages()}


def test_command_shows_it(tmp_path):
    (tmp_path / "member.py").write_text("value = 3\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import tangrad, member\nfor _ in range(9): tangrad.ones(member.value).exp()\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tangrad",
            "profile",
            "--live",
            "--out",
            tmp_path / "p.json",
            program,
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "aten::exp" in done.stderr
    assert (tmp_path / "p.json").exists()
