"""The functions of tangrad.func: arguments, errors, no_grad, exceptions, threads."""

from __future__ import annotations

import threading

import pytest

import tangrad
from tangrad.dispatch.stack import current
from tangrad.func import (
    functional_call,
    grad,
    grad_and_value,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)


def test_argnums_and_auxiliary_outputs(same):
    def f(x, y):
        return (x * y).sum(), (x + y, x * 2)

    same(lambda t, x, y: t.func.grad(f, (1, -2), has_aux=True)(x, y), (3,), (3,))
    same(lambda t, x, y: t.func.grad_and_value(f, has_aux=True)(x, y), (3,), (3,))
    same(lambda t, x, y: t.func.jacrev(f, (0, 1), has_aux=True)(x, y), (3,), (3,))
    same(lambda t, x, y: t.func.jacfwd(f, 1, has_aux=True)(x, y), (3,), (3,))
    same(lambda t, x, y: t.func.jvp(f, (x, y), (y, x), has_aux=True), (3,), (3,))
    same(lambda t, x, y: t.func.vjp(f, x, y, has_aux=True)[2], (3,), (3,))


def test_trees_in_and_out(same):
    def f(params, x):
        return {"out": params["w"] * x + params["b"], "sum": (params["w"].sum(), x)}

    def program(t, w, b, x):
        value, pull = t.func.vjp(f, {"w": w, "b": b}, x)
        return (
            value,
            pull(value),
            t.func.jacrev(f)({"w": w, "b": b}, x),
            t.func.jacfwd(f)({"w": w, "b": b}, x),
        )

    same(program, (3,), (3,), (3,))


def test_pullback_outlives_its_call_and_runs_again(same):
    def program(t, x, u):
        _, pull = t.func.vjp(lambda x: x.sin() * x, x)
        return pull(u), pull(2 * u), t.func.vmap(pull)(t.stack([u, 3 * u]))

    same(program, (3,), (3,))


def test_pullback_can_be_differentiated(same):
    def program(t, x, u):
        return t.func.grad(lambda x: (t.func.vjp(lambda y: y**3, x)[1](u)[0] ** 2).sum())(x)

    same(program, (3,), (3,))


def test_results_are_recorded_outside(same):
    def program(t, x):
        x.requires_grad_()
        t.func.grad(lambda y: (y**3).sum())(x).sum().backward()
        first = x.grad
        (product,) = t.autograd.grad(t.func.jvp(lambda y: y.exp(), (x,), (x,))[1].sum(), x)
        return first, product

    same(program, (3,))


def test_chunked_jacobian(same):
    same(lambda t, x: t.func.jacrev(lambda x: x.sin() * x[0], chunk_size=2)(x), (5,))
    same(lambda t, x: t.func.jacrev(lambda x: x.sin() * x[0], chunk_size=1)(x), (5,))
    same(lambda t, x: t.func.jacrev(lambda x: (x, x.sum()), (0,), chunk_size=1)(x), (2, 3))


def test_detach_stops_gradients_at_every_level(same):
    same(
        lambda t, x: t.func.grad(
            lambda x: t.func.grad(lambda y: (y * y.detach() * x).sum())(x).sum()
        )(x),
        (3,),
    )
    same(lambda t, x: t.func.jvp(lambda y: y * y.detach(), (x,), (x,)), (3,))


def test_input_that_does_not_matter_has_zero_gradient(same):
    same(lambda t, x, y: t.func.grad(lambda x, y: (y * 2).sum(), (0, 1))(x, y), (3,), (2,))
    same(lambda t, x, y: t.func.jvp(lambda x: y, (x,), (x,)), (3,), (2,))


# --- no_grad
# ---------------------------------------------------------------------------------------


def test_no_grad_outside_does_not_reach_the_transform(same):
    def program(t, x):
        with t.no_grad():
            return t.func.grad(lambda x: (x**2).sum())(x)

    same(program, (3,))
    x = tangrad.ones(2, requires_grad=True)
    with tangrad.no_grad():
        assert not grad(lambda x: (x**2).sum())(x).requires_grad
    assert grad(lambda x: (x**2).sum())(x).requires_grad


def test_no_grad_inside_makes_constants(same):
    def f(t):
        def inside(x):
            with t.no_grad():
                c = x**2
            return (x - c).sum()

        return inside

    same(lambda t, x: t.func.grad(f(t))(x), (3,))
    same(lambda t, x: t.func.grad(lambda x: t.func.grad(f(t))(x).sum() + f(t)(x))(x), (3,))


