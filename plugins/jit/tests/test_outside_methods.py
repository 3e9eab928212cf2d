"""Methods that Python calls by itself are followed: what they close over, hold and answer."""

from __future__ import annotations

import array
import collections
import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tangrad
from tangrad_jit.capture.errors import CaptureError

# A method's name -> what it answers with a number, and what asks it.
PROTOCOLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "__float__": (float, lambda x, held: x * float(held)),
    "__int__": (int, lambda x, held: x * int(held)),
    "__index__": (int, lambda x, held: x * range(9)[held]),
    "__hash__": (int, lambda x, held: x * hash(held)),
    "__len__": (int, lambda x, held: x * len(held)),
    "__bool__": (lambda k: k > 2.5, lambda x, held: x * 2 if held else x * 3),
    "__call__": (float, lambda x, held: x * held()),
    "__abs__": (float, lambda x, held: x * abs(held)),
    "__round__": (float, lambda x, held: x * round(held)),
    "__str__": (str, lambda x, held: x * float(str(held))),
    "__getitem__": (float, lambda x, held: x * held["a"]),
    "__getattr__": (float, lambda x, held: x * held.missing),
    "__contains__": (lambda k: k > 2.5, lambda x, held: x * (2 + ("a" in held))),
    "__iter__": (lambda k: iter((k, 1.0)), lambda x, held: x * sum(held)),
    "__eq__": (lambda k: k > 2.5, lambda x, held: x * (2 + (held == 1))),
    "__lt__": (lambda k: k > 2.5, lambda x, held: x * (2 + (held < 1))),
    "__add__": (float, lambda x, held: x * (held + 1)),
    "__rmul__": (float, lambda x, held: x * (2 * held)),
    "__enter__": (float, lambda x, held: _entered(x, held)),
    "__get__": (float, lambda x, held: x * held.described),
}


def _entered(x, held):
    with held as number:
        return x * number


def _of(name, answer, numbers):
    """Return an object with such a method, which reads a list that it closes over."""

    def method(*args):
        return answer(numbers[0])

    members: dict[str, Any] = {name: method}
    if name in ("__eq__", "__lt__"):
        members["__hash__"] = object.__hash__
    if name == "__enter__":
        members["__exit__"] = lambda *args: None
    if name == "__get__":
        members = {"described": type("Described", (), members)()}
    return type("Held", (), members)()


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_method_follows_what_it_closes_over(name):
    answer, ask = PROTOCOLS[name]
    numbers = [2.0]
    held = _of(name, answer, numbers)

    def function(x):
        return ask(x, held)

    fast = tangrad.compile(function, options={"measure": False})
    x = tangrad.arange(3.0)
    for numbers[0] in (2.0, 2.0, 3.0, 4.0, 5.0, 2.0):
        assert fast(x).equal(function(x))


def test_a_function_that_nothing_holds_in_sight_is_refused_for_what_it_closes_over():
    numbers = [2.0]
    hidden = array.array("q", [0])

    def inner(x):
        return x * numbers[0]

    class Keeper:
        __slots__ = ()

        def __getattribute__(self, name):
            return functions[hidden[0]] if name == "go" else object.__getattribute__(self, name)

    functions = np.array([inner], dtype=object)
    held = Keeper()
    fast = tangrad.compile(lambda x: held.go(x), options={"measure": False})
    x = tangrad.ones(2)
    for numbers[0] in (2.0, 2.0, 3.0, 4.0):
        assert fast(x).tolist() == [numbers[0]] * 2
    assert not fast.compiled.executables


class _Numbers(ctypes.Structure):
    _fields_ = (("value", ctypes.c_int),)


class _Queue(collections.deque):
    pass


class _Array(np.ndarray):
    pass


class _Bytes(bytearray):
    pass


@pytest.mark.parametrize(
    ("held", "read"),
    [
        (ctypes.c_int(1), lambda held: held.value),
        (_Numbers(1), lambda held: held.value),
        ((ctypes.c_int * 2)(1, 1), lambda held: held[0]),
        (_Queue([1, 1]), lambda held: held[0]),
        (np.ones(2).view(_Array), lambda held: held[0]),
        (_Bytes(b"\1\1"), lambda held: held[0]),
    ],
)
def test_what_holds_its_elements_elsewhere_is_refused(held, read):
    fast = tangrad.compile(lambda x: x * read(held), fullgraph=True)
    with pytest.raises(CaptureError, match="cannot be watched"):
        fast(tangrad.ones(2))
