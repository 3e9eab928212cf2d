"""Every nesting of grad, jvp and vmap, over forty functions, gives torch's values."""

from __future__ import annotations

import pytest


def layer_norm(t, x, weight):
    """Normalise; by parts on torch 2.13, which gets its own second derivatives wrong."""
    if t.__name__ == "tangrad":
        return t.nn.functional.layer_norm(x, (4,), weight, weight)
    centred = x - x.mean(-1, keepdim=True)
    return centred * (x.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt() * weight + weight


# Functions of a matrix w (3, 4) and a sample x (4,) to any shape.
FUNCTIONS = {
    "linear": lambda t, w, x: w @ x,
    "tanh layer": lambda t, w, x: (w @ x).tanh(),
    "sigmoid": lambda t, w, x: t.sigmoid(w * x),
    "exp of product": lambda t, w, x: (w * x).exp(),
    "log of square": lambda t, w, x: (w * w + x * x + 1).log(),
    "softmax": lambda t, w, x: (w @ x).softmax(0),
    "softmax of rows": lambda t, w, x: (w * x).softmax(-1),
    "log_softmax": lambda t, w, x: (w * x).log_softmax(-1),
    "logsumexp": lambda t, w, x: t.logsumexp(w * x, 1),
    "mean and variance": lambda t, w, x: (w * x).mean(1) + (w + x).var(1),
    "standard deviation": lambda t, w, x: (w * x).std(0),
    "norm": lambda t, w, x: (w * x).norm(dim=1),
    "product": lambda t, w, x: (w * x).prod(1),
    "cumulative sum": lambda t, w, x: (w * x).cumsum(1),
    "cumulative product": lambda t, w, x: (w * x).cumprod(0),
    "maximum of two": lambda t, w, x: t.maximum(w, x),
    "amax": lambda t, w, x: (w * x).amax(1),
    "max along dim": lambda t, w, x: (w * x).max(1).values,
    "sort": lambda t, w, x: (w * x).sort(1).values,
    "topk": lambda t, w, x: (w * x).topk(2, 1).values,
    "where": lambda t, w, x: t.where(w > x, w * x, w.sin()),
    "clamp": lambda t, w, x: (w * x).clamp(-0.5, 0.5) * w,
    "power": lambda t, w, x: (w * w + 1) ** x,
    "division": lambda t, w, x: x / (2 + w.cos()),
    "transpose": lambda t, w, x: w.t() * x.unsqueeze(1),
    "reshape": lambda t, w, x: w.reshape(2, 6).sum(1) * x[:2],
    "slice": lambda t, w, x: w[1:, ::2] * x[::2],
    "select": lambda t, w, x: w[0] * w[-1] * x,
    "index": lambda t, w, x: w[t.tensor([0, 2, 0])] * x,
    "index by two": lambda t, w, x: w[t.tensor([0, 2]), t.tensor([1, 3])] * x[:2],
    "mask": lambda t, w, x: w.masked_fill(t.tensor([True, False, True, False]), 2.0) * x,
    "gather": lambda t, w, x: (w * x).gather(1, t.tensor([[0, 0], [1, 3], [2, 1]])).sin(),
    "scatter_add": lambda t, w, x: (
        w.scatter_add(1, t.tensor([[0, 0, 1, 1]]), (x * x).unsqueeze(0)) ** 2
    ),
    "cat": lambda t, w, x: t.cat([w, x.unsqueeze(0)], 0).sin(),
    "stack": lambda t, w, x: t.stack([w[0], x, w[1] * x], 1) ** 2,
    "split": lambda t, w, x: w.split(2, 1)[0] * w.split(2, 1)[1] * x[:2],
    "flip": lambda t, w, x: w.flip(1) * x,
    "triangle": lambda t, w, x: w.tril() * x,
    "outer and matmul": lambda t, w, x: w @ t.outer(x, x) @ w.t(),
    "einsum": lambda t, w, x: t.einsum("ij,j,kj->ik", w, x, w),
    "layer_norm": lambda t, w, x: layer_norm(t, w * x, x) * x,
    "gelu": lambda t, w, x: t.nn.functional.gelu(w @ x),
    "cross_entropy": lambda t, w, x: t.nn.functional.cross_entropy(
        (w * x).t(), t.tensor([0, 2, 1, 0])
    ),
    "conv1d": lambda t, w, x: (
        t.nn.functional.conv1d(
            w.unsqueeze(0), w[:2, :2].reshape(1, 2, 2).repeat(1, 2, 1)[:, :3], padding=1
        )
        * x[0]
    ),
}
MATRIX, SAMPLE, BATCH = (3, 4), (4,), (5, 4)


def loss(function, t):
    return lambda w, x: (function(t, w, x) ** 2).sum() + function(t, w, x).sum()


@pytest.fixture(params=FUNCTIONS.values(), ids=FUNCTIONS)
def function(request):
    return request.param


def test_grad(same, function):
    same(lambda t, w, x: t.func.grad(loss(function, t), (0, 1))(w, x), MATRIX, SAMPLE)


def test_per_sample_gradients(same, function):
    same(
        lambda t, w, x: t.func.vmap(t.func.grad(loss(function, t)), (None, 0))(w, x), MATRIX, BATCH
    )


def test_grad_of_vmap(same, function):
    def program(t, w, x):
        return t.func.grad(lambda w: t.func.vmap(loss(function, t), (None, 0))(w, x).sum())(w)

    same(program, MATRIX, BATCH)


def test_grad_of_grad(same, function):
    def program(t, w, x):
        first = t.func.grad(loss(function, t))
        return t.func.grad(lambda w: (first(w, x) ** 2).sum())(w)

    same(program, MATRIX, SAMPLE, tolerance=1e-7)


def test_hessian_forward_over_reverse(same, function):
    same(lambda t, w, x: t.func.hessian(loss(function, t), 1)(w, x), MATRIX, SAMPLE, tolerance=1e-7)


def test_hessian_reverse_over_forward(same, function):
    def program(t, w, x):
        return t.func.jacrev(t.func.jacfwd(loss(function, t), 1), 1)(w, x)

    same(program, MATRIX, SAMPLE, tolerance=1e-7)


def test_jacobians(same, function):
    def program(t, w, x):
        of_both = lambda w, x: function(t, w, x)  # noqa: E731
        return t.func.jacrev(of_both, (0, 1))(w, x), t.func.jacfwd(of_both, (0, 1))(w, x)

    same(program, MATRIX, SAMPLE)


def test_jvp_of_vmap_of_grad(same, function):
    def program(t, w, x, dw, dx):
        per_sample = t.func.vmap(t.func.grad(loss(function, t)), (None, 0))
        return t.func.jvp(per_sample, (w, x), (dw, dx))

    same(program, MATRIX, BATCH, MATRIX, BATCH, tolerance=1e-7)


def test_vmap_of_jvp_over_tangents(same, function):
    def program(t, w, x, dw):
        return t.func.vmap(lambda d: t.func.jvp(lambda w: function(t, w, x), (w,), (d,))[1])(dw)

    same(program, MATRIX, SAMPLE, (2, *MATRIX))


def test_nested_vmap_with_different_dims(same, function):
    def program(t, w, x):
        inner = t.func.vmap(lambda w, x: function(t, w, x), (None, 1), -1)
        return t.func.vmap(inner, (2, None))(w, x)

    same(program, (3, 4, 2), (4, 5))


def test_forward_over_forward(same, function):
    def program(t, w, x, dw, dx):
        once = lambda w: t.func.jvp(lambda w: function(t, w, x), (w,), (dw,))[1]  # noqa: E731
        return t.func.jvp(once, (w,), (dw,))

    same(program, MATRIX, SAMPLE, MATRIX, SAMPLE, tolerance=1e-7)
