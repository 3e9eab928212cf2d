"""Tensors made like one that `__torch_dispatch__` serves: its handler makes them."""

from __future__ import annotations

from typing import Any

import pytest

import tangrad
from tangrad.utils._pytree import tree_map


class Wrapper(tangrad.Tensor):
    """Has its values in an attribute, without which it is nothing."""

    told: list[str] = []  # noqa: RUF012

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        made = tangrad.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.told.append(str(func.name))
        args, kwargs = tree_map(lambda x: getattr(x, "inner", x), (args, kwargs or {}))
        return tree_map(
            lambda x: cls(x) if isinstance(x, tangrad.Tensor) else x, func(*args, **kwargs)
        )


MADE = {
    "ones_like": lambda x: tangrad.ones_like(x),
    "zeros_like": lambda x: tangrad.zeros_like(x),
    "full_like": lambda x: tangrad.full_like(x, 3),
    "rand_like": lambda x: tangrad.rand_like(x),
    "randn_like": lambda x: tangrad.randn_like(x),
    "randint_like": lambda x: tangrad.randint_like(x, 5),
    "new_ones": lambda x: x.new_ones((3, 4)),
    "new_zeros": lambda x: x.new_zeros((3, 4)),
    "new_full": lambda x: x.new_full((3, 4), 2),
}


@pytest.mark.parametrize("name", MADE)
def test_the_handler_makes_it(name: str) -> None:
    x = tangrad.rand(3, 4)
    Wrapper.told.clear()
    tangrad.manual_seed(3)
    made = MADE[name](Wrapper(x))
    tangrad.manual_seed(3)
    assert made.inner.tolist() == MADE[name](x).tolist()
    assert Wrapper.told == [name]


def test_it_requires_gradients_where_that_is_asked() -> None:
    made = tangrad.ones_like(Wrapper(tangrad.ones(2)), requires_grad=True)
    assert made.requires_grad
    assert made.is_leaf
    assert not made.inner.requires_grad


def test_grad_keeps_what_wrappers_hold() -> None:
    x = tangrad.rand(2, 3)
    ours, plain = (tangrad.func.grad(lambda a: a.exp().sum())(each) for each in (Wrapper(x), x))
    assert tangrad.allclose(ours.inner, plain)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("parameter", [False, True])
def test_a_deep_copy_has_what_the_wrapper_holds(parameter: bool, requires_grad: bool) -> None:
    import copy

    x: Any = Wrapper(tangrad.rand(3))
    x = tangrad.nn.Parameter(x, requires_grad) if parameter else x.requires_grad_(requires_grad)
    once, again = copy.deepcopy([x, x])
    assert once is again
    assert type(once) is type(x)
    assert isinstance(once, tangrad.nn.Parameter) is parameter
    assert once.requires_grad is requires_grad
    assert once.inner.tolist() == x.inner.tolist()
    assert once.inner.data_ptr() != x.inner.data_ptr()


def test_what_a_handler_gives_is_not_made_its_class():
    class Plain(Wrapper):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            args = tree_map(lambda x: getattr(x, "inner", x), args)
            return func(*args, **(kwargs or {}))

    x = Plain(tangrad.ones(2))
    assert type(x + x) is tangrad.Tensor
    with pytest.raises(RuntimeError, match=r"detach\(\) returns an instance of the same type"):
        tangrad.nn.Parameter(x)

    class Converted(Plain):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            return super().__torch_function__(func, types, args, kwargs or {})

    assert type(Converted(tangrad.ones(2)) * 2) is Converted
