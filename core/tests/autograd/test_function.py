"""Function: derivatives written by hand, alone and under transforms."""

from __future__ import annotations

import gc
import weakref

import pytest

import tangrad
from tangrad.autograd import Function, gradcheck, gradgradcheck
from tangrad.autograd.function import once_differentiable
from tangrad.func import grad, hessian, jacfwd, jacrev, jvp, vmap


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Product(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y, x > y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        x, y = ctx.saved_tensors
        return g * y, g * x

    @staticmethod
    def jvp(ctx, x_t, y_t):
        x, y = ctx.saved_tensors
        return x_t * y + x * y_t, None


def leaf(*values):
    return tangrad.tensor(values, dtype=tangrad.float64, requires_grad=True)


def test_backward_is_used_twice_over():
    x = leaf(0.5, -1.0)
    assert gradcheck(Exp.apply, x)
    assert gradgradcheck(Exp.apply, x)
    assert type(Exp.apply(x).grad_fn).__name__ == "ExpBackward"


def test_saved_output_makes_no_cycle():
    gc.disable()
    try:
        y = Exp.apply(leaf(1.0))
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_saved_tensor_that_was_written_is_an_error():
    y = Exp.apply(leaf(1.0))
    z = y * 1
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_saved_tensors_are_freed_by_backward():
    y = Exp.apply(leaf(1.0)).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_needs_input_grad_and_materialized_grads():
    seen = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x, y, flag):
            ctx.set_materialize_grads(flag)
            return x * 1, y * 1

        @staticmethod
        def backward(ctx, a, b):
            seen.append((ctx.needs_input_grad, b if b is None else b.tolist()))
            return a, b, None

    x, constant = leaf(1.0), tangrad.ones(1, dtype=tangrad.float64)
    for flag in (True, False):
        Two.apply(x, constant, flag)[0].sum().backward()
    assert seen == [((True, False, False), [0.0]), ((True, False, False), None)]


def test_write_in_place_is_marked_dirty():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(1.0, 2.0)
    y = x * 3
    assert Double.apply(y) is y
    y.sum().backward()
    assert x.grad.tolist() == [6, 6]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        Double.apply(leaf(1.0))


def test_input_returned_as_it_is_becomes_another_tensor():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    x = leaf(1.0)
    y = Same.apply(x)
    assert y is not x
    y.backward(tangrad.ones_like(x))
    assert x.grad.tolist() == [5]


def returning(gradients):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return gradients(g)

    return Wrong


@pytest.mark.parametrize(
    ("gradients", "error", "message"),
    [
        (
            lambda g: (g,),
            RuntimeError,
            "returned an incorrect number of gradients \\(expected 2, got 1\\)",
        ),
        (lambda g: (g, g), RuntimeError, "returned a gradient different from None at position 2"),
        (lambda g: ("g", None), TypeError, "returned a str as gradient 0"),
        (lambda g: (g[:1], None), RuntimeError, "shape"),
    ],
)
def test_wrong_gradients_are_refused(gradients, error, message):
    y = returning(gradients).apply(leaf(1.0, 2.0), 3)
    with pytest.raises(error, match=message):
        y.sum().backward()


def test_wrong_classes_are_refused():
    class Empty(Function):
        pass

    with pytest.raises(NotImplementedError, match="implement the forward"):
        Empty.apply(leaf(1.0))
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        made = Empty()
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward"):
        made(leaf(1.0))
    with pytest.raises(TypeError, match="can only save variables"):
        Exp._backward_cls().save_for_backward(3)


def test_once_differentiable_refuses_second_derivatives():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    x = leaf(3.0)
    (g,) = tangrad.autograd.grad((Square.apply(x) * x).sum(), x, create_graph=True)
    assert g.tolist() == [27]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


# --- under transforms
# ------------------------------------------------------------------------------


def custom(x, y):
    return Product.apply(x, y)[0].sin().sum()


def plain(x, y):
    return (x * y).sin().sum()


TRANSFORMS = {
    "grad": lambda f, x, y, b: grad(f, (0, 1))(x, y),
    "hessian": lambda f, x, y, b: hessian(f, (0, 1))(x, y),
    "jacrev of grad": lambda f, x, y, b: jacrev(grad(f))(x, y),
    "jacfwd": lambda f, x, y, b: jacfwd(f)(x, y),
    "vmap": lambda f, x, y, b: vmap(f, (0, None))(b, y),
    "vmap of grad": lambda f, x, y, b: vmap(grad(f, (0, 1)), (0, None))(b, y),
    "grad of vmap": lambda f, x, y, b: grad(lambda b, y: vmap(f, (0, None))(b, y).sum(), (0, 1))(
        b, y
    ),
    "vmap of hessian": lambda f, x, y, b: vmap(hessian(f, (0, 1)), (0, None))(b, y),
    "jvp of vmap of grad": lambda f, x, y, b: jvp(vmap(grad(f), (0, None)), (b, y), (b, y)),
    "vmap of vmap": lambda f, x, y, b: vmap(vmap(f, (None, 0)), (0, None))(b, b),
}