# --- errors
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: grad(lambda x: x)(x),
            RuntimeError,
            "return a scalar tensor, got tensor with 1 dims",
        ),
        (
            lambda x: grad(lambda x: 1.0)(x),
            RuntimeError,
            "to return a Tensor with a single element",
        ),
        (
            lambda x: grad(lambda x: x.sum(), 1)(x),
            RuntimeError,
            "Got argnum=1, but only 1 positional inputs",
        ),
        (lambda x: grad(lambda x: x.sum(), (0, 0))(x), RuntimeError, "must be unique"),
        (lambda x: grad(lambda x: x.sum(), ())(x), RuntimeError, "non-empty"),
        (
            lambda x: grad(lambda x: x.sum())(x.long()),
            RuntimeError,
            "floating point and complex dtype",
        ),
        (lambda x: grad(lambda x: x.sum())(2.0), TypeError, "Expected tensors as inputs"),
        (lambda x: grad(lambda x: x.sum(), has_aux=True)(x), RuntimeError, "output, aux"),
        (
            lambda x: grad(lambda x: (x.sum(), [x, "aux"]), has_aux=True)(x),
            RuntimeError,
            "Expected tensors, got unsupported type str in aux",
        ),
        (lambda x: vjp(lambda x: 3, x), RuntimeError, "return only tensors"),
        (
            lambda x: vjp(lambda x: x.long(), x),
            RuntimeError,
            "All outputs of f must be floating-point",
        ),
        (
            lambda x: vjp(lambda x: x, x)[1]((x, x)),
            RuntimeError,
            "Expected pytree structure of cotangents",
        ),
        (lambda x: vjp(lambda x: x, x)[1](x[:1]), RuntimeError, "Mismatch in shape"),
        (lambda x: jvp(lambda x: x, x, (x,)), RuntimeError, "to be a tuple"),
        (lambda x: jvp(lambda x: x, (x,), (x, x)), RuntimeError, "same python structure"),
        (lambda x: jvp(lambda x: x, (x,), (x[:1],)), RuntimeError, "shape"),
        (
            lambda x: jvp(lambda x: tangrad.ones(2), (x,), (x,), strict=True),
            RuntimeError,
            "independent of the inputs",
        ),
        (lambda x: jacrev(lambda x: x, chunk_size=0), ValueError, "chunk_size"),
        (
            lambda x: vmap(lambda x: x, randomness="often"),
            RuntimeError,
            "Only allowed values for randomness",
        ),
    ],
)
def test_wrong_calls_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(tangrad.ones(3))
    assert not current().levels


class Boom(Exception):
    pass


def test_exception_inside_leaves_the_stack_as_it_was():
    def fail(x):
        x.sin()
        raise Boom

    x = tangrad.ones(3, 2)
    nestings = [
        grad(fail),
        vmap(fail),
        vmap(grad(fail)),
        grad(lambda x: vmap(jacfwd(fail))(x).sum()),
        jacrev(grad(fail)),
        lambda x: jvp(fail, (x,), (x,)),
        lambda x: vmap(fail, chunk_size=1)(x),
    ]
    for nested in nestings:
        with pytest.raises(Boom):
            nested(x)
        assert not current().levels
        assert tangrad.is_grad_enabled()
        assert tangrad._C.get_intercept() is None
    assert grad(lambda x: x.sum())(x).tolist() == [[1, 1]] * 3


def test_exception_in_an_op_leaves_the_stack_as_it_was():
    with pytest.raises(RuntimeError):
        vmap(grad(lambda x: (x @ tangrad.ones(7)).sum()))(tangrad.ones(3, 2))
    assert not current().levels


@pytest.mark.parametrize("transform", [grad, vmap, lambda f: lambda x: jvp(f, (x,), (x,))])
def test_escaped_tensor_is_an_error(transform):
    kept = []

    def leak(x):
        kept.append(x * 2)
        return x.sum()

    transform(leak)(tangrad.ones(3))
    with pytest.raises(RuntimeError, match="used after the transform ended"):
        kept[0] + 1


