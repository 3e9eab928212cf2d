"""Programs that patch how parameters are made, and restore it."""

from unittest import mock

import tangrad
from tangrad.nn import Linear, Parameter


def test_a_patched_constructor_may_call_the_one_it_replaces_and_be_restored():
    original = Parameter.__new__
    made = []

    def noted(cls, *args, **kwargs):
        made.append(cls)
        return original(cls, *args, **kwargs)

    Parameter.__new__ = noted
    try:
        Linear(2, 3)
    finally:
        Parameter.__new__ = original
    assert made == [Parameter, Parameter]
    restored = Parameter(tangrad.ones(2), requires_grad=False)
    assert type(restored) is Parameter
    assert not restored.requires_grad
    assert Linear(2, 3).weight.requires_grad
    assert len(made) == 2


def test_a_mocked_constructor_is_restored():
    with mock.patch.object(Parameter, "__new__", return_value=tangrad.zeros(3)):
        assert Parameter(tangrad.ones(2)).tolist() == [0, 0, 0]
    assert Parameter(tangrad.ones(2)).tolist() == [1, 1]
    assert Parameter().numel() == 0