def leaves(value):
    return [t for v in value for t in leaves(v)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms_see_the_function_s_own_derivative(transform):
    x, y, b = (tangrad.randn(*shape, dtype=tangrad.float64) for shape in ((3,), (3,), (4, 3)))
    for a, c in zip(
        leaves(transform(custom, x, y, b)), leaves(transform(plain, x, y, b)), strict=True
    ):
        assert a.shape == c.shape
        assert tangrad.allclose(a, c)


def test_backward_under_grad_is_the_written_one():
    class Straight(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.round()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g

    x = tangrad.tensor([[0.3, 1.7]])
    assert grad(lambda v: Straight.apply(v).sum())(x).tolist() == [[1, 1]]
    assert vmap(grad(lambda v: (Straight.apply(v) ** 2).sum()))(x).tolist() == [[0, 4]]


def test_vmap_rule_written_by_hand():
    class Scale(Function):
        @staticmethod
        def forward(x, k):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k, None

        @staticmethod
        def vmap(info, in_dims, x, k):
            assert info.batch_size == 3
            assert in_dims == (1, None)
            return Scale.apply(x, k), 1

    x = tangrad.arange(6.0).reshape(2, 3)
    assert vmap(lambda v: Scale.apply(v, 2), 1)(x).tolist() == (2 * x).t().tolist()


def test_what_transforms_lack_is_told():
    x = tangrad.ones(2)
    with pytest.raises(RuntimeError, match="must override the setup_context staticmethod"):
        grad(lambda v: Exp.apply(v).sum())(x)

    class NoVmap(Product):
        generate_vmap_rule = False

    with pytest.raises(RuntimeError, match="does not have vmap support"):
        vmap(lambda v: NoVmap.apply(v, v)[0])(x)


def test_a_forward_that_takes_the_context_has_tangents(agree):
    def program(f):
        class Product(f.autograd.Function):
            @staticmethod
            def forward(ctx, x, y, factor):
                ctx.save_for_forward(x, y)
                ctx.factor = factor
                return x * y * factor, x + y

            @staticmethod
            def jvp(ctx, x_t, y_t, _):
                x, y = ctx.saved_tensors
                return (x_t * y + x * y_t) * ctx.factor, x_t + y_t

        ad = f.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(f.tensor([1.0, 2.0]), f.tensor([3.0, 4.0]))
            results = Product.apply(x, f.tensor([5.0, 6.0]), 2)
            return [part for r in results for part in ad.unpack_dual(r)]

    agree(program)


@pytest.mark.parametrize("given", [(), (5,)])
def test_setup_context_is_told_of_forwards_defaults(given):
    torch = pytest.importorskip("torch")
    for framework in (tangrad, torch):

        class Times(framework.autograd.Function):
            @staticmethod
            def forward(x, factor=3):
                return x * factor

            @staticmethod
            def setup_context(ctx, inputs, output):
                _, ctx.factor = inputs

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.factor, None

        x = framework.ones(2, requires_grad=True)
        Times.apply(x, *given).sum().backward()
        assert x.grad.tolist() == [(given or (3,))[0]] * 2


def test_gradients_of_results_without_a_derivative_can_stay_none():
    class Pair(Function):
        @staticmethod
        def forward(ctx, x):
            fixed = x.clone()
            ctx.mark_non_differentiable(fixed)
            ctx._materialize_non_diff_grads = False
            return x.clone(), fixed

        @staticmethod
        def backward(ctx, first, second):
            assert second is None
            return first

    x = tangrad.ones(2, requires_grad=True)
    Pair.apply(x)[0].sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_an_argument_handed_back_is_viewed_by_its_class():
    class Custom(tangrad.Tensor):
        def __init__(self, data):
            super().__init__()
            self._data = data

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            args = tuple(a._data if isinstance(a, cls) else a for a in args)
            out = func(*args, **(kwargs or {}))
            return cls(out) if isinstance(out, tangrad.Tensor) else out

    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad

    assert isinstance(Same.apply(Custom(tangrad.ones(2))), Custom)


@pytest.mark.parametrize(
    "names", [["factor"], ["shift", "factor"], ["shift"], ["factor", "only"], []]
)
@pytest.mark.parametrize("gradients", [1, 2, 3])
def test_arguments_by_name_take_their_places(agree, names, gradients):
    def program(f):
        class Affine(f.autograd.Function):
            @staticmethod
            def forward(ctx, x, factor=2, shift=0, *, only=1):
                ctx.needs = list(ctx.needs_input_grad)
                return x * factor + shift

            @staticmethod
            def backward(ctx, grad):
                return tuple(grad * k for k in range(1, gradients + 1))

        given = {name: f.ones(2, requires_grad=True) for name in names}
        x = f.ones(2, requires_grad=True)
        y = Affine.apply(x, **given)
        y.sum().backward()
        return [y, y.grad_fn.needs, x.grad, [t.grad for t in given.values()]]

    agree(program, message=False)


def test_arguments_by_keyword_only_are_refused_beside_setup_context(agree):
    def program(f):
        class Scaled(f.autograd.Function):
            @staticmethod
            def forward(x, *, factor=2):
                return x * factor

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.inputs = len(inputs)

        return Scaled.apply(f.ones(2, requires_grad=True), factor=5)

    agree(program, message=False)