def test_threads_have_their_own_transforms():
    results, errors = {}, []

    def work(k):
        try:
            x = tangrad.full((20, 3), float(k), dtype=tangrad.float64)
            for _ in range(5):
                results[k] = vmap(grad(lambda v: (v**3).sum()))(x)[7].tolist()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert results == {k: [3.0 * k * k] * 3 for k in range(6)}


# --- modules
# ---------------------------------------------------------------------------------------


def test_functional_call_uses_other_parameters_and_restores_them():
    layer = tangrad.nn.Linear(3, 2)
    before = layer.weight
    zeros = {"weight": tangrad.zeros(2, 3), "bias": tangrad.ones(2)}
    assert functional_call(layer, zeros, tangrad.ones(3)).tolist() == [1, 1]
    assert layer.weight is before
    with pytest.raises(RuntimeError, match="Unexpected key.*'wieght'.*Missing key"):
        functional_call(layer, {"wieght": before}, tangrad.ones(3), strict=True)
    with pytest.raises(TypeError, match="3 is not an instance"):
        functional_call(layer, {"bias": zeros["bias"], "weight": 3}, tangrad.ones(3))
    assert layer.weight is before


def test_functional_call_sets_plain_attributes_for_the_call():
    class Scaled(tangrad.nn.Module):
        x = None

        def forward(self, y):
            return y * self.x + getattr(self, "extra", 0)

    module = Scaled()
    module.x = one = tangrad.ones(())
    given = {"x": tangrad.tensor(3.0), "extra": tangrad.tensor(1.0)}
    assert functional_call(module, given, tangrad.tensor(2.0)).item() == 7
    assert module.x is one
    assert not hasattr(module, "extra")


def test_functional_call_registers_parameters_for_the_call():
    class Names(tangrad.nn.Module):
        scale = None

        def __init__(self):
            super().__init__()
            self.number = 0.0

        def forward(self):
            return [name for name, _ in self.named_parameters()]

    module = Names()
    given = {"more": tangrad.nn.Parameter(tangrad.ones(1)), "plain": tangrad.ones(1)}
    assert functional_call(module, given) == ["more"]
    assert module() == []
    with pytest.raises(TypeError, match="attribute `number`: 0.0 is not an instance of"):
        functional_call(module, {"number": tangrad.ones(1)})
    assert module.number == 0.0


def test_functional_call_ties_names_that_share_a_tensor():
    module = tangrad.nn.Linear(1, 1)
    module.again = module.bias
    weight, zero = tangrad.ones(1, 1), tangrad.zeros(1)
    tied = {"weight": weight, "bias": zero}
    assert functional_call(module, tied, tangrad.ones(1), strict=True).item() == 1
    with pytest.raises(RuntimeError, match="Missing key.*'again'"):
        functional_call(module, tied, tangrad.ones(1), strict=True, tie_weights=False)
    with pytest.raises(ValueError, match=r"multiple values for keys \['again', 'bias'\]"):
        functional_call(module, {**tied, "again": zero + 1}, tangrad.ones(1))
    with pytest.raises(ValueError, match=r"\['bias'\] appeared in multiple dictionaries"):
        functional_call(module, ({"bias": zero}, {"bias": zero}), tangrad.ones(1))


def test_functional_call_follows_a_circle_of_modules():
    module = tangrad.nn.Module()
    module.inner = tangrad.nn.Linear(1, 1)
    module.inner.outer = module
    module.forward = lambda x: module.inner(x)
    weight = {"inner.outer.inner.weight": tangrad.zeros(1, 1)}
    result = functional_call(module, weight, tangrad.ones(1), tie_weights=False)
    assert result.item() == module.inner.bias.item()


def test_per_sample_gradients_of_a_module():
    net = tangrad.nn.Sequential(
        tangrad.nn.Linear(4, 5), tangrad.nn.Tanh(), tangrad.nn.Linear(5, 3)
    ).double()
    params = {name: p.detach() for name, p in net.named_parameters()}
    x = tangrad.randn(6, 4, dtype=tangrad.float64)
    y = tangrad.tensor([0, 2, 1, 1, 0, 2])

    def loss(params, x, y):
        return tangrad.nn.functional.cross_entropy(functional_call(net, params, x), y)

    found = vmap(grad(loss), (None, 0, 0))(params, x, y)
    for i in range(6):
        net.zero_grad()
        loss(dict(net.named_parameters()), x[i], y[i]).backward()
        for name, p in net.named_parameters():
            assert tangrad.allclose(found[name][i], p.grad)


