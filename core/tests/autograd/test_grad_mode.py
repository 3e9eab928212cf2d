"""Switches of recording around generators, and the switch of threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tangrad

torch = pytest.importorskip("torch")


def _program(lib: Any, told: list[Any]) -> Any:
    """Return a generator that tells the mode at each of its points."""

    @lib.no_grad()
    def generate() -> Iterator[Any]:
        received: Any = None
        try:
            while True:
                told.append((received, lib.is_grad_enabled()))
                try:
                    received = yield len(told)
                except ValueError as error:
                    received = str(error)
        finally:
            told.append(("closed", lib.is_grad_enabled()))

    return generate()


@pytest.mark.parametrize(
    "drive",
    [
        lambda g: [next(g), next(g), g.close()],
        lambda g: [next(g), g.send("sent"), g.throw(ValueError("thrown")), next(g), g.close()],
        lambda g: [next(g), g.throw(KeyError("other"))],
        lambda g: [g.close()],
    ],
    ids=["next", "send and throw", "uncaught", "not begun"],
)
def test_a_generator_runs_in_the_mode_of_its_decorator(drive: Any) -> None:
    outcomes = []
    for lib in (tangrad, torch):
        told: list[Any] = []
        generator = _program(lib, told)
        try:
            results: Any = drive(generator)
        except KeyError as error:
            results = repr(error)
        generator.close()
        assert lib.is_grad_enabled()
        outcomes.append((told, results))
    assert outcomes[0] == outcomes[1]


def test_a_generators_return_value_is_kept() -> None:
    @tangrad.no_grad()
    def generate() -> Iterator[int]:
        yield 1
        return "value"

    def around() -> Iterator[int]:
        seen.append((yield from generate()))

    seen: list[Any] = []
    assert list(around()) == [1]
    assert seen == ["value"]


def test_the_switch_of_threads_is_kept_and_told() -> None:
    for lib in (tangrad, torch):
        switch, told = lib.autograd.set_multithreading_enabled, lib.autograd
        assert told.is_multithreading_enabled()
        with switch(False):
            assert not told.is_multithreading_enabled()
        assert told.is_multithreading_enabled()
        switch(False)
        assert not told.is_multithreading_enabled()
        switch(True)


@pytest.mark.parametrize("block", ["no_grad", "inference_mode"])
def test_a_view_of_an_unrecorded_view_says_where_that_was_made(block):
    x = tangrad.zeros(2)
    with getattr(tangrad, block)():
        view = x.view(2)
    view.requires_grad_()
    with pytest.raises(RuntimeError, match=f"a view of a view .* is being .* inside the {block} "):
        view.view(2).div_(2)
