"""Subclasses, patches and modes: what may stand between a call and its kernel."""

from __future__ import annotations

import copy
import pickle
import weakref
from typing import Any

import pytest

import tangrad
import tangrad.nn.functional as F


class Logged(tangrad.Tensor):
    """Note the functions that are called with it."""

    calls: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Logged.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    Logged.calls.clear()


def logged(*values: float) -> Any:
    return tangrad.tensor(values).as_subclass(Logged)


@pytest.mark.parametrize("call", [
    lambda x: x + 1, lambda x: 1 + x, lambda x: tangrad.add(x, 1), lambda x: x.sin(),
    lambda x: tangrad.cat([x, x]), lambda x: x[0], lambda x: x.view(-1), lambda x: x.sum(0),
    lambda x: tangrad.nn.functional.relu(x),
])  # fmt: skip
def test_results_of_a_subclass_are_of_the_subclass(call: Any) -> None:
    assert type(call(logged(1.0, 2.0))) is Logged
    assert Logged.calls


def test_a_subclass_may_stand_anywhere_among_the_arguments() -> None:
    assert type(tangrad.where(tangrad.tensor([True]), tangrad.ones(1), logged(2.0))) is Logged


def test_a_subclass_may_refuse() -> None:
    class Refuses(tangrad.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return NotImplemented

    with pytest.raises(TypeError, match="no implementation|NotImplemented|multiple dispatch"):
        tangrad.add(tangrad.ones(1).as_subclass(Refuses), 1)


def test_an_object_with_the_protocol_needs_to_be_no_tensor() -> None:
    class Wrapper:
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func.__name__, len(args)

    assert tangrad.sin(Wrapper()) == ("sin", 1)


def test_a_function_mode_sees_calls_on_plain_tensors() -> None:
    seen = []

    class Mode(tangrad.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Mode():
        result = tangrad.ones(2).sin()
    assert "sin" in seen
    assert result.shape == (2,)


def test_a_dispatch_mode_sees_ops_below_autograd() -> None:
    from tangrad.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = tangrad.ones(2, requires_grad=True)
    with Mode():
        y = x.sin()
        y.sum().backward()
    assert any("sin" in name for name in seen)
    assert x.grad is not None
    assert y.requires_grad


def test_methods_and_attributes_may_be_added() -> None:
    tangrad.Tensor.doubled = lambda self: self * 2
    try:
        assert tangrad.ones(1).doubled().item() == 2
    finally:
        del tangrad.Tensor.doubled
    x = tangrad.ones(1)
    x.note = "kept"
    assert x.note == "kept"


def test_a_tensors_class_may_be_changed() -> None:
    class Sub(tangrad.Tensor):
        pass

    x = tangrad.ones(1)
    x.__class__ = Sub
    assert type(x) is Sub
    assert isinstance(x + 1, tangrad.Tensor)


def test_tensors_are_hashed_by_identity_and_weakly_referable() -> None:
    x, y = tangrad.ones(1), tangrad.ones(1)
    assert len({x, y, x}) == 2
    gone = weakref.ref(x)
    del x
    assert gone() is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_share_nothing_and_keep_everything(copied: Any) -> None:
    x = tangrad.arange(6.0).reshape(2, 3).t().requires_grad_()
    y = copied(x)
    assert y.tolist() == x.tolist()
    assert (y.stride(), y.requires_grad, y.dtype) == (x.stride(), True, x.dtype)
    with tangrad.no_grad():
        y.zero_()
    assert x.sum().item() == 15


def test_copies_in_one_object_keep_sharing() -> None:
    base = tangrad.zeros(4)
    first, second = copy.deepcopy((base, base[1:]))
    first[1] = 5
    assert second[0].item() == 5


def test_a_shallow_copy_shares_memory() -> None:
    x = tangrad.zeros(2)
    copy.copy(x)[0] = 3
    assert x[0].item() == 3


def test_deepcopy_of_an_inner_tensor_is_refused() -> None:
    with pytest.raises(RuntimeError, match="graph leaves|created explicitly"):
        copy.deepcopy(tangrad.ones(1, requires_grad=True) * 2)


def test_a_python_function_is_offered_to_overriding_arguments():
    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, types

    @tangrad.overrides.wrap_torch_function(lambda a, b=None: (a, b))
    def twice(a, b=None):
        return a * 2

    assert twice(tangrad.ones(1)).tolist() == [2]
    assert twice(tangrad.ones(1), b=Like()) == ("twice", (Like,))
    kinds = (tangrad.ones(1), tangrad.nn.Parameter(tangrad.ones(1)), Like(), 3)
    assert [tangrad.overrides.is_tensor_like(kind) for kind in kinds] == [True, True, True, False]


class Wrapper(tangrad.Tensor):
    """Holds another tensor, and has no memory of its own."""

    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        made = tangrad.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            dtype=inner.dtype,
            device=inner.device,
            requires_grad=requires_grad,
        )
        made.held = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        tree_map = tangrad.utils._pytree.tree_map
        args, kwargs = tree_map(lambda x: getattr(x, "held", x), (args, kwargs or {}))
        return tree_map(
            lambda x: cls(x) if isinstance(x, tangrad.Tensor) else x, func(*args, **kwargs)
        )


def test_a_wrapper_is_asked_for_its_number():
    x = Wrapper(tangrad.tensor([[1.5]]))
    assert x.item() == float(x) == x.sum().item() == 1.5
    assert x > 1
    assert tangrad.equal(x, Wrapper(tangrad.tensor([[1.5]])))


THROUGH_WRAPPERS = {
    "matmul": lambda x: x @ x.mT,
    "a product with a plain tensor": lambda x: tangrad.ones(2, 2) @ x,
    "softmax": lambda x: x.softmax(1),
    "stack": lambda x: tangrad.stack([x, x]).exp(),
    "reshape": lambda x: x.sin().reshape(3, 2).cos(),
    "cross_entropy": lambda x: F.cross_entropy(x, tangrad.tensor([2, 0])),
    "layer_norm": lambda x: F.layer_norm(x, (3,)),
    "linear": lambda x: F.linear(x, x),
    "prod": lambda x: x.prod(1),
    "a chain": lambda x: ((x.relu() * x) @ x.mT.sin()).sum(),
}


@pytest.mark.parametrize("name", THROUGH_WRAPPERS)
def test_composites_and_gradients_reach_the_handler_of_a_wrapper(name):
    function = THROUGH_WRAPPERS[name]
    x = tangrad.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
    wrapper = Wrapper(x.detach(), requires_grad=True)
    result, wrapped = function(x), function(wrapper)
    assert type(wrapped) is Wrapper
    assert wrapped.held.equal(result.detach())
    (expected,) = tangrad.autograd.grad(result.sum(), x)
    (gradient,) = tangrad.autograd.grad(wrapped.sum(), wrapper)
    assert tangrad.allclose(getattr(gradient, "held", gradient), expected)


def test_results_computed_of_a_kind_of_parameter_are_plain_tensors():
    class Kind(tangrad.nn.Parameter):
        pass

    class Asked(tangrad.nn.Parameter):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    for kind in (Kind, Asked):
        p = kind(tangrad.ones(2))
        for made in (p * 2, p.detach(), tangrad.stack([p, p]), p[0]):
            assert type(made) is tangrad.Tensor


def test_a_call_handed_to_parameters_is_made_without_overrides():
    class Other(tangrad.Tensor):
        pass

    x = tangrad.ones(2, 3).as_subclass(Other)
    w = tangrad.nn.Parameter(tangrad.ones(4, 3))
    handler = tangrad.nn.Parameter.__torch_function__
    made = handler(F.linear, (Other, tangrad.nn.Parameter), (x, w), {})
    assert type(made) is tangrad.Tensor
    assert made.tolist() == [[3.0] * 4] * 2


def test_deepcopy_copies_slots_of_a_subclass():
    class Logged(tangrad.Tensor):
        __slots__ = ("log", "unset")

    x = tangrad.ones(2).as_subclass(Logged)
    x.log = ["made"]
    made = copy.deepcopy(x)
    assert made.log == ["made"]
    assert made.log is not x.log
    assert not hasattr(made, "unset")
