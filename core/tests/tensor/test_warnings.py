"""What PyTorch warns of is warned of here: the same text, once in a process."""

from __future__ import annotations

import warnings

import pytest
import torch

import tangrad
from tangrad.tensor import caller


def messages(t, call, always=True):
    """Return what a call warns of, without the places in PyTorch's source."""
    t.set_warn_always(always)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(t)
    finally:
        t.set_warn_always(False)
    return [str(warning.message).partition(" (Triggered")[0] for warning in caught]


def leaf(t, *shape):
    return t.ones(shape, requires_grad=True)


def complexes(t):
    return t.ones(2, dtype=t.complex64)


def without_recording(t):
    with t.no_grad():
        float(leaf(t, 1))


CASES = {
    "float": lambda t: float(leaf(t, 1)),
    "float of a result": lambda t: float((leaf(t, 3) * 2).sum()),
    "complex": lambda t: complex(leaf(t)),
    "float without recording": without_recording,
    "float of a constant": lambda t: float(t.ones(1)),
    "int": lambda t: int(leaf(t, 1)),
    "bool": lambda t: bool(leaf(t, 1)),
    "item": lambda t: leaf(t, 1).item(),
    "to a real dtype": lambda t: complexes(t).to(t.float32),
    "to an integer": lambda t: complexes(t).int(),
    "to bool": lambda t: complexes(t).to(t.bool),
    "to complex": lambda t: complexes(t).to(t.complex128),
    "nothing to a real dtype": lambda t: complexes(t)[:0].float(),
    "copy_": lambda t: t.zeros(2).copy_(complexes(t)),
    "assignment": lambda t: t.zeros(2).__setitem__(slice(None), complexes(t)),
    "backward to a real leaf": lambda t: (
        (leaf(t, 2).to(t.complex64) * complexes(t)).abs().sum().backward()
    ),
    "T of a vector": lambda t: t.ones(3).T,
    "T of a matrix": lambda t: t.ones(2, 3).T,
    "T of a stack": lambda t: t.ones(2, 3, 4).T,
    "T of a number": lambda t: t.ones(()).T,
    "mT of a number": lambda t: t.ones(()).mT,
    "H of a number": lambda t: t.ones(()).H,
    "mH of a number": lambda t: t.ones(()).mH,
}


@pytest.mark.parametrize("name", CASES)
def test_warnings_are_pytorch_s(name):
    assert messages(tangrad, CASES[name]) == messages(torch, CASES[name])


def test_a_warning_comes_once_in_a_process_and_at_the_program_s_line(monkeypatch):
    monkeypatch.setattr(caller, "_told", set())

    def twice(t):
        for _ in range(2):
            float(leaf(t, 1))

    assert len(messages(tangrad, twice, always=False)) == 1
    monkeypatch.setattr(caller, "_told", set())
    with pytest.warns(UserWarning, match="to a scalar may lead") as caught:
        float(leaf(tangrad, 1))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("make", ["T", "mT", "H", "mH"])
def test_transposed_numbers_are_themselves(make, monkeypatch):
    for value in (tangrad.tensor(2.0), tangrad.tensor(1 + 2j)):
        monkeypatch.setattr(caller, "_told", set())
        with pytest.warns(UserWarning, match="deprecated on 0-D tensors"):
            found = getattr(value, make)
        assert found.item() == (value.item().conjugate() if "H" in make else value.item())


def test_a_transposed_number_is_a_view() -> None:
    x = tangrad.tensor(0.5, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x.T
    assert y._is_view()
    assert not y.is_leaf
    assert x.mT is x
