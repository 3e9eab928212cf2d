"""Ops defined without a derivative: whoever asks for one is told, and nobody gets silence."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tangrad
from tangrad.plugin import composite, op, overload, pointwise, reduction, scan, view

NUMBERS = itertools.count()


def named() -> str:
    return f"underived::f{next(NUMBERS)}"


def by_reference(**said):
    return op(f"{named()}(Tensor self) -> Tensor", reference=lambda np, self: np.sin(self), **said)


def called(made, call):
    return lambda x: call(made, x)


def several_results():
    return op(
        f"{named()}(Tensor self) -> (Tensor a, Tensor b)",
        shape=lambda self: (self.shape, self.shape),
        reference=lambda np, self: (np.sin(self), np.cos(self)),
    )


def lists(form: str):
    made = op(
        f"{named()}({form}) -> Tensor",
        shape=lambda xs: xs[0].shape,
        dtype=lambda xs: xs[0].dtype,
        reference=lambda np, xs, **_: sum(xs),
    )
    both = "ys" in form
    return lambda x: made([x, x * 2], [x]) if both else made([x, x * 2])


def in_a_composite():
    inner = by_reference()

    @composite(f"{named()}(Tensor self) -> Tensor")
    def outer(self):
        return inner(self * 2) + 1

    return outer


def in_an_overload():
    first, second = named(), named()
    op(f"{first}(Tensor self) -> Tensor", reference=lambda np, self: np.sin(self), function=False)
    op(f"{second}(Tensor self, int n) -> Tensor", reference=lambda np, self, n: self * n,
       function=False)  # fmt: skip
    return overload(named(), first, second)


KINDS = {
    "op": by_reference,
    "op with a decomposition": lambda: op(
        f"{named()}(Tensor self) -> Tensor", decompose=lambda self: self.sin()
    ),
    "several results": lambda: called(several_results(), lambda f, x: f(x)[1]),
    "a list": lambda: lists("Tensor[] xs"),
    "two lists": lambda: lists("Tensor[] xs, Tensor[] ys"),
    "reduction": lambda: reduction(
        f"{named()}(Tensor self, dim[]? dim=None, bool keepdim=False) -> Tensor",
        map="self", fold="sum", promote="float",
    ),
    "scan": lambda: called(scan(
        f"{named()}(Tensor self, dim dim) -> Tensor", map="self", fold="sum", promote="float"
    ), lambda f, x: f(x, 0)),
    "view": lambda: view(
        f"{named()}(Tensor self) -> Tensor",
        geometry=lambda self: (self.shape[::-1], self.stride[::-1], self.offset),
    ),
    "a loop": lambda: pointwise(
        f"{named()}(Tensor self) -> Tensor",
        "iterate(9, 's < 100; s * 2', s=self)", promote="float",
    ),
    "a primitive": lambda: pointwise(
        f"{named()}(Tensor self) -> Tensor", "nextafter(self, 2 * self)", promote="float"
    ),
    "another input's alone": lambda: called(op(
        f"{named()}(Tensor other, Tensor self) -> Tensor",
        reference=lambda np, other, self: self * 2, vjp={"other": lambda g: g},
    ), lambda f, x: f(tangrad.ones_like(x), x)),
    "a stated reason": lambda: called(op(
        f"{named()}(Tensor other, Tensor self) -> Tensor",
        reference=lambda np, other, self: self * 2,
        vjp={"other": lambda g: g, "self": "none: nobody has found it"},
    ), lambda f, x: f(tangrad.ones_like(x), x)),
    "expressions for another": lambda: called(pointwise(
        f"{named()}(Tensor other, Tensor self) -> Tensor", "self * other",
        vjp={"other": "g * self"}, promote="float",
    ), lambda f, x: f(tangrad.ones_like(x), x)),
    "in a composite": in_a_composite,
    "in an overload": in_an_overload,
}  # fmt: skip


@pytest.fixture(params=KINDS)
def underived(request):
    return KINDS[request.param]()


def leaf():
    return tangrad.tensor([[0.3, -0.7], [1.2, 0.4]], dtype=tangrad.float64, requires_grad=True)


def test_backward_raises_and_names_the_op(underived) -> None:
    x = leaf()
    y = underived(x * 2)
    assert y.requires_grad
    with pytest.raises(NotImplementedError, match=r"derivative of 'tangrad.ops.underived.f\d+'"):
        (y * 3).sum().backward()
    assert x.grad is None


def test_who_wants_no_gradient_is_not_disturbed(underived) -> None:
    x = leaf()
    with tangrad.no_grad():
        assert underived(x).grad_fn is None
    underived(x.detach())
    z = underived(x.detach()) + x.sum()
    z.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode_raises_where_the_derivative_does_not_follow(kind) -> None:
    x = leaf().detach()
    underived, t = KINDS[kind](), x + 1
    if kind in ("view", "expressions for another"):  # a view of the tangent; from the expression
        assert tangrad.equal(tangrad.func.jvp(underived, (x,), (t,))[1], underived(t))
        return
    with pytest.raises(NotImplementedError, match=r"derivative of 'tangrad.ops.underived"):
        tangrad.func.jvp(underived, (x,), (t,))


@pytest.mark.parametrize("transform", ["grad", "jacrev", "hessian"])
def test_transforms_raise(underived, transform) -> None:
    with pytest.raises(RuntimeError, match="derivative of '"):
        getattr(tangrad.func, transform)(lambda x: underived(x).sum())(leaf().detach())


def test_vmap_is_a_loop(underived) -> None:
    xs = tangrad.stack([leaf().detach(), leaf().detach() * 2])
    expected = tangrad.stack([underived(x) for x in xs])
    assert tangrad.allclose(tangrad.vmap(underived)(xs), expected)


def test_the_gradient_of_a_batch_raises(underived, request) -> None:
    xs = tangrad.stack([leaf().detach()] * 2).requires_grad_()
    if "decomposition" in request.node.callspec.id:  # vmap runs it, and its ops have derivatives
        tangrad.vmap(underived)(xs).sum().backward()
        tangrad.testing.assert_close(xs.grad, xs.detach().cos())
        return
    with pytest.raises(RuntimeError, match="derivative of '"):
        tangrad.vmap(underived)(xs).sum().backward()


def test_a_result_of_integers_needs_no_derivative() -> None:
    signs = op(
        f"{named()}(Tensor self) -> Tensor",
        dtype="int64", reference=lambda np, self: np.sign(self).astype("int64"),
    )  # fmt: skip
    x = leaf()
    assert not signs(x).requires_grad
    value, tangent = tangrad.func.jvp(signs, (x.detach(),), (tangrad.ones(2, 2).double(),))
    assert (value.tolist(), tangent.tolist()) == ([[1, -1], [1, 1]], [[0, 0], [0, 0]])


def test_who_says_that_there_is_none_is_not_recorded() -> None:
    rounded = by_reference(vjp="none: it counts")
    assert not rounded(leaf()).requires_grad


def test_an_in_place_form_raises_too() -> None:
    name = named()
    made = op(f"{name}(Tensor self) -> Tensor", reference=lambda np, self: np.sin(self),
              inplace=True)  # fmt: skip
    x = leaf()
    y = x * 2
    made.inplace(y)
    with pytest.raises(NotImplementedError, match="is not implemented: its definition"):
        y.sum().backward()


def test_the_message_tells_the_module_and_the_remedy() -> None:
    with pytest.raises(NotImplementedError) as caught:
        by_reference()(leaf()).sum().backward()
    told = str(caught.value)
    assert f"its definition ({__name__}) gives none" in told
    assert told.endswith("give it vjp={...}, or vjp=\"none: reason\" if no gradient is to flow; "
                         "detach() 'self' if it is a constant")  # fmt: skip


# --- forward mode of lists


def test_tangents_of_lists_are_not_lost() -> None:
    total = op(
        f"{named()}(Tensor[] xs) -> Tensor",
        shape=lambda xs: xs[0].shape, dtype=lambda xs: xs[0].dtype,
        reference=lambda np, xs: sum(x * x for x in xs),
        vjp={"xs": lambda g, xs: [2 * g * x for x in xs]},
    )  # fmt: skip
    x = leaf().detach()
    _, tangent = tangrad.func.jvp(lambda t: total([t, x, 3 * t]), (x,), (tangrad.ones_like(x),))
    assert tangrad.allclose(tangent, 2 * x + 18 * x)


def test_tangents_leave_lists_of_sizes_as_they_are() -> None:
    total = reduction(
        f"{named()}(Tensor self, dim[]? dim=None, bool keepdim=False) -> Tensor",
        map="self * self", fold="sum", promote="float",
        vjp={"self": lambda g, self, dim: 2 * self * g.reshape((1,) * self.ndim)},
    )  # fmt: skip
    x = leaf().detach()
    _, tangent = tangrad.func.jvp(lambda t: total(t, (0, -1)), (x,), (tangrad.ones_like(x),))
    assert tangent.item() == pytest.approx(2 * x.sum().item())


# --- kernels of library ops


@pytest.fixture
def cut():
    library = tangrad.library.Library("underived", "FRAGMENT")
    name = f"g{next(NUMBERS)}"
    library.define(f"{name}(Tensor x) -> (Tensor, Tensor)")

    def kernel(x):
        return tangrad.from_numpy(np.sin(x.detach().numpy())), x * 2

    library.impl(name, kernel, "CPU")
    yield getattr(tangrad.ops.underived, name)
    del library  # with it goes the op


def test_what_a_kernel_computes_outside_of_the_graph_raises_in_backward(cut) -> None:
    x = leaf()
    outside, recorded = cut(x)
    recorded.sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    with pytest.raises(NotImplementedError, match=r"Trying to backward through underived\.g"):
        outside.sum().backward()


def test_a_kernel_outside_of_the_graph_raises_in_transforms(cut) -> None:
    x = leaf().detach()
    with pytest.raises((RuntimeError, TypeError)):
        tangrad.func.jvp(lambda t: cut(t)[0], (x,), (x,))
    with pytest.raises((RuntimeError, TypeError)):
        tangrad.func.grad(lambda t: cut(t)[0].sum())(x)


# --- ops of the core by whose derivative PyTorch's backward raises


@pytest.mark.parametrize(
    "call",
    [
        lambda F, x: F.heaviside(x, x),
        lambda F, x: F.unique(x),
        lambda F, x: F.geqrf(x)[0],
        lambda F, x: F.linalg.ldl_factor_ex(x)[0],
        lambda F, x: F.linalg.ldl_solve(x, F.tensor([1, 2], dtype=F.int32), x),
        lambda F, x: F._standard_gamma_grad(x, x),
    ],
)
def test_what_pytorch_refuses_to_differentiate_is_refused(agree, call) -> None:
    def program(F):
        x = F.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=F.float64, requires_grad=True)
        y = call(F, x * 1)
        with pytest.raises(RuntimeError, match="derivative for|the derivative of"):
            y.sum().backward()
        return y.requires_grad

    agree(program)
