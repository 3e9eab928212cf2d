"""What is compiled is timed beside the function in its first calls, and dropped if it is slower."""

from __future__ import annotations

import itertools

import pytest

import tangrad
from tangrad_jit.compiling.profitability import ProfitabilityCheck
from tangrad_jit.compiling.queued import QueuedCalls


class Clock:
    """A clock that a call moves on by what its way costs; `now` is in seconds."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(ProfitabilityCheck, "clock", staticmethod(lambda: self.now))

    def way(self, *costs):
        """Return what takes these times, again and again, and returns how many calls it had."""
        left, calls = itertools.cycle(costs), itertools.count(1)

        def run():
            self.now += next(left)
            return next(calls)

        return run


def decided(check, ours, as_it_is):
    """Run calls until the check is over; return how many."""
    calls = 0
    while check.open:
        check.run(ours, as_it_is)
        calls += 1
    return calls


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.mark.parametrize("cost", [0.2, 0.8])
def test_few_calls_tell_what_is_much_faster(clock, cost):
    check = ProfitabilityCheck()
    assert decided(check, clock.way(cost), clock.way(1.0)) == 12
    assert not check.lost
    assert check.times == pytest.approx((cost, 1.0))


@pytest.mark.parametrize(
    ("cost", "lost"), [(0.95, False), (1.0, False), (1.02, False), (1.05, True), (9.0, True)]
)
def test_nothing_is_dropped_before_many_calls(clock, cost, lost):
    check, ours = ProfitabilityCheck(), clock.way(cost)
    decided(check, ours, clock.way(1.0))
    assert ours() - 1 == (18 if cost > 1.25 else 36)
    assert check.lost is lost


@pytest.mark.parametrize("cost", [1.05, 1.2, 1.5, 3.0, 20.0])
def test_a_slower_way_adds_a_twentieth_at_most_after_the_first_calls(clock, cost):
    check, ours, as_it_is = ProfitabilityCheck(), clock.way(cost), clock.way(1.0)
    for _ in range(20):
        check.run(ours, as_it_is)
    start = clock.now
    calls = decided(check, ours, as_it_is)
    assert calls > 50
    assert clock.now - start <= 1.05 * calls + cost - 1


def test_a_slow_start_is_forgiven(clock):
    check, slow = ProfitabilityCheck(), [3.0] * 10
    decided(check, clock.way(*slow, 0.5), clock.way(1.0))
    assert not check.lost


def test_the_least_times_count_whatever_else_the_machine_does(clock):
    check = ProfitabilityCheck()
    decided(check, clock.way(7.0, 0.5, 3.0), clock.way(1.0, 1.1, 9.0))
    assert not check.lost
    check = ProfitabilityCheck()
    decided(check, clock.way(2.0, 1.5, 30.0), clock.way(8.0, 8.0, 1.0))
    assert check.lost


def test_each_call_is_run_once_and_one_that_raises_is_not_counted(clock):
    check, ours, as_it_is = ProfitabilityCheck(), clock.way(1.0), clock.way(1.0)
    assert [check.run(ours, as_it_is) for _ in range(4)] == [1, 1, 2, 2]

    def raises():
        clock.now -= 100.0
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        check.run(raises, as_it_is)
    assert check.run(ours, as_it_is) == 3
    decided(check, ours, as_it_is)
    assert check.times == pytest.approx((1.0, 1.0))


def compiled_until_it_is_known(clock, monkeypatch, of_graph, of_guards, of_function, most=1000):
    """Return a compiled function, checked for profit with parts that take these times."""

    def program(x):
        return x * 2 + 1

    def costly_program(x):
        clock.now += of_function
        return program(x)

    fast = tangrad.compile(program)
    x = tangrad.ones(3)
    fast(x)
    fast.compiled.function = costly_program
    (executable,) = fast.compiled.executables
    run, fits = executable.run, executable.fits

    def costly_run(tensors):
        clock.now += of_graph
        return run(tensors)

    def costly_fits(args, kwargs):
        clock.now += of_guards
        return fits(args, kwargs)

    monkeypatch.setattr(executable, "run", costly_run)
    monkeypatch.setattr(executable, "fits", costly_fits)
    for _ in range(most):
        if executable.trial is None or not fast.compiled.executables:
            break
        assert fast(x).tolist() == [3.0, 3.0, 3.0]
    return fast, x


def test_a_graph_that_is_faster_is_kept_and_timed_no_more(clock, monkeypatch):
    fast, x = compiled_until_it_is_known(clock, monkeypatch, 1.0, 1.0, 3.0)
    (executable,) = fast.compiled.executables
    assert executable.trial is None
    told = str(tangrad.compile.explain(fast, x))
    assert "measured: 2000000.0 us, the function itself 3000000.0 us" in told


def test_a_graph_that_is_slower_with_its_guards_is_dropped_with_a_line(clock, monkeypatch):
    fast, x = compiled_until_it_is_known(clock, monkeypatch, 1.0, 1.0, 1.5)
    assert not fast.compiled.executables
    line = "the graph took 2000000.0 us, the function itself 1500000.0 us"
    assert line in str(tangrad.compile.explain(fast, x))
    assert fast(x).tolist() == [3.0, 3.0, 3.0]


def test_a_graph_is_kept_unmeasured_where_that_is_asked_for(clock):
    fast = tangrad.compile(lambda x: x * 2, fullgraph=True, options={"measure": False})
    for _ in range(3):
        fast(tangrad.ones(2))
    assert fast.compiled.executables[0].trial is None


@pytest.mark.parametrize(("cost", "dropped"), [(0.5, False), (2.0, True)])
def test_queueing_that_is_slower_is_dropped_with_a_line(clock, monkeypatch, cost, dropped):
    told = []

    def program(x):
        clock.now += 1.0
        return x + 1

    calls = QueuedCalls(program, True, told)
    queued = calls._queued

    def costly(args, kwargs):
        result = queued(args, kwargs)
        clock.now += cost - 1.0
        return result

    monkeypatch.setattr(calls, "_queued", costly)
    x = tangrad.ones(2)
    while calls._profit is not None:
        assert calls.run((x,), {}).tolist() == [2, 2]
    assert calls.measured == pytest.approx((cost, 1.0))
    assert bool(calls.dropped) is dropped
    assert told == [calls.dropped] * dropped


def test_a_graph_that_is_no_faster_is_told_once(clock, monkeypatch, caplog):
    fast, x = compiled_until_it_is_known(clock, monkeypatch, 1.0, 1.0, 1.5)
    assert [record.getMessage() for record in caplog.records] == [
        "costly_program: compiled, no faster: runs as it is"
    ]
    told = str(tangrad.compile.explain(fast, x)).splitlines()
    assert told[0] == "verdict: the function runs as it is, not as a graph"
    assert told[1].startswith("  in the way: compiled, no faster: the graph took 2000000.0 us")
    assert told[2].startswith("  to change: ")


def test_other_sizes_have_it_decided_again(clock, monkeypatch):
    fast, x = compiled_until_it_is_known(clock, monkeypatch, 1.0, 1.0, 1.5)
    for _ in range(31):
        fast(x)
    assert "decides again" not in fast.compiled.events
    fast(tangrad.ones(5))
    assert "decides again" in fast.compiled.events


def test_it_is_decided_again_when_the_calls_have_paid_for_it(clock, monkeypatch):
    fast, x = compiled_until_it_is_known(clock, monkeypatch, 1.0, 1.0, 1.5)
    rest = fast.compiled._rest
    rest.length = 0.5
    for _ in range(64):
        assert fast(x).tolist() == [3.0, 3.0, 3.0]
    assert "decides again" in fast.compiled.events


def test_explain_tells_how_it_stands_while_a_graph_is_timed(clock, monkeypatch):
    fast, x = compiled_until_it_is_known(clock, monkeypatch, 1.0, 1.0, 1.5, most=20)
    told = str(tangrad.compile.explain(fast, x)).splitlines()[0]
    assert told == (
        "verdict: a graph that is still timed, so far 0.75 times as fast (2000000.0 us a call, the "
        "function itself 1500000.0 us)"
    )


def test_explain_opens_with_a_verdict(clock, monkeypatch):
    fast, x = compiled_until_it_is_known(clock, monkeypatch, 1.0, 1.0, 3.0)
    told = str(tangrad.compile.explain(fast, x)).splitlines()[0]
    assert told == (
        "verdict: a graph, 1.50 times as fast (2000000.0 us a call, the function itself "
        "3000000.0 us)"
    )

    def branches(x):
        return x * 2 if x.sum() > 0 else x

    told = str(tangrad.compile.explain(branches, x)).splitlines()
    assert told[0] == "verdict: the function runs as it is, not as a graph"
    assert "looks at the value of a tensor" in told[1]
    assert told[1].endswith(f"(test_profitability.py:{branches.__code__.co_firstlineno + 1})")
    assert told[2] == (
        "  to change: take where(condition, a, b) in place of a branch, or return the tensor and "
        "read it outside of the function"
    )
