"""Ops that do in one pass what others do in several are called where nobody sees the calls."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.devices.registry import get_driver
from tangrad.dispatch.python_dispatch import TorchDispatchMode
from tangrad.nn import functional as F
from tangrad.plugin import pop_observer, push_observer
from tangrad.utils._pytree import tree_map

FUSED = {"convolution_biased", "nll_loss_total", "window_average", "linear_weight_bias"}


@pytest.fixture(autouse=True)
def one_pass(monkeypatch):
    monkeypatch.setattr(get_driver("reference"), "one_pass", True, raising=False)


def numbers(*shape):
    return tangrad.randn(*shape, device="reference")


def program(x, weight, bias):
    maps = F.avg_pool2d(F.conv2d(x, weight, bias), 2).flatten(1)
    target = tangrad.zeros(2, dtype=tangrad.int64, device="reference")
    return F.nll_loss(F.log_softmax(maps, 1), target)


def operands():
    return numbers(2, 1, 5, 5), numbers(3, 1, 2, 2), numbers(3)


class Watch:
    def __init__(self):
        self.names = set()

    def enter_call(self, op, args):
        self.names.add(op.name)

    def leave_call(self, op, token, result):
        pass


def test_eager_calls_run_them_and_observers_are_told_of_these():
    watch = Watch()
    push_observer(watch)
    try:
        program(*operands())
    finally:
        pop_observer(watch)
    assert {"convolution_biased", "nll_loss_total", "window_average"} <= watch.names


class Recording(tangrad.Tensor):
    """A tensor around another, which writes down what is called."""

    __slots__ = ("held",)
    seen: list[str]

    @staticmethod
    def __new__(cls, held):
        made = tangrad.Tensor._make_wrapper_subclass(
            cls, held.size(), dtype=held.dtype, device=held.device
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(str(func))
        args, kwargs = tree_map(lambda x: getattr(x, "held", x), (args, kwargs or {}))
        return tree_map(
            lambda x: cls(x) if isinstance(x, tangrad.Tensor) else x, func(*args, **kwargs)
        )


def fused(seen):
    return [name for name in seen if any(op in name for op in FUSED)]


@pytest.mark.parametrize("wrapped", [0, 1, 2])
def test_subclasses_among_the_operands_see_the_ops_of_every_device(wrapped):
    Recording.seen = []
    given = operands()
    with tangrad.no_grad():
        program(*(Recording(t) if i == wrapped else t for i, t in enumerate(given)))
    assert any("convolution" in name for name in Recording.seen)
    assert fused(Recording.seen) == []


def test_modes_see_the_ops_of_every_device():
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen = []
    with Mode(), tangrad.no_grad():
        program(*operands())
    assert any("convolution" in name for name in seen)
    assert fused(seen) == []