def test_ensemble_of_modules():
    models = [tangrad.nn.Linear(3, 2) for _ in range(4)]
    params, buffers = stack_module_state(models)
    x = tangrad.randn(5, 3)
    found = vmap(lambda p, b: functional_call(models[0], (p, b), x))(params, buffers)
    assert tangrad.allclose(found, tangrad.stack([m(x) for m in models]))


def test_grad_and_value():
    gradient, value = grad_and_value(lambda x: (x**2).sum())(tangrad.tensor([1.0, 2.0]))
    assert gradient.tolist() == [2, 4]
    assert value.item() == 5


def test_one_row_at_a_time_needs_no_batch():
    class Squared(tangrad.autograd.Function):
        @staticmethod
        def forward(x):
            return x**2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            assert g.nonzero().numel()  # of a shape that depends on values
            return 2 * x * g

    found = jacrev(Squared.apply, chunk_size=1)(tangrad.tensor([1.0, 3.0]))
    assert found.tolist() == [[2, 0], [0, 6]]


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_jacobians_of_complex_numbers_are_refused(transform):
    z, name = tangrad.ones(2, dtype=tangrad.complex64), transform.__name__
    with pytest.raises(RuntimeError, match=f"{name}: Expected all inputs to be real"):
        transform(lambda z: z.real)(z)
    with pytest.raises(RuntimeError, match=f"{name}: Expected all outputs to be real"):
        transform(lambda x: x * 1j)(tangrad.ones(2))


def test_modules_that_are_stacked_require_gradients_alike():
    models = [tangrad.nn.Linear(2, 2) for _ in range(2)]
    models[0].weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"weight of all models to have the same .requires_grad"):
        stack_module_state(models)


def test_what_a_function_must_give_and_take_is_told():
    x = tangrad.ones(2)
    with pytest.raises(RuntimeError, match=r"vjp.*expected f\(\*primals\) to return only tensors"):
        vjp(lambda x: 1, x)
    with pytest.raises(RuntimeError, match="only contain Tensors"):
        jvp(tangrad.sin, (1.0,), (x,))
    with pytest.raises(RuntimeError, match="same python structure"):
        jvp(tangrad.sin, (x,), [x])


def test_what_a_transform_would_not_see_is_refused():
    x = tangrad.ones(3)

    def required(x):
        return (x.detach().requires_grad_() * x).sum()

    def retained(x):
        y = tangrad.ones(3, requires_grad=True) * x
        y.retain_grad()
        return y.sum()

    for transform in (grad, vmap, jacrev, jacfwd):
        with pytest.raises(RuntimeError, match=r"to call Tensor.requires_grad_\(\).*transformed"):
            transform(required)(x)
    for transform in (grad, jacrev):
        with pytest.raises(RuntimeError, match=r"to call Tensor.retain_grad\(\).*transformed"):
            transform(retained)(x)
    # Made so, or by its attribute, a tensor of the level requires gradients.
    made = grad(lambda x: (tangrad.ones(3, requires_grad=True) * x).sum())(x)
    assert made.tolist() == [1, 1, 1]
    assert required(x).item() == 3


def test_saved_tensor_hooks_and_levels_of_gradients_refuse_each_other():
    graph, x = tangrad.autograd.graph, tangrad.ones(3)

    def inside(x):
        with graph.save_on_cpu():
            return x.sin().sum()

    for transform in (grad, jacrev, grad_and_value):
        with pytest.raises(RuntimeError, match="don't support saved tensor hooks"):
            transform(inside)(x)
        with graph.save_on_cpu(), pytest.raises(RuntimeError, match="saved tensor hooks"):
            transform(lambda x: x.sin().sum())(x)
    assert jvp(inside, (x,), (x,))[0] == inside(x)
    y = x.clone().requires_grad_()
    inside(y).backward()
    assert tangrad.equal(y.grad, x.cos())


def test_detached_in_place_a_tensor_has_no_tangent():
    def f(x):
        y = x * 2
        y.detach_()
        return x * y

    x = tangrad.tensor([3.0])
    assert [t.tolist() for t in jvp(f, (x,), (x / 3,))] == [[18], [6]]
    assert jvp(lambda x: jvp(f, (x,), (x,))[1], (x,), (x / 3,))[1].tolist() == [6]
