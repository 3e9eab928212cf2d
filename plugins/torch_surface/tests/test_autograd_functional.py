"""`autograd.functional` gives and refuses what PyTorch's does."""

import pytest
import torch

import tangrad
from tangrad.autograd import functional

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*jit.script.* is deprecated:DeprecationWarning"
)  # torch's forward mode


def leaf(*values):
    return tangrad.tensor(values, dtype=tangrad.float64, requires_grad=True)


def of_two(x, y):
    return x * y.sum(), (x**3).sum()


@pytest.mark.parametrize(
    "program",
    [
        lambda t, x, y: t.autograd.functional.jacobian(of_two, (x, y)),
        lambda t, x, y: t.autograd.functional.jacobian(of_two, (x, y), vectorize=True),
        lambda t, x, y: t.autograd.functional.jacobian(
            lambda x: x.sin(), x, vectorize=True, strategy="forward-mode"
        ),
        lambda t, x, y: t.autograd.functional.hessian(lambda x, y: (x * x * y).sum(), (x, y)),
        lambda t, x, y: t.autograd.functional.hessian(lambda x: (x**3).sum(), x, vectorize=True),
        lambda t, x, y: t.autograd.functional.vjp(of_two, (x, y), (x, t.tensor(2.0))),
        lambda t, x, y: t.autograd.functional.jvp(of_two, (x, y), (y, x)),
        lambda t, x, y: t.autograd.functional.hvp(lambda x, y: (x * x * y).sum(), (x, y), (y, x)),
        lambda t, x, y: t.autograd.functional.vhp(lambda x: (x**3).sum(), x, y),
        lambda t, x, y: t.autograd.functional.vjp(lambda x: x * 2, x),
        lambda t, x, y: t.autograd.functional.hessian(lambda x: x * 2, x),
        lambda t, x, y: t.autograd.functional.jacobian(lambda x: 3, x),
    ],
)
def test_functional_agrees_with_torch(agree, program):
    agree(lambda t: program(t, t.tensor([1.0, 2.0]), t.tensor([0.5, -1.0])), message=False)


def test_functional_results_can_be_differentiated():
    x = leaf(1.0, 2.0)
    functional.jacobian(lambda v: v**3, x, create_graph=True).sum().backward()
    assert x.grad.tolist() == [6, 12]
    with pytest.raises(RuntimeError, match="does not require gradients"):
        functional.vjp(lambda v: tangrad.ones(2), x, tangrad.ones(2), strict=True)


def unconnected(x):
    return x.long().double().requires_grad_().clone()


STRICT = {
    "vjp of a constant": lambda f, x: f.vjp(lambda v: v.detach().sum(), x, strict=True),
    "vjp of what is unconnected": lambda f, x: f.vjp(unconnected, x, x, strict=True),
    "vjp of a linear function": lambda f, x: f.vjp(
        lambda v: v * 1, x, x.detach(), create_graph=True, strict=True
    ),
    "jvp of a constant": lambda f, x: f.jvp(lambda v: v.detach(), x, x, strict=True),
    "jvp of what is unconnected": lambda f, x: f.jvp(unconnected, x, x, strict=True),
    "jacobian of a constant": lambda f, x: f.jacobian(lambda v: v.detach(), x, strict=True),
    "jacobian of what is unconnected": lambda f, x: f.jacobian(unconnected, x, strict=True),
    "jacobian of a linear function": lambda f, x: f.jacobian(
        lambda v: v * 1, x, create_graph=True, strict=True
    ),
    "hessian of a linear function": lambda f, x: f.hessian(lambda v: v.sum(), x, strict=True),
    "hessian of a vector": lambda f, x: f.hessian(lambda v: v * 1, x),
    "hvp of a linear function": lambda f, x: f.hvp(lambda v: v.sum(), x, x, strict=True),
    "vhp of several outputs": lambda f, x: f.vhp(lambda v: (v.sum(), v), x, x),
    "no vector": lambda f, x: f.vjp(lambda v: v * 1, x),
    "a vector of another size": lambda f, x: f.jvp(lambda v: v * 1, x, x[:1]),
    "two vectors for one": lambda f, x: f.jvp(lambda v: v * 1, x, (x, x)),
    "an input that is no tensor": lambda f, x: f.vjp(lambda v: v * 1, (x, 3)),
    "an output that is no tensor": lambda f, x: f.hessian(lambda v: 3, x),
}


@pytest.mark.parametrize("call", STRICT.values(), ids=STRICT)
def test_functional_refuses_as_pytorch_and_says_which_value_it_is(call):
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        call(torch.autograd.functional, torch.tensor([1.0, 2.0], requires_grad=True))
    with pytest.raises(theirs.type) as ours:
        call(functional, leaf(1.0, 2.0))
    # The words in common are those that programs look for.
    start = min(len(str(theirs.value).partition(".")[0]), 55)
    assert str(ours.value)[:start] == str(theirs.value)[:start]


class Wrapper(tangrad.Tensor):
    """Holds another tensor."""

    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        made = tangrad.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=requires_grad
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        tree_map = tangrad.utils._pytree.tree_map
        args, kwargs = tree_map(lambda x: getattr(x, "inner", x), (args, kwargs or {}))
        return tree_map(
            lambda x: cls(x) if isinstance(x, tangrad.Tensor) else x, func(*args, **kwargs)
        )


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: functional.hessian(lambda a: f(a).sum(), x).sum((0, 1)),
        lambda f, x: functional.jacobian(f, x).sum((0, 1)),
        lambda f, x: functional.vjp(lambda a: f(a).sum(), x)[1],
    ],
    ids=["hessian", "jacobian", "vjp"],
)
def test_derivatives_of_wrappers_are_wrappers(transform):
    x = tangrad.rand(2, 3)
    ours = transform(lambda a: a.exp(), Wrapper(x))
    assert tangrad.allclose(ours.inner, transform(lambda a: a.exp(), x))
