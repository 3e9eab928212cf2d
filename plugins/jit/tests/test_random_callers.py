"""Programs whose callers change what they may between two calls: none dies, none is different."""

from __future__ import annotations

import os
import random

import caller_outcomes
import caller_programs
import caller_surroundings
import pytest
import random_callers

import tangrad

FULL = os.environ.get("TANGRAD_TESTS") == "full"
COUNT = 2000 if FULL else 200
AT_ONCE = 100 if FULL else 50


@pytest.mark.parametrize("first", range(0, COUNT, AT_ONCE))
def test_callers_get_what_eager_gives_whatever_they_change(first):
    told, found = random_callers.run(first, AT_ONCE)
    assert not found, "\n".join(found)
    assert sum(told.values()) == 3 * AT_ONCE


@pytest.mark.parametrize("kind", sorted(set(caller_programs.CHANGES)))
def test_each_kind_of_change_is_made_to_some_call(kind, monkeypatch):
    monkeypatch.setattr(caller_programs, "CHANGES", (kind,))
    changed = 0
    for seed in range(20):
        calls = caller_programs.Writer(seed).calls()
        changed += any(_differs(call, calls[0]) for call in calls[1:])
    assert changed >= 5


def _differs(call, usual):
    numbers = ("k", "m", "box_k", "pair", "before")
    if any(call[name] != usual[name] for name in usual if name not in numbers):
        return True
    odd = set(caller_programs.NUMBERS["odd"])
    outside = caller_surroundings
    apart = (*outside.DEFAULTS, *outside.HOOKS, *outside.CLASSES)
    return (
        "S." in call["before"]
        or call["before"] in apart
        or any(call[name] in odd for name in numbers)
    )


def test_a_seed_has_one_program():
    random.seed(1)
    first = caller_programs.program_text(7)
    random.seed(2)
    assert caller_programs.program_text(7) == first != caller_programs.program_text(8)


def test_a_process_that_dies_is_told_with_its_seed_and_the_others_run(monkeypatch):
    monkeypatch.setenv("TANGRAD_TEST_DIES_AT", "2")
    told, found = random_callers.run(0, 4)
    assert len(found) == 1
    assert found[0].startswith("seed 2, fullgraph: the process ended with -")
    assert sum(told.values()) == 10  # three forms of three programs, one of the one that dies


def test_a_result_that_differs_is_told(monkeypatch):
    monkeypatch.setattr(random_callers._Compiler, "wrap", lambda self, f: lambda *a, **k: -7)
    assert random_callers.compared(3, "default").startswith("outcome 0:")


def test_a_program_whose_first_call_raises_is_written_anew_but_for_every_tenth():
    def begins(seed):
        return isinstance(random_callers._eager(seed)[1][0], dict)

    kept = [seed for seed in range(10, 200, 10) if not begins(seed)]
    assert kept
    assert all(begins(seed) for seed in range(1, 30) if seed % 10)


def test_values_are_compared_to_the_bit_but_that_all_nan_are_one():
    values = caller_outcomes.Values
    half = tangrad.tensor([1.5, float("nan")], dtype=tangrad.bfloat16)
    assert values(half) == values(half.clone())
    assert values(tangrad.tensor(float("nan"))) == values(-tangrad.tensor(float("nan")))
    assert values(tangrad.zeros(2)) != values(-tangrad.zeros(2))
    assert values(tangrad.ones(2, 2).t()) == values(tangrad.ones(2, 2))
    assert values(tangrad.ones(2, device="meta")) == values(tangrad.ones(2, device="meta"))
    assert repr(values(half)) == "[1.5, nan]"


def test_a_graph_in_every_call_stands_for_the_default_form_too():
    told, found = random_callers.run(1, 9)
    assert not found
    assert 0 < told["default: as fullgraph"] == told["fullgraph: by graphs alone"]
    assert random_callers.run(10, 1)[0]["default: as fullgraph"] == 0
