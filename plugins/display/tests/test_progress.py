"""Progress lines show in terminals, are silent in pipes, and change nothing of a loop."""

from __future__ import annotations

import importlib.util
import io

import pytest

from tangrad_display.progress_line import progress


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def plain(monkeypatch) -> None:
    """No rich is installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_nothing_is_written_to_a_pipe() -> None:
    file = io.StringIO()
    asked = []
    assert list(progress(range(3), file=file, show=lambda: asked.append(1))) == [0, 1, 2]
    assert file.getvalue() == ""
    assert not asked  # no number is read where none is shown


@pytest.mark.usefixtures("plain")
def test_a_line_tells_how_far_a_loop_is() -> None:
    file = Terminal()
    shown = {"loss": 0.123456, "batch": 7}
    assert list(progress(range(4), "train", file=file, show=lambda: shown)) == [0, 1, 2, 3]
    last = file.getvalue().rstrip("\n").rpartition("\r")[2]
    assert last.startswith("train  " + "█" * 24 + "  4/4")
    assert last.rstrip().endswith("loss 0.1235  batch 7")
    assert file.getvalue().endswith("\n")


@pytest.mark.usefixtures("plain")
def test_a_loop_of_unknown_length_counts() -> None:
    file = Terminal()
    assert sum(progress((i for i in range(3)), file=file)) == 3
    assert "░" not in file.getvalue()
    assert "\r3" in file.getvalue()
    empty = Terminal()
    assert list(progress([], file=empty, show=lambda: {"loss": 1.0})) == []
    assert "loss" not in empty.getvalue()


@pytest.mark.usefixtures("plain")
def test_a_loop_that_is_left_early_ends_its_line() -> None:
    file = Terminal()
    loop = progress(range(100), file=file)
    for item in loop:
        if item == 2:
            break
    loop.close()
    assert file.getvalue().endswith("\n")


def test_rich_draws_it_where_it_is_installed() -> None:
    pytest.importorskip("rich")
    file = Terminal()
    assert list(progress(range(3), "train", file=file, show=lambda: {"loss": 2.5})) == [0, 1, 2]
    assert "train" in file.getvalue()
    assert "3/3" in file.getvalue()
    assert "loss 2.5" in file.getvalue()
