"""Writes and views that a handler of `__torch_dispatch__` computes are recorded as others are."""

from __future__ import annotations

from typing import Any

import pytest

import tangrad
from tangrad.utils._python_dispatch import TorchDispatchMode
from tangrad.utils._pytree import tree_map


class Looking(TorchDispatchMode):
    """Passes each call on."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Wrapper(tangrad.Tensor):
    """Has its values in an attribute."""

    @staticmethod
    def __new__(cls, inner: Any, requires_grad: bool = False) -> Any:
        made = tangrad.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            dtype=inner.dtype,
            requires_grad=requires_grad,
        )
        made.held = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(lambda x: getattr(x, "held", x), (args, kwargs or {}))
        return tree_map(
            lambda x: cls(x) if isinstance(x, tangrad.Tensor) else x, func(*args, **kwargs)
        )


def _written_in_part(x: Any) -> Any:
    y = x * 2
    y[0].mul_(3)
    return y


WRITES = {
    "mul_": lambda x: (x * 2).mul_(3),
    "a square in place": lambda x: (x * 2).pow_(2),
    "masked_fill_": lambda x: (x * 2).masked_fill_(x > 2, 1.0),
    "a view": lambda x: (x * 2)[0].mul_(3),
    "a base by its view": _written_in_part,
    "copy_": lambda x: tangrad.zeros(1, 3).copy_(x * 2),
    "fill_": lambda x: (x * 2).fill_(1) + x,
    "index_add_": lambda x: (x * 2).index_add_(1, tangrad.tensor([0]), x[:, :1]),
}
SHAPES = {
    "squeeze_": lambda x: (x * 2).squeeze_(0),
    "t_": lambda x: (x * 2).t_(),
    "unsqueeze_": lambda x: (x * 2).unsqueeze_(0),
}


def gradient(function: Any, x: Any) -> Any:
    result = function(x)
    (result * result).sum().backward()
    return x.grad


@pytest.mark.parametrize("name", WRITES | SHAPES)
def test_gradients_pass_writes_below_a_mode(name: str) -> None:
    function = (WRITES | SHAPES)[name]
    values = [[1.0, 2.0, 3.0]]
    expected = gradient(function, tangrad.tensor(values, requires_grad=True))
    x = tangrad.tensor(values, requires_grad=True)
    with Looking():
        result = function(x)
        (result * result).sum().backward()
    assert x.grad.tolist() == expected.tolist()


@pytest.mark.parametrize("name", [name for name in WRITES if name != "copy_"])
def test_gradients_pass_writes_into_wrappers(name: str) -> None:
    values = [[1.0, 2.0, 3.0]]
    expected = gradient(WRITES[name], tangrad.tensor(values, requires_grad=True))
    found = gradient(WRITES[name], Wrapper(tangrad.tensor(values), requires_grad=True))
    assert getattr(found, "held", found).tolist() == expected.tolist()


def test_a_write_gives_the_tensor_that_was_written() -> None:
    x = Wrapper(tangrad.ones(2))
    assert x.add_(1) is x
    assert x.held.tolist() == [2, 2]


def test_a_leaf_keeps_the_gradient_of_a_wrapper_s_handler() -> None:
    x = Wrapper(tangrad.ones(2, 3), requires_grad=True)
    for _ in range(2):
        x.sum().backward()
    assert type(x.grad) is Wrapper
    assert x.grad.held.tolist() == [[2.0] * 3] * 2
