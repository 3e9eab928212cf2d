"""Timers measure what they are told to, with a clock that the test holds."""

import pytest

import tangrad
from tangrad.utils.benchmark import Compare, Measurement, TaskSpec, Timer, select_unit

# PyTorch's timers import it, and warn if nobody else has before.
pytestmark = pytest.mark.filterwarnings("ignore:The distutils package:DeprecationWarning")


class Clock:
    """Time passes only when a statement says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def pass_(self, seconds):
        self.now += seconds


def test_a_run_is_measured_per_statement():
    clock = Clock()
    measured = Timer("c.pass_(0.5)", timer=clock, globals={"c": clock}).timeit(4)
    assert measured.raw_times == [2.0]
    assert measured.number_per_run == 4
    assert measured.median == measured.mean == 0.5


def test_blocks_go_on_until_the_time_is_reached():
    clock = Clock()
    blocks = []
    timer = Timer("c.pass_(0.25)", timer=clock, globals={"c": clock})
    measured = timer.blocked_autorange(lambda *block: blocks.append(block), min_run_time=2.0)
    assert sum(measured.raw_times) == 2.0
    assert blocks == [(measured.number_per_run, t) for t in measured.raw_times]
    assert measured.median == 0.25


def test_the_number_of_threads_holds_meanwhile_only():
    before = tangrad.get_num_threads()
    tangrad.set_num_threads(before + 1)
    wanted = tangrad.get_num_threads()  # one, where no backend has threads
    tangrad.set_num_threads(before)
    seen = []
    Timer(
        "seen.append(torch.get_num_threads())", globals={"seen": seen}, num_threads=before + 1
    ).timeit(2)
    assert set(seen) == {wanted}
    assert tangrad.get_num_threads() == before


def test_measurements_of_one_task_are_merged():
    task = TaskSpec("x", "pass")
    (merged,) = Measurement.merge([Measurement(2, [2.0], task), Measurement(1, [3.0], task)])
    assert merged.times == [1.0, 3.0]
    assert merged.median == 2.0


def test_a_table_compares():
    results = [
        Measurement(1, [seconds], TaskSpec("x", "pass", "", "sum", row, column))
        for row, column, seconds in [("a", "old", 2e-3), ("a", "new", 1e-3), ("b", "old", 4e-3)]
    ]
    lines = str(Compare(results)).splitlines()
    assert "sum" in lines[0]
    assert lines[1].split() == ["|", "old", "|", "new"]
    assert lines[3].split() == ["a", "|", "2.0", "|", "1.0"]
    assert lines[4].split() == ["b", "|", "4.0", "|"]
    assert "milliseconds" in lines[-1]
    with pytest.raises(ValueError, match="Measurement"):
        Compare([3])


def test_the_text_has_the_label_the_median_and_the_counts(agree):
    def program(t):
        from importlib import import_module

        timer = import_module(f"{t.__name__}.utils.benchmark").Timer("pass", label="L")
        measured = timer.timeit(100)
        return repr(measured).splitlines()[1], repr(measured).splitlines()[-1].split()

    agree(program)


def test_units_fit():
    assert [select_unit(t)[0] for t in (5e-10, 2e-6, 3e-3, 4.0)] == ["ns", "us", "ms", "s"]
