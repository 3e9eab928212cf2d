"""Counters and the progress bar."""

from __future__ import annotations

import io

import pytest

import tangrad
from tangrad.profiler import counters, progress


def test_counters_count_ops_and_memory():
    x = tangrad.ones(100)
    before = counters()
    kept = [x + 1 for _ in range(10)]
    passed = counters() - before
    assert passed.ops == 10
    assert passed.allocations >= 10
    assert passed.allocated_bytes >= 10 * 400
    assert passed.cache_hits == passed.allocations - passed.device_allocations
    assert passed.live_bytes >= sum(t.untyped_storage().nbytes() for t in kept)
    assert "allocated bytes" in str(passed)


def test_counters_of_one_device_leave_out_the_others():
    before = counters("reference")
    tangrad.ones(1000)
    assert (counters("reference") - before).allocations == 0


@pytest.mark.filterwarnings("ignore::tangrad.plugin.FallbackWarning")
def test_fallbacks_are_counted():
    pytest.importorskip("tangrad_testing", reason="brings a device without kernels")
    x = tangrad.ones(3).to("loopback")
    before = counters()
    x.exp()
    assert (counters() - before).fallbacks >= 1


def test_progress_yields_what_the_loader_does_and_tells_it():
    file = io.StringIO()
    bar = progress([1, 2, 3], "epoch", file=file, interval=0)
    assert len(bar) == 3
    seen = []
    for item in bar:
        seen.append(item)
        bar.note(loss=tangrad.tensor(0.5))
    assert seen == [1, 2, 3]
    last = file.getvalue().splitlines()[-1]
    assert last.startswith("epoch: 3/3  [####################]")
    assert "data " in last
    assert last.endswith("loss 0.5")
    assert "\r" not in file.getvalue()


def test_progress_of_a_loader_without_length_has_no_bar():
    file = io.StringIO()
    bar = progress((n for n in range(2)), file=file)
    assert list(bar) == [0, 1]
    assert file.getvalue().startswith("2  ")
    with pytest.raises(TypeError, match="no length"):
        len(bar)


def test_progress_draws_over_its_line_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    file = Terminal()
    list(progress([1, 2], file=file, interval=0))
    assert file.getvalue().count("\r") == 3


def test_progress_leaves_nothing_of_a_longer_line_and_breaks_none(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    file = Terminal()
    bar = progress([1, 2, 3], file=file, interval=0)
    monkeypatch.setattr(bar, "line", iter(["long " * 4, "short", "x" * 500, "end"]).__next__)
    monkeypatch.setenv("COLUMNS", "60")
    list(bar)
    shown = file.getvalue().rstrip("\n").split("\r")[1:]
    assert shown == ["long " * 4, "short" + " " * 15, "x" * 59, "end" + " " * 56]


def test_progress_survives_a_closed_stream_and_an_error_in_the_loop():
    file = io.StringIO()
    file.close()
    assert list(progress([1, 2], file=file, interval=0)) == [1, 2]

    def fail():
        for _ in progress([1], file=io.StringIO()):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
